"""Use cases: transactions around decisions, behind ports."""
