"""The HTTP edge, for people and for agents."""
