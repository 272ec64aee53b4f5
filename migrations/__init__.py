"""Revisions of the database's schema: expand, deploy, contract; old code runs on the new schema."""
