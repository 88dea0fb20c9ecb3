"""Deployments whose width is steered, one kind a module; names with ``_`` are no kinds."""
