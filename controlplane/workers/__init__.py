"""The Celery edge: tasks, the beat table, the worker classes."""
