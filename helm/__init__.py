"""Charts of the plane and the agent, and what keeps their READMEs in step with their values."""
