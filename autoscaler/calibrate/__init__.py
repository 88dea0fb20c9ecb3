"""Fits width profiles to measured tables and runs."""
