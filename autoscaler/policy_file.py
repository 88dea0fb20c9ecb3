"""Policies as people name them: a kind, ``KIND:ARGUMENT``, or a YAML file.

Reads the file; knows no concrete policy. Policy YAML is trusted input: its ``kind`` selects code.
"""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from autoscaler import plugins, shipped
from autoscaler.errors import ConfigError
from autoscaler.parameters import from_mapping
from autoscaler.ports import Policy, PolicyContext
from autoscaler.redaction import unquoted


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy that was chosen but not built yet.

    Args:
        name: what to call it in tables: the kind, ``static:4``, or the file's stem.
        kind: module stem in ``autoscaler.policies``, or a third party's entry point.
        params: that module's frozen ``Params``.
        path: the file it came from; None: from no file.
    """

    name: str
    kind: str
    params: Any
    path: Path | None = None

    def build(self, context: PolicyContext) -> Policy:
        """A new policy with state of its own.

        Raises:
            ConfigError: the policy cannot work with this context.
        """
        policy: Policy = plugins.find("policies", self.kind).build(self.params, context)
        return policy


def load(spec: str | Path) -> PolicyChoice:
    """Choose a policy.

    Args:
        spec: a YAML file (ends in .yaml or .yml, or has a path separator); ``KIND``, which takes
            the shipped YAML of that name where there is one, else the kind's defaults; or
            ``KIND:ARGUMENT`` such as ``static:4``.

    Raises:
        ConfigError: unknown kind, file, key or value; the message says what is allowed.
    """
    text = str(spec)
    if text.endswith((".yaml", ".yml")) or len(Path(text).parts) > 1:
        return _from_file(shipped.resolve("policies", text))
    kind, colon, argument = text.partition(":")
    module = plugins.find("policies", kind)
    if colon:
        from_argument = getattr(_params_class(module), "from_argument", None)
        if from_argument is None:
            raise ConfigError(f"policy {kind}: must be given without an argument; got {text!r}")
        return PolicyChoice(text, kind, from_argument(argument))
    if kind in shipped.names("policies"):
        return _from_file(shipped.shipped("policies", kind))
    return PolicyChoice(kind, kind, from_mapping(_params_class(module), {}, f"policy {kind}"))


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; duplicate keys are refused.

    Raises:
        ConfigError: unreadable, no YAML, or no mapping; the message names file and line.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506  # a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: must be a readable text file; {error}") from error
    except yaml.YAMLError as error:
        # Not from the error: its text quotes the line, and with it what may be secret.
        raise ConfigError(f"{path}{unquoted(error)}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be a mapping of keys; got {type(content).__name__}")
    for key in content:
        if not isinstance(key, str):
            raise ConfigError(f"{path}: keys must be text; got {key!r}")
    return content


class _UniqueKeys(yaml.SafeLoader):
    """YAML takes the last of two equal keys without a word; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


def _from_file(path: Path) -> PolicyChoice:
    content = read_yaml(path)
    kind = content.pop("kind", None)
    if not isinstance(kind, str):
        known = ", ".join(plugins.names("policies"))
        raise ConfigError(f"{path}: kind: must be one of {known}; got {kind!r}")
    try:
        module = plugins.find("policies", kind)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    params = from_mapping(_params_class(module), content, str(path))
    return PolicyChoice(path.stem, kind, params, path)


def _params_class(module: ModuleType) -> type[Any]:
    params: type[Any] = module.Params
    return params
