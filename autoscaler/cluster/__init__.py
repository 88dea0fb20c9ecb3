"""The Kubernetes API server: how it is called and what its answers mean."""
