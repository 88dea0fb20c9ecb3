"""What ``autoscaler run`` goes by: a YAML file and the environment, checked and frozen.

``load`` reads both. Relative paths in them are relative to the configuration file.
"""

from autoscaler.settings.document import (
    Log,
    MemorySection,
    Settings,
    SettingsError,
    TelemetrySection,
    load,
)
from autoscaler.settings.election import LeaderElection
from autoscaler.settings.target import PluginChoice, TargetSettings

__all__ = [
    "LeaderElection",
    "Log",
    "MemorySection",
    "PluginChoice",
    "Settings",
    "SettingsError",
    "TargetSettings",
    "TelemetrySection",
    "load",
]
