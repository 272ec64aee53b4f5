"""A cluster in memory, behind the same port."""
