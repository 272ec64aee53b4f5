"""The demonstration: four simulated clusters, three teams, an hour's work in a minute, and what goes wrong in it."""
