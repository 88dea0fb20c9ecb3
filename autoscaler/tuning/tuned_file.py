"""The policy file that a search writes: the template's comments, the values found, where from."""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from autoscaler import shipped
from autoscaler.errors import ConfigError
from autoscaler.policy_file import PolicyChoice, read_yaml

MARK = "# Tuned by simulation:"
"""Begins what the file says of its origin; all from there on is written anew."""

_COLUMNS = 100


def text(choice: PolicyChoice, provenance: Mapping[str, Any]) -> str:
    """The file's content.

    Args:
        choice: the policy with the parameters found; its ``path``, or else the shipped file of its
            kind, is the template whose comments are kept.
        provenance: the search's document, as ``report.document`` makes it.

    Raises:
        ConfigError: a value that the template has in no line of its own.
    """
    path = choice.path
    if path is None and choice.kind in shipped.names("policies"):
        path = shipped.shipped("policies", choice.kind)
    values = {f.name: getattr(choice.params, f.name) for f in fields(choice.params)}
    if path is None:
        body = yaml.safe_dump({"kind": choice.kind, **values}, sort_keys=False)
    else:
        body = path.read_text(encoding="utf-8").split(MARK)[0].rstrip() + "\n"
        there = read_yaml(path)
        for name, value in values.items():
            if name not in there or _same(there[name], value):
                continue
            body = _replaced(body, name, value, path)
        missing = {n: v for n, v in values.items() if n not in there}
        if missing:
            body += yaml.safe_dump(missing, sort_keys=False)
    return body + "\n" + _told(provenance)


def _same(given: Any, value: Any) -> bool:
    """Whether what YAML holds is what the parameters hold: lists there are tuples here."""
    if isinstance(value, tuple):
        return (
            isinstance(given, list)
            and len(given) == len(value)
            and all(_same(g, v) for g, v in zip(given, value, strict=True))
        )
    return bool(given == value)


def _replaced(body: str, name: str, value: Any, path: Path) -> str:
    line = yaml.safe_dump({name: value}).rstrip("\n")
    found, count = re.subn(rf"(?m)^{name}:[ \t]*[^\s#\[{{][^\n#]*?([ \t]*#.*)?$", line, body)
    if count != 1:
        raise ConfigError(f"{path}: {name}: must be a plain value in a line of its own")
    return found


def _told(document: Mapping[str, Any]) -> str:
    """What a person wants to know before trusting the numbers, as comments."""
    goal, tuned_on, held_out = document["goal"], document["tuned_on"], document["held_out"]
    state = f", interrupted after {document['trials']}" if document["interrupted"] else ""
    attained, reversals = 100 * goal["attainment_ratio"], goal["reversals_per_hour"]
    lines = [
        f"{MARK} {document['trials_asked']} trials{state}, seed {document['seed']}; the least",
        f"# GPU-hours with {attained:g} % of the windows kept, {reversals:g} reversals an hour. By",
        *_wrapped(document["command"], "#   "),
        *_wrapped(f"On what it was tuned on ({', '.join(tuned_on['cases'])}):", "# "),
        *_compared(tuned_on),
        *_wrapped(f"On what was held out ({', '.join(held_out['cases'])}):", "# "),
        *(_compared(held_out) if held_out["tuned"] else ["#   not played: interrupted"]),
    ]
    return "\n".join(lines) + "\n"


def _wrapped(words: str, indent: str) -> list[str]:
    return textwrap.wrap(
        words,
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _compared(part: Mapping[str, Any]) -> list[str]:
    return [f"#   {name:8s} {_in_words(part[name])}" for name in ("default", "tuned")]


def _in_words(summary: Mapping[str, Any]) -> str:
    return (
        f"kept in {summary['kept']} of {summary['cases']}; "
        f"{100 * summary['windows_ok_ratio']:.2f} % of the windows on average, "
        f"{100 * summary['worst_windows_ok_ratio']:.2f} % at worst; "
        f"{summary['gpu_hours']:.2f} GPU-hours"
    )
