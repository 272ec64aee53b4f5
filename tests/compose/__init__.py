"""docker-compose.yml: read by an ordinary test, and run for real by `make compose-check`."""
