"""Postgres, the only home of truth."""
