"""Targets that are declared as ``WidthAutoscaler`` objects of a Kubernetes cluster.

Their schema, what one of them means, how they are found, and how their status tells what goes on.
"""
