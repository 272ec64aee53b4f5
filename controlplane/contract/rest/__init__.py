"""The bodies of the public REST API."""
