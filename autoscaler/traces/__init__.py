"""Trace formats: one a file."""
