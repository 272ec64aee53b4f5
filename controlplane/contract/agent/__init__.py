"""The protocol between agents and the plane."""
