"""Described worlds: files that say all that a planner would know, so that it can be asked without any server."""
