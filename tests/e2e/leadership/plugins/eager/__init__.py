"""Third-party plug-ins that have a leader write whenever it can."""
