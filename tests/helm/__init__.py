"""Charts, rendered by the real helm."""
