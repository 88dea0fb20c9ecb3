"""Finds plug-ins by file stem, and third parties' through entry points or by their dotted name.

Adding a policy, source, target or trace format touches one new module: nothing here, no
registry, no ``if kind ==``.
"""

import importlib
import pkgutil
from importlib.metadata import entry_points
from types import ModuleType

from autoscaler.errors import ConfigError

KINDS = ("policies", "sources", "targets", "traces")


def names(group: str) -> list[str]:
    """The kinds that ``find`` knows in ``group`` (one of KINDS), sorted."""
    package = importlib.import_module(f"autoscaler.{group}")
    own = {m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")}
    third = {entry.name for entry in entry_points(group=f"autoscaler.{group}")}
    return sorted(own | third)


def find(group: str, kind: str) -> ModuleType:
    """The module of one kind; heavy imports happen here and not before.

    Args:
        group: one of KINDS.
        kind: file stem in ``autoscaler.<group>``, name of an entry point, or a third party's
            module (``my_pkg.my_policy``): whoever writes the configuration selects code.

    Raises:
        ConfigError: unknown kind; the message lists what exists.
    """
    if "." in kind:
        return _imported(group, kind)
    package = importlib.import_module(f"autoscaler.{group}")
    if kind in {m.name for m in pkgutil.iter_modules(package.__path__)} and kind[0] != "_":
        return importlib.import_module(f"autoscaler.{group}.{kind}")
    for entry in entry_points(group=f"autoscaler.{group}", name=kind):
        module = entry.load()
        if isinstance(module, ModuleType):
            return module
        raise ConfigError(f"{group} kind {kind!r}: entry point {entry.value} is not a module")
    raise ConfigError(f"{group} kind: must be one of {', '.join(names(group))}; got {kind!r}")


def _imported(group: str, kind: str) -> ModuleType:
    try:
        return importlib.import_module(kind)
    except (ImportError, TypeError) as error:  # TypeError: a relative name
        rule = "must be a module that can be imported"
        raise ConfigError(f"{group} kind: {rule}; got {kind!r}: {error}") from error
