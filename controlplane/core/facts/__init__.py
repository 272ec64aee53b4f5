"""Rows of the truth as plain values: what stores return and take."""
