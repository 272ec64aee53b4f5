"""What crosses a process boundary, and only that."""
