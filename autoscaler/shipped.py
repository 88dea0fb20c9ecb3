"""Finds what ships with the package: policies, profiles, resize presets, scenarios.

The files live at the top of a checkout, where people edit them, and inside the package of an
installed wheel. This module only lists and locates; whoever asked reads.
"""

from importlib.resources import files
from pathlib import Path

from autoscaler.errors import ConfigError

GROUPS = {
    "policies": "policies",
    "profiles": "simulations/profiles",
    "resizes": "simulations/resizes",
    "scenarios": "simulations/scenarios",
    "traces": "simulations/traces",
}
"""Group name: its folder in a checkout. In a wheel each is ``autoscaler/data/<group>``."""

_SUFFIXES = (".yaml", ".yml")


def names(group: str) -> list[str]:
    """What ``shipped`` finds in ``group`` (one of GROUPS), sorted; file stems.

    Raises:
        ConfigError: no such group.
    """
    folder = _folder(group)
    if not folder.is_dir():
        return []
    return sorted(p.stem for p in folder.iterdir() if p.suffix == ".yaml" and p.is_file())


def shipped(group: str, name: str) -> Path:
    """The file of one shipped thing.

    Args:
        group: one of GROUPS.
        name: file stem, as ``names`` lists it.

    Raises:
        ConfigError: unknown group or name; the message lists what exists.
    """
    path = _folder(group) / f"{name}.yaml"
    if name not in names(group):
        known = ", ".join(names(group)) or "(none)"
        raise ConfigError(f"{group}: must be one of {known}; got {name!r}")
    return path


def sample(file: str) -> Path:
    """A shipped sample trace, by its file name.

    Raises:
        ConfigError: no such sample.
    """
    path = _folder("traces") / file
    if not path.is_file():
        raise ConfigError(f"traces: must be a shipped sample; got {file!r}")
    return path


def resolve(group: str, name_or_file: str) -> Path:
    """A file a person pointed at, or the shipped thing of that name.

    Anything that ends in .yaml or .yml, or contains a path separator, is a file; all else a name.

    Raises:
        ConfigError: no such file, or no such name (lists what exists).
    """
    path = Path(name_or_file)
    if path.suffix in _SUFFIXES or len(path.parts) > 1:
        if path.is_file():
            return path
        raise ConfigError(f"{group}: must be an existing file; got {name_or_file!r}")
    return shipped(group, name_or_file)


def _folder(group: str) -> Path:
    if group not in GROUPS:
        raise ConfigError(f"shipped group: must be one of {', '.join(GROUPS)}; got {group!r}")
    package = Path(str(files("autoscaler")))
    installed = package / "data" / group
    # A wheel carries its own copy; an editable install has none and uses the checkout's.
    return installed if installed.is_dir() else package.parent / GROUPS[group]
