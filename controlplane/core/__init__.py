"""Values and decisions: the standard library only, no clock, no chance."""
