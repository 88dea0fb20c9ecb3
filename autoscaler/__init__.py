"""Decides the width of elastic expert-parallel LLM deployments from their SLO."""

__version__ = "0.1.0"
__all__ = ["__version__"]
