"""What an API server demands of a new Event of ``events.k8s.io/v1``."""

import re
from collections.abc import Iterator

from autoscaler.testing_apiserver._status import Cause, Json

_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_LONGEST = {"action": 128, "reason": 128, "reportingInstance": 128, "note": 1024}


def event_violations(event: Json) -> list[Cause]:
    """What is wrong with an Event that is being created."""
    return list(_violations(event))


def _violations(event: Json) -> Iterator[Cause]:
    about = event.get("regarding") or {}
    where = event["metadata"].get("namespace", "")
    if where != (about.get("namespace") or "default"):
        text = f'Invalid value: "{about.get("namespace", "")}": does not match event.namespace'
        yield Cause("FieldValueInvalid", text, "involvedObject.namespace")
    if not _MICRO_TIME.fullmatch(str(event.get("eventTime"))):
        yield Cause("FieldValueRequired", "Required value", "eventTime")
    for key in ("reportingController", "reportingInstance", "action", "reason"):
        if not event.get(key):
            yield Cause("FieldValueRequired", "Required value", key)
    for key, longest in _LONGEST.items():
        if len(str(event.get(key) or "").encode()) > longest:
            text = f'Invalid value: "": can have at most {longest} characters'
            yield Cause("FieldValueInvalid", text, key)
    if event.get("type") not in ("Normal", "Warning"):
        text = f'Invalid value: "{event.get("type", "")}": has invalid value: '
        yield Cause("FieldValueInvalid", text, "type")
