"""The agent: one per workload cluster."""
