"""The CustomResourceDefinition, from the very classes that check the configuration.

``python -m autoscaler.objects.crd`` writes ``deploy/base/width-autoscaler-crd.yaml`` of a checkout,
or the file that is named.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from autoscaler import plugins
from autoscaler.errors import ConfigError
from autoscaler.objects.resource import GROUP, KIND, PLURAL, SHORT_NAME, SINGULAR, VERSION
from autoscaler.settings import schema

FILE = Path("deploy/base/width-autoscaler-crd.yaml")
_HEAD = """\
# Made by `python -m autoscaler.objects.crd` from the classes that check the configuration; do not
# edit. One object is one entry of `targets` in autoscaler.yaml, and its status.
"""
_NOT_IN_OBJECTS = ("kubeconfig", "context")
_WIDTH: schema.Schema = {"type": "integer", "minimum": 0, "nullable": True}
_WIDTHS = {
    "proposed": "Width that the policy proposes.",
    "desired": "Width in the spec of the deployment.",
    "effective": "Width proven to serve at the last reading; absent: not proven.",
    "stable": "Width proven last.",
}
_COLUMNS = (
    ("Proposed", "integer", ".status.width.proposed", 0),
    ("Desired", "integer", ".status.width.desired", 0),
    ("Effective", "integer", ".status.width.effective", 0),
    ("Policy", "string", ".spec.policy", 0),
    ("Converged", "string", '.status.conditions[?(@.type=="Converged")].status', 0),
    ("Reason", "string", ".status.decision.code", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Able", "string", '.status.conditions[?(@.type=="AbleToScale")].reason', 1),
    ("Message", "string", ".status.decision.reason", 1),
)


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice: anchors are for no reader of manifests."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # the library's signature
        return True


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    columns = [
        {"name": name, "type": kind, "jsonPath": path, **({"priority": p} if p else {})}
        for name, kind, path, p in _COLUMNS
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": _root()},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": SINGULAR,
        "shortNames": [SHORT_NAME],
        "categories": ["autoscaling"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def text() -> str:
    """The file."""
    options: dict[str, Any] = {"sort_keys": False, "width": 100, "allow_unicode": True}
    written: str = yaml.dump(definition(), Dumper=_Plain, **options)
    return _HEAD + written


def main(arguments: Sequence[str]) -> int:
    """Write the file; the exit code."""
    path = Path(arguments[0]) if arguments else FILE
    try:
        path.write_text(text(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: must be a file that can be written; {error}") from error
    return 0


def _root() -> schema.Schema:
    spec = schema.entry(*(plugins.names(group) for group in ("sources", "targets", "policies")))
    for part in ("source", "target"):
        for key in _NOT_IN_OBJECTS:
            spec["properties"][part]["properties"].pop(key, None)
    target = spec["properties"]["target"]
    others = {key: one for key, one in target["properties"].items() if key != "of"}
    target["properties"]["of"] = {
        "type": "object",
        "description": target["properties"]["of"]["description"],
        "properties": others,
        "required": ["kind"],
    }
    return {
        "type": "object",
        "description": "Keeps a latency objective by the width of one deployment.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec
            | {"description": "One entry of `targets` of the configuration, without its name."},
            "status": _status(),
        },
    }


def _status() -> schema.Schema:
    text_of = {"type": "string"}
    condition = {
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "reason": {"type": "string", "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
        },
    }
    return {
        "type": "object",
        "properties": {
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "Generation of the spec that the status speaks of.",
            },
            "width": {
                "type": "object",
                "properties": {
                    key: _WIDTH | {"description": said} for key, said in _WIDTHS.items()
                },
            },
            "decision": {
                "type": "object",
                "description": "The last decision that differed from the one before.",
                "properties": {
                    "code": text_of | {"description": "Short stable word."},
                    "reason": text_of | {"description": "For people."},
                },
            },
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": condition,
            },
        },
    }


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigError as problem:
        sys.exit(str(problem))
