"""Readers of what each vendor publishes about its devices."""
