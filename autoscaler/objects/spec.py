"""What an object's spec means as one entry of ``targets``, kept within its namespace.

A configuration file is trusted; an object is written by whoever may write objects in a namespace.
It therefore selects no code (kinds and policies go by their plain names), names no namespace but
its own, no kubeconfig, and no file but those laid out for its namespace.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from autoscaler import plugins
from autoscaler.errors import ConfigError
from autoscaler.objects.resource import KIND, WidthAutoscaler
from autoscaler.settings.problems import problems_of
from autoscaler.settings.target import FileSet, Resolved, TargetSection, resolve
from autoscaler.settings.where import KeyPath, Where

_AT: KeyPath = ("spec",)


@dataclass(frozen=True, slots=True)
class Terms:
    """What objects are resolved with.

    Args:
        tick_s: seconds between two ticks.
        files: beside which the files of policies and profiles are; notes each.
        kubeconfig, context: through which objects are found, and through which their targets are
            reached; None: the program's own way.
        credentials: folder with one sub-folder a namespace, with the files that its objects may
            name; None: they may name none.
    """

    tick_s: float
    files: FileSet
    kubeconfig: str | None = None
    context: str | None = None
    credentials: Path | None = None


def resolved(found: WidthAutoscaler, terms: Terms) -> Resolved:
    """The object as a target that is called ``namespace/name``, or everything wrong with it."""
    where = Where(f"{KIND} {found.key}", {})
    content, problems = _contained(found, terms, where)
    if problems:
        return Resolved(problems=problems)
    try:
        section = TargetSection(name="object", **content)
    except ValidationError as error:
        return Resolved(problems=problems_of(error, TargetSection, where, _AT))
    made = resolve(section, _AT, terms.tick_s, where, terms.files)
    if made.settings is not None:
        made.settings = replace(made.settings, name=found.key)
    return made


def _contained(
    found: WidthAutoscaler, terms: Terms, where: Where
) -> tuple[dict[str, Any], list[str]]:
    """The spec with what follows from where the object is, and what is not permitted to it."""
    content = {str(key): value for key, value in found.spec.items()}
    problems = [f"{where((*_AT, *at))}: {rule}" for at, rule in _trespasses(content)]
    for group in ("sources", "targets"):
        key = group.removesuffix("s")
        part = content.get(key)
        if not isinstance(part, Mapping) or problems:
            continue
        part, wrong = _placed(group, part, found.namespace, terms)
        problems += [f"{where((*_AT, key, *at))}: {rule}" for at, rule in wrong]
        content[key] = part
    return content, problems


def _trespasses(content: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """A second name, kinds that are no plain names, files that are not beside the configuration."""
    if "name" in content:
        yield ("name",), "must not be given, it is the object's own; got a value"
    for key in ("source", "target"):
        yield from _selected(content.get(key), (key,))
    tuned = content.get("policy_params")
    if isinstance(tuned, Mapping):
        inner = tuned.get("policy")
        yield from _selected(inner, ("policy_params", "policy"))
        yield from _named(inner, ("policy_params", "policy"))
    yield from _named(content.get("policy"), ("policy",))
    yield from _named(content.get("profile"), ("profile",))
    shadows = content.get("shadow")
    for i, shadow in enumerate(shadows if isinstance(shadows, list) else ()):
        yield from _named(shadow, ("shadow", i))


def _selected(part: Any, at: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if not isinstance(part, Mapping):
        return
    kind = part.get("kind")
    if isinstance(kind, str) and "." in kind:
        yield (*at, "kind"), f"must be a kind by its plain name; got {kind!r}"
    yield from _selected(part.get("of"), (*at, "of"))


def _named(name: Any, at: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if not isinstance(name, str):
        return  # the settings say what it has to be
    place = PurePosixPath(name)
    if place.suffix in (".yaml", ".yml"):
        if place.is_absolute() or ".." in place.parts:
            yield at, f"must be a file beside the configuration; got {name!r}"
    elif "." in name.partition(":")[0] or "/" in name:
        yield at, f"must be a plain name or a YAML file beside the configuration; got {name!r}"


def _placed(
    group: str, part: Mapping[str, Any], namespace: str, terms: Terms
) -> tuple[dict[str, Any], list[tuple[KeyPath, str]]]:
    """A source or target with its namespace, its way to the cluster and its files."""
    made = {str(key): value for key, value in part.items()}
    wrong: list[tuple[KeyPath, str]] = []
    inner = made.get("of")
    if isinstance(inner, Mapping):
        made["of"], below = _placed(group, inner, namespace, terms)
        wrong += [(("of", *at), rule) for at, rule in below]
    for key in ("kubeconfig", "context"):
        if made.get(key) is not None:
            wrong.append(((key,), "must not be given in an object; got a value"))
    if "namespace" in made and made["namespace"] != namespace:
        rule = f"must be the object's own namespace ({namespace}), or left out"
        wrong.append((("namespace",), f"{rule}; got {made['namespace']!r}"))
    for key, value in made.items():
        if key.endswith("_file") and value is not None:
            rule = _file_rule(value, terms.credentials)
            if rule:
                wrong.append(((key,), f"{rule}; got {value!r}"))
            else:
                made[key] = str(Path(str(terms.credentials)) / namespace / value)
    takes = _parameters(group, made.get("kind"))
    own = {"namespace": namespace, "kubeconfig": terms.kubeconfig, "context": terms.context}
    made |= {key: value for key, value in own.items() if key in takes and value is not None}
    return made, wrong


def _file_rule(value: Any, credentials: Path | None) -> str:
    """The rule that the name of a file breaks; "" if it is good."""
    if credentials is None:
        return "must not be given: objects may name files only where objects.credentials is set"
    if not isinstance(value, str) or len(PurePosixPath(value).parts) != 1 or value in ("", ".."):
        return "must be the plain name of a file laid out for the object's namespace"
    return ""


def _parameters(group: str, kind: Any) -> set[str]:
    """What a kind takes; nothing for an unknown one, of which the settings tell."""
    try:
        params = plugins.find(group, kind).Params if isinstance(kind, str) else None
    except (ConfigError, AttributeError):
        return set()
    return set() if params is None else {f.name for f in fields(params)}
