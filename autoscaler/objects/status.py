"""Reports as the ``status`` of objects, and whether one is worth a write. Pure."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from autoscaler.objects.conditions import Report

_MAX_TEXT = 1024


class Worth(IntEnum):
    """How much a status differs from the one before."""

    NOTHING = 0
    """in nothing, or in texts: a message that counts seconds is no news"""
    SOON = 1
    """in what may change with every tick: the proposal, the decision's code"""
    NOW = 2
    """in a condition, a width that is real, or the generation"""


def status_of(report: Report, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The status that an object is to have.

    Args:
        report: what there is to tell.
        before: the status it has; conditions that stay as they are keep their time, those that
            the report does not speak of stay.
        now: RFC 3339, whole seconds, UTC.
    """
    had = conditions_of(before)
    made = {}
    for one in report.conditions:
        old = had.get(one.type, {})
        since = old.get("lastTransitionTime") if old.get("status") == one.status else None
        made[one.type] = {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": _short(one.message),
            "lastTransitionTime": since or now,
        }
    widths = {
        "proposed": report.proposed,
        "desired": report.desired,
        "effective": report.effective,
        "stable": report.stable,
    }
    known = {key: width for key, width in widths.items() if width is not None}
    status = {
        "observedGeneration": report.generation,
        "conditions": list((had | made).values()),
    }
    if known:
        status["width"] = known
    if report.code:
        status["decision"] = {"code": report.code, "reason": _short(report.reason)}
    return status


def worth(before: Mapping[str, Any], after: Mapping[str, Any]) -> Worth:
    """How much the second status differs from the first."""
    if _real(before) != _real(after):
        return Worth.NOW
    return Worth.SOON if _passing(before) != _passing(after) else Worth.NOTHING


def patch_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that turns the first status into the second: what is gone becomes null."""
    patch = dict.fromkeys(before.keys() - after.keys()) | dict(after)
    old, new = before.get("width"), after.get("width")
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        patch["width"] = dict.fromkeys(old.keys() - new.keys()) | dict(new)
    return patch


def conditions_of(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The conditions of a status as it was read, by type; what is none is left out."""
    found = status.get("conditions")
    entries = found if isinstance(found, list) else []
    return {
        str(one["type"]): dict(one) for one in entries if isinstance(one, Mapping) and "type" in one
    }


def _real(status: Mapping[str, Any]) -> Any:
    conditions = conditions_of(status).values()
    width = status.get("width")
    width = width if isinstance(width, Mapping) else {}
    return (
        status.get("observedGeneration"),
        {c["type"]: (c.get("status"), c.get("reason")) for c in conditions},
        [width.get(key) for key in ("desired", "effective", "stable")],
    )


def _passing(status: Mapping[str, Any]) -> Any:
    width, decision = status.get("width"), status.get("decision")
    return (
        width.get("proposed") if isinstance(width, Mapping) else None,
        decision.get("code") if isinstance(decision, Mapping) else None,
    )


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."
