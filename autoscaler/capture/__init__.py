"""Measures a running deployment with streaming requests, as its clients experience it."""
