"""Key paths as messages name them."""

from autoscaler.settings.environment import Origins

KeyPath = tuple[str | int, ...]


class Where:
    """Names a key path: by its variable where it came from the environment, else by the file.

    Args:
        file: the configuration file, as the user named it.
        origins: the key paths that came from the environment.
    """

    def __init__(self, file: str, origins: Origins) -> None:
        self._file, self._origins = file, origins

    def __call__(self, path: KeyPath) -> str:
        """``autoscaler.yaml: targets[0].slo.window_s`` or ``environment: AUTOSCALER_TICK_S``."""
        name = self._origins.get(path)
        return f"environment: {name}" if name else f"{self._file}: {dotted(path)}"


def dotted(path: KeyPath) -> str:
    """``targets[0].slo.window_s``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
