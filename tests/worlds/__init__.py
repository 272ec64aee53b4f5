"""Described worlds: what files become, and what is said of wrong ones."""
