"""The tables, private to controlplane.db."""
