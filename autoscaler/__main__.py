"""``python -m autoscaler``."""

from autoscaler.cli import main

main()
