"""The shipped rules as a Prometheus reads them, in a hurry."""

import re
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[3] / "deploy" / "monitoring" / "prometheus-rule.yaml"
_DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def shipped() -> dict[str, Any]:
    """The rules without the Kubernetes object around them."""
    content = yaml.safe_load(RULES.read_text("utf-8"))
    assert content["kind"] == "PrometheusRule"
    groups: dict[str, Any] = content["spec"]
    return groups


def alerts() -> list[dict[str, Any]]:
    """Every alert."""
    return [rule for group in shipped()["groups"] for rule in group["rules"] if "alert" in rule]


def faster(ratio: float, held_s: float | None = None) -> str:
    """The rules with every duration divided; ``held_s``: what each ``for`` is instead."""

    def shorter(number: str, unit: str) -> str:
        return f"{max(round(1000 * int(number) * _UNIT_S[unit] / ratio), 1000)}ms"

    rules = shipped()
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _DURATION.sub(lambda found: shorter(found[1], found[2]), rule["expr"])
            if "for" in rule:
                rule["for"] = shorter(rule["for"][:-1], rule["for"][-1])
                if held_s is not None:
                    rule["for"] = f"{round(1000 * held_s)}ms"
    return yaml.safe_dump(rules)
