"""Which nodes a workload gets."""
