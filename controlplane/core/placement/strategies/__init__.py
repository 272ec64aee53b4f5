"""One way of ordering candidates per module."""
