"""What a check makes of answers, limits, rivals and errors, without a server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from autoscaler import profiles, settings
from autoscaler.cluster.answers import Gone, Unauthenticated, Unclear
from autoscaler.errors import ConfigError, TargetError, TargetForbidden
from autoscaler.findings import Finding, Level
from autoscaler.model import Capabilities, SetOutcome, SetResult, Tristate, WidthStatus
from autoscaler.policies import hpa
from autoscaler.targets import _preflight, _rivals
from autoscaler.targets._role import Role
from autoscaler.testing import ManualClock
from autoscaler.wiring import checked
from autoscaler.wiring.ceilings import of_gauges
from tests.unit.check import third_party


@pytest.mark.parametrize(
    ("result", "detail", "subject", "level", "cure"),
    [
        (SetResult.APPLIED, "", "permission", Level.OK, ""),
        (SetResult.FORBIDDEN, "403", "permission", Level.ERROR, "grant patch on things"),
        (SetResult.REFUSED, "no", "admission", Level.ERROR, "let admission permit it"),
        (SetResult.CONFLICT, "404 (gone)", "scale subresource", Level.ERROR, "its CRD may not"),
        (SetResult.CONFLICT, "409", "permission", Level.WARNING, "run the check again"),
        (SetResult.AMBIGUOUS, "timed out", "permission", Level.ERROR, "within target.timeout_s"),
    ],
)
def test_each_answer_to_a_dry_run_is_told_with_its_cure(
    result: SetResult, detail: str, subject: str, level: Level, cure: str
) -> None:
    found = _preflight.rehearsed(SetOutcome(result, detail=detail), 4, "patch on things")
    assert (found.subject, found.level) == (subject, level)
    assert cure in found.cure
    assert "width 4" in found.detail


FLAG = "--elastic-ep-max-dp-size"


@pytest.mark.parametrize(
    ("width", "arguments", "engine_max", "known", "level"),
    [
        (2, (f"{FLAG}=8",), 8, False, Level.OK),
        (8, (f"{FLAG}=8",), 8, False, Level.WARNING),
        (9, (f"{FLAG}=8",), 8, False, Level.ERROR),
        (2, (), 64, False, Level.WARNING),
        (2, (), 64, True, Level.OK),
        (2, (), 2, True, Level.WARNING),
        (2, (FLAG, "$(MAX)"), 64, True, Level.ERROR),
    ],
)
def test_the_engines_limit_against_the_width_of_the_role_A22(
    width: int, arguments: tuple[str, ...], engine_max: int, known: bool, level: Level
) -> None:
    role = Role(0, "server", width, arguments)
    found = _preflight.elastic_limit(role, engine_max, version_known=known)
    assert found.level is level, found
    assert bool(found.cure) is (level is not Level.OK)


@pytest.mark.parametrize(
    ("who", "level"),
    [("helm", Level.WARNING), ("horizontal-pod-autoscaler", Level.ERROR), ("KEDA", Level.ERROR)],
)
def test_the_last_writer_is_judged_by_its_name_G33(who: str, level: Level) -> None:
    (found,) = _rivals.last_writer(who)
    assert found.level is level
    assert who in found.detail


@pytest.mark.parametrize("who", ["", "autoscaler"])
def test_nobody_and_we_ourselves_are_no_rivals(who: str) -> None:
    assert not _rivals.last_writer(who)


class Source:
    """A third party's source, without findings of its own."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def read(self) -> None:
        if self.error is not None:
            raise self.error


class Target:
    """A third party's target, without findings of its own; proves its width in the third look."""

    def __init__(self, status: WidthStatus | Exception, can: Capabilities) -> None:
        self.status, self.can, self.looks = status, can, 0

    def read(self) -> WidthStatus:
        self.looks += 1
        if isinstance(self.status, Exception):
            raise self.status
        return self.status

    def capabilities(self) -> Capabilities:
        return self.can


@pytest.fixture
def findings(tmp_path: Path) -> Callable[..., dict[str, Finding]]:
    """``findings(target, source, **entry)``: what is found of them, by subject."""

    def find(target: Target, source: Source | None = None, **entry: object) -> dict[str, Finding]:
        built = source or Source()
        content = {
            "name": "chat",
            "source": {"kind": "tests.unit.check.third_party"},
            "target": {"kind": "tests.unit.check.third_party"},
            "policy": "threshold",
            **entry,
        }
        path = tmp_path / "autoscaler.yaml"
        path.write_text(yaml.safe_dump({"targets": [content]}), encoding="utf-8")
        third_party.PARTS = [target, built]
        found = checked.check(settings.load(path, {}), ManualClock(), 1.0)
        assert all(row.finding.cure for row in found if row.finding.level is not Level.OK)
        return {s: row.finding for row in found for s in row.finding.subject.split(", ")}

    return find


CAN = Capabilities(2, 8, can_shrink=Tristate.YES)


@pytest.mark.parametrize(
    ("status", "level", "said"),
    [
        (WidthStatus(2, 2), Level.OK, "2 serves"),
        (WidthStatus(4, None, detail="waiting"), Level.WARNING, "not proven to serve: waiting"),
        (WidthStatus(4, 2, refusal="too wide"), Level.ERROR, "4 was refused: too wide"),
        (WidthStatus(4, 2, failure="500"), Level.ERROR, "the last resize failed: 500"),
        (WidthStatus(9, 9), Level.ERROR, "9 is not within 2 to 8"),
    ],
)
def test_what_a_target_says_of_its_width(findings, status, level, said) -> None:
    found = findings(Target(status, CAN))
    assert found["width"].level is level
    assert said in found["width"].detail
    assert found["source"].detail == "is readable"


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (TargetForbidden("403"), "grant what the message names"),
        (Gone("404 (gone)"), "correct target.namespace"),
        (Unauthenticated("401"), "give a token"),
        (TargetError("field_missing: x"), "name a target that has this field"),
        (Unclear("timed out"), "give an address that this machine can reach"),
        (ConfigError("x: must be y; got z"), "correct what the message names"),
    ],
)
def test_each_error_of_a_target_has_its_cure(findings, error, cure) -> None:
    found = findings(Target(error, CAN))
    assert found["target"].level is Level.ERROR
    assert found["target"].detail == str(error)
    assert cure in found["target"].cure


def test_a_width_that_takes_a_while_to_prove_is_waited_for(findings) -> None:
    target = Target(TargetError("the width is not known yet: 2 ranks"), CAN)
    assert findings(target)["target"].level is Level.ERROR
    assert target.looks > 3


def test_bounds_on_a_lattice_are_told_as_one(findings) -> None:
    can = Capabilities(2, 8, valid_widths=(2, 4, 8), can_shrink=Tristate.NO)
    found = findings(Target(WidthStatus(8, 8), can))
    assert found["guards"].detail == "there is no width to go to from 8"
    found = findings(Target(WidthStatus(8, 8), can), guards={"min_width": 5, "max_width": 7})
    assert found["guards"].level is Level.ERROR
    assert "2, 4, 8" in found["guards"].detail


def test_a_source_that_cannot_be_read_is_an_error(findings) -> None:
    found = findings(Target(WidthStatus(2, 2), CAN), Source(ConfigError("x: must be y; got z")))
    assert found["source"].level is Level.ERROR


def test_the_configurations_own_warnings_and_thresholds_are_findings_T04_M29(
    findings, tmp_path
) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("kind: threshold\nttft_high_ratio: 9.0\n", encoding="utf-8")
    target = Target(WidthStatus(2, 2), CAN)
    found = findings(target, policy="p.yaml", guards={"settle_s": 1})
    assert found["policy.ttft_high_ratio"].level is Level.WARNING
    assert "at most 6" in found["policy.ttft_high_ratio"].cure
    assert found["targets[0].guards.settle_s"].level is Level.WARNING
    assert "autoscaler.yaml" in found["targets[0].guards.settle_s"].cure


@pytest.mark.parametrize(
    ("signal", "target", "per_width", "told"),
    [
        ("running", 10.0, True, "10 is more than running ever shows, 8: nothing would grow"),
        ("running", 7.0, True, None),
        ("running", 10.0, False, None),  # of the whole deployment
        ("kv_cache_usage_ratio", 80.0, False, "80 is more than kv_cache_usage_ratio ever shows"),
        ("queue_depth", 1e6, True, None),  # has no ceiling
    ],
)
def test_a_target_above_what_the_gauge_shows_at_saturation_is_warned_of_M29(
    signal, target, per_width, told
) -> None:
    profile = replace(profiles.load("assumed-wide"), slots_per_rank=8)
    params = hpa.Params(signal=signal, target=target, per_width=per_width)
    found = list(of_gauges(params, profile))
    assert [f.level for f in found] == ([] if told is None else [Level.WARNING])
    assert told is None or told in found[0].detail
    also = hpa.Params(also=({"signal": signal, "target": target, "per_width": per_width},))
    keys = [f.subject for f in of_gauges(also, replace(profile, slots_per_rank=16))]
    assert keys == (["policy.also[0].target"] if signal == "kv_cache_usage_ratio" else [])


def test_the_check_holds_targets_against_the_profile_M29(findings, tmp_path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("kind: hpa\nsignal: running\ntarget: 20.0\n", encoding="utf-8")
    target = Target(WidthStatus(2, 2), CAN)
    found = findings(target, policy="p.yaml", profile="assumed-wide")
    assert found["policy.target"].level is Level.WARNING
    assert "ever shows, 16" in found["policy.target"].detail
