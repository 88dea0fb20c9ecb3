"""Reads and writes profile files, and finds the shipped ones."""

from pathlib import Path

import yaml

from autoscaler import shipped
from autoscaler.errors import ConfigError
from autoscaler.parameters import require_number
from autoscaler.policy_file import read_yaml
from autoscaler.profile import Profile


def load(name_or_file: str) -> Profile:
    """The profile of a file, or the shipped one of that name.

    Args:
        name_or_file: a file (ends in .yaml or .yml, or has a path separator), or a name that
            ``shipped.names("profiles")`` lists. With ``@1.3`` after it: as if it were 1.3 times
            as fast at every width, to try what a wrong profile does.

    Raises:
        ConfigError: no such file or name, or a profile that breaks a rule; the message names
            file, key, rule and value.
    """
    name, at, speed = name_or_file.rpartition("@")
    if not at:
        return read(shipped.resolve("profiles", name_or_file))
    try:
        ratio = float(speed)
    except ValueError:
        return read(shipped.resolve("profiles", name_or_file))  # the mark belongs to a path
    require_number(f"profile {name_or_file}: the speed after @", ratio, 0, above=True)
    return read(shipped.resolve("profiles", name)).sped_up(ratio)


def read(path: Path) -> Profile:
    """The profile in one YAML file.

    Raises:
        ConfigError: unreadable, or a profile that breaks a rule.
    """
    return Profile.from_dict(read_yaml(path), str(path))


def dumps(profile: Profile) -> str:
    """The YAML text of a profile: equal profiles give equal text."""
    text: str = yaml.safe_dump(
        profile.to_dict(), sort_keys=False, allow_unicode=True, width=96, default_flow_style=None
    )
    return text


def write(profile: Profile, path: Path, *, header: str = "") -> None:
    """Write a profile as YAML.

    Args:
        profile: what to write.
        path: is replaced; its folder must exist.
        header: comment lines at the top, without the marks.

    Raises:
        ConfigError: the file cannot be written.
    """
    comment = "".join(f"# {line}".rstrip() + "\n" for line in header.splitlines())
    try:
        path.write_text(comment + dumps(profile), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: must be a writable file; {error}") from error
