"""Protocols that services need and adapters fulfil, one noun per file."""
