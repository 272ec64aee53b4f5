"""A real Kubernetes, behind the agent's port."""
