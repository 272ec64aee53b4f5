"""The management plane of Muster."""
