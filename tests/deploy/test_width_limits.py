"""What the admission policy refuses, its expressions evaluated by a CEL interpreter."""

from copy import deepcopy
from typing import Any

import celpy
import kubernetes_validate
import pytest
import yaml
from celpy import celtypes
from celpy.adapter import json_to_cel

from tests.adapters.kubernetes.worlds import deployment

from .rendered import DEPLOY, Json

POLICY, BINDING = yaml.safe_load_all(
    (DEPLOY / "width-limits" / "validating-admission-policy.yaml").read_text()
)
LIMITS = {"data": {"min": "2", "max": "8", "step": "2"}}
AUTOSCALER = "system:serviceaccount:autoscaler:autoscaler"


def value(expression: str, **names: Json) -> bool:
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    found = program.evaluate({name: json_to_cel(given) for name, given in names.items()})
    assert isinstance(found, celtypes.BoolType)
    return bool(found)


def refused(old: Json, new: Json, who: str = AUTOSCALER) -> list[str]:
    """The messages of the rules that a write breaks."""
    request = {"userInfo": {"username": who}}
    if not all(value(c["expression"], request=request) for c in POLICY["spec"]["matchConditions"]):
        return []
    return [
        rule["message"]
        for rule in POLICY["spec"]["validations"]
        if not value(rule["expression"], object=new, oldObject=old, params=LIMITS)
    ]


def resized(old: Json, width: int) -> Json:
    new = deepcopy(old)
    new["spec"]["roles"][0]["elasticEp"]["width"] = width
    return new


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_policy_fits_the_schemas_of_kubernetes(version):
    for found in (POLICY, BINDING):
        kubernetes_validate.validate(found, version, strict=True)
    assert BINDING["spec"]["policyName"] == POLICY["metadata"]["name"]
    assert BINDING["spec"]["paramRef"]["parameterNotFoundAction"] == "Deny"
    assert POLICY["spec"]["failurePolicy"] == "Fail"


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (4, 4), (6, 8), (2, 3)])
def test_widths_within_the_limits_are_let_through_S18(before, after):
    assert refused(deployment(before), resized(deployment(before), after)) == []


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        (8, 9, "within the limits"),
        (2, 1, "within the limits"),
        (2, 5, "by the step"),
        (8, 5, "by the step"),
    ],
)
def test_widths_beyond_the_limits_are_refused_S18(before, after, rule):
    (message,) = refused(deployment(before), resized(deployment(before), after))
    assert rule in message


def other(new: Json, what: str) -> None:
    role: dict[str, Any] = new["spec"]["roles"][0]
    if what == "arguments":
        role["extraArgs"] = [*role["extraArgs"], "--api-key=stolen"]
    elif what == "command":
        role["command"] = ["sh"]
    elif what == "argument taken away":
        del role["extraArgs"]
    elif what == "role added":
        new["spec"]["roles"].append({"name": "more", "kind": "Server"})
    elif what == "role renamed":
        role["name"] = "another"
    elif what == "model":
        new["spec"]["model"] = {"source": "elsewhere"}
    elif what == "elastic":
        role["elasticEp"]["headInstanceType"] = "larger"


@pytest.mark.parametrize(
    "what",
    [
        "arguments",
        "command",
        "argument taken away",
        "role added",
        "role renamed",
        "model",
        "elastic",
    ],
)
def test_anything_but_a_width_is_refused_S18(what):
    new = resized(deployment(2), 4)
    other(new, what)
    assert any("nothing of the spec but a width" in m for m in refused(deployment(2), new))


@pytest.mark.parametrize("who", ["kubernetes-admin", "system:serviceaccount:team-a:operator"])
def test_others_are_not_held_to_the_autoscalers_limits(who):
    assert refused(deployment(2), resized(deployment(2), 64), who) == []
