"""The preflight check: everything that a run depends on, looked at once and changed nowhere.

Sources and targets say themselves what they find (``findings``); what follows from two parts of
the configuration together is found here.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from autoscaler.cluster.answers import Gone, Unauthenticated
from autoscaler.errors import AutoscalerError, ConfigError, TargetForbidden
from autoscaler.findings import Finding, Level
from autoscaler.guards import Guards
from autoscaler.model import Capabilities, Tristate, WidthStatus
from autoscaler.ports import Clock, MetricsSource, SourceContext, Target
from autoscaler.settings import PluginChoice, Settings, TargetSettings
from autoscaler.wiring.ceilings import of_gauges

SCHEMA = "autoscaler.check/v1"

_LOOK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Found:
    """One row of the check: ``target`` is the name of an entry of ``targets``; "": all of them."""

    target: str
    finding: Finding


def check(settings: Settings, clock: Clock, patience_s: float = 10.0) -> list[Found]:
    """Look at everything; nothing is written, permissions are tried by dry runs.

    Args:
        settings: what a run would go by.
        clock: for patience only.
        patience_s: how long a target may take to prove the width that it serves at, s, >= 0.

    Returns:
        Every finding, good ones included; secrets of the configuration are taken out.
    """
    found = [Found("", finding) for finding in _of_all(settings)]
    for target in settings.targets:
        looked = _Check(target, clock, patience_s)
        found += [Found(target.name, finding) for finding in _merged(looked.findings())]
    clean = settings.redaction.text
    return [replace(f, finding=replace(f.finding, detail=clean(f.finding.detail))) for f in found]


def document(found: list[Found]) -> dict[str, Any]:
    """JSON-ready."""
    rows = []
    for entry in found:
        row = {f.name: str(getattr(entry.finding, f.name)) for f in fields(Finding)}
        rows.append({"target": entry.target, **row})
    return {"schema": SCHEMA, "errors": errors(found), "findings": rows}


def errors(found: list[Found]) -> int:
    """How many findings are errors."""
    return sum(entry.finding.level is Level.ERROR for entry in found)


class _Check:
    """One target's."""

    def __init__(self, settings: TargetSettings, clock: Clock, patience_s: float) -> None:
        self._settings, self._clock, self._patience_s = settings, clock, patience_s

    def findings(self) -> Iterator[Finding]:
        width, capabilities = None, None
        target: Target | None = None
        try:
            target = self._settings.target.module.build(self._settings.target.params)
            width = self._width(target)
            capabilities = target.capabilities()
        except AutoscalerError as error:
            yield _unreadable("target", error, _target_cure(error))
        else:
            yield from _of_width(width, capabilities)
            yield from _own(target, "target", _target_cure)
            yield from self._of_limits(width, capabilities)
        finally:
            getattr(target, "close", lambda: None)()
        yield from self._of_source(None if width is None else width.effective)

    def _width(self, target: Target) -> WidthStatus:
        """The width, if need be by the last of several looks: proving one may take a while."""
        clock, until_s = self._clock, self._clock.now_s() + self._patience_s
        while True:
            try:
                status = target.read()
            except ConfigError:
                raise
            except AutoscalerError as error:
                # A vLLM knows no width before its first proof; nobody is granted a permission soon.
                settled = isinstance(error, TargetForbidden | Gone | Unauthenticated)
                if settled or "not known yet" not in str(error) or clock.now_s() >= until_s:
                    raise
            else:
                unproven = status.effective is None and status.failure is None
                if not unproven or clock.now_s() >= until_s:
                    return status
            clock.sleep(_LOOK_AGAIN_S)

    def _of_source(self, effective: int | None) -> Iterator[Finding]:
        settings = self._settings
        try:
            context = SourceContext(settings.steering.slo, self._clock, lambda: effective)
            source: MetricsSource = settings.source.module.build(settings.source.params, context)
        except AutoscalerError as error:
            yield _unreadable("source", error, _source_cure(error, settings.source))
            return
        if hasattr(source, "findings"):
            yield from _own(source, "source", lambda error: _source_cure(error, settings.source))
        else:
            try:
                source.read()
                yield Finding(Level.OK, "source", "is readable")
            except AutoscalerError as error:
                yield _unreadable("source", error, _source_cure(error, settings.source))
        yield from self._of_objective()

    def _of_objective(self) -> Iterator[Finding]:
        """M29: what no measured value ever reaches."""
        slo, params = self._settings.steering.slo, self._settings.steering.policy.params
        if slo.failure_penalty_s <= slo.ttft_p95_s:
            text = f"{slo.failure_penalty_s:g} s is within the objective of {slo.ttft_p95_s:g} s"
            cure = "set it above slo.ttft_p95_s: a failed request would count as a good one"
            yield Finding(Level.ERROR, "slo.failure_penalty_s", text, cure)
        ratio = getattr(params, "ttft_high_ratio", None)
        if isinstance(ratio, float) and ratio * slo.ttft_p95_s > slo.failure_penalty_s:
            text = f"{ratio:g} of the objective lies above the penalty of a failed request"
            cure = f"set it to at most {slo.failure_penalty_s / slo.ttft_p95_s:.3g}"
            yield Finding(Level.WARNING, "policy.ttft_high_ratio", text, cure)
        yield from of_gauges(params, self._settings.steering.profile)

    def _of_limits(self, width: WidthStatus, capabilities: Capabilities) -> Iterator[Finding]:
        """The configured bounds against what the target can do, and against the profile."""
        guards, profile = self._settings.steering.guards, self._settings.steering.profile
        reach = Guards(guards).reach(capabilities)
        low, high = reach.min_width, reach.max_width
        if low > high:
            text = f"no width is within both the bounds and the target's {_span(capabilities)}"
            cure = "set guards.min_width, max_width and max_gpus to permit one of those"
            yield Finding(Level.ERROR, "guards", text, cure)
            return
        for key, beyond in (
            ("min_width", guards.min_width > capabilities.max_width),
            ("max_width", (guards.max_width or 0) > capabilities.max_width),
        ):
            if beyond:
                given, most = getattr(guards, key), capabilities.max_width
                text = f"{given} is above the highest width of the target, {most}"
                cure = f"set it to {most}, or raise the target's own limit"
                yield Finding(Level.WARNING, f"guards.{key}", text, cure)
        if not low <= width.desired <= high:
            text = f"the desired width {width.desired} is not within {low} to {high}"
            cure = "expect a resize in the first ticks, or set guards.min_width and max_width"
            yield Finding(Level.WARNING, "guards", text, cure)
        elif low == high or (width.desired == high and capabilities.can_shrink is Tristate.NO):
            text = f"there is no width to go to from {width.desired}"
            cure = "raise guards.max_width, or the target's own limit"
            yield Finding(Level.WARNING, "guards", text, cure)
        else:
            yield Finding(Level.OK, "guards", f"widths {low} to {high} can be asked for")
        if profile is not None and high > profile.known_widths[-1]:
            text = f"width {high} is beyond the widest of the profile, {profile.known_widths[-1]}"
            cure = f"capture it, or set guards.max_width to {profile.known_widths[-1]}"
            yield Finding(Level.WARNING, "profile", text, cure)


def _of_all(settings: Settings) -> Iterator[Finding]:
    """What the configuration itself says; its errors are no findings, they make it unusable."""
    for warning in settings.warnings:
        where, _, rule = warning.rpartition(": ")
        file, _, key = where.rpartition(": ")
        yield Finding(Level.WARNING, key, rule, f"change it in {file} as its rule says")
    for target in settings.targets:
        choices = target.source, target.target
        most_s = sum(getattr(choice.params, "timeout_s", None) or 0.0 for choice in choices)
        if most_s > settings.tick_s:
            # Each is shorter than a tick, or the configuration would be unusable.
            text = f"a tick of {target.name} takes up to {most_s:g} s where all calls time out"
            cure = f"lower source.timeout_s and target.timeout_s to {settings.tick_s:g} s in all"
            skipped = f"{text}; ticks that are due meanwhile are skipped"
            yield Finding(Level.OK, "tick_s", skipped, f"not to skip any, {cure}")
    folder = None if settings.decisions is None else settings.decisions.parent
    if folder is not None and not os.access(folder, os.W_OK | os.X_OK):
        cure = "make the folder, and let this user write in it"
        text = f"{folder}: must be a folder that can be written in"
        yield Finding(Level.ERROR, "decisions.path", text, cure)


def _of_width(width: WidthStatus, capabilities: Capabilities) -> Iterator[Finding]:
    """What the target says of itself."""
    if width.refusal is not None:
        cure = "take back the width that was refused, or deploy anew"
        yield Finding(
            Level.ERROR, "width", f"width {width.desired} was refused: {width.refusal}", cure
        )
    elif width.failure is not None:
        cure = "see to the engine: the next resize starts from what is left of this one"
        yield Finding(Level.ERROR, "width", f"the last resize failed: {width.failure}", cure)
    elif width.effective is None:
        cure = "wait for the resize to end, or see why it does not"
        text = f"desired {width.desired}, not proven to serve: {width.detail}"
        yield Finding(Level.WARNING, "width", text, cure)
    else:
        text = f"{width.effective} serves, {width.desired} is desired"
        yield Finding(Level.OK, "width", text)
    if not capabilities.permits(width.desired):
        text = f"the desired width {width.desired} is not within {_span(capabilities)}"
        cure = "correct the target's limits, or the width in its spec"
        yield Finding(Level.ERROR, "width", text, cure)


def _own(part: object, name: str, cure: Callable[[AutoscalerError], str]) -> Iterator[Finding]:
    """What a source or target says itself, where it says anything."""
    look = getattr(part, "findings", None)
    if look is None:
        return
    try:
        yield from look()
    except AutoscalerError as error:
        yield _unreadable(name, error, cure(error))


def _unreadable(subject: str, error: AutoscalerError, cure: str) -> Finding:
    return Finding(Level.ERROR, subject, str(error), cure)


def _target_cure(error: AutoscalerError) -> str:
    text = str(error)
    if isinstance(error, ConfigError):
        return "correct what the message names"
    if isinstance(error, TargetForbidden):
        return "grant what the message names: get, for what is read"
    if isinstance(error, Gone):
        return "correct target.namespace, target.name and target.api_version, or deploy it first"
    if isinstance(error, Unauthenticated):
        return "give a token or certificate that the server knows: target.kubeconfig"
    if "scaling: must not be there" in text:
        return "take the scaling out of the service, or do not steer it from here"
    if "field_missing" in text:
        return "name a target that has this field: check kind, name and role"
    return "give an address that this machine can reach, and see that the server is well"


def _source_cure(error: AutoscalerError, source: PluginChoice) -> str:
    text = str(error)
    if isinstance(error, ConfigError):
        return "correct what the message names"
    if "HTTP 401" in text or "HTTP 403" in text:
        return "give credentials that may read: source.bearer_token_file, or a user and password"
    key = "source.url" if hasattr(source.params, "url") else "source.urls"
    if "HTTP 404" in text or "must be" in text:
        return f"set {key} to the server that is meant, its path prefix included"
    return f"set {key} to an address that this machine can reach, and see that the server is up"


def _span(capabilities: Capabilities) -> str:
    if capabilities.valid_widths is not None:
        return ", ".join(str(width) for width in capabilities.valid_widths)
    return f"{capabilities.min_width} to {capabilities.max_width}"


def _merged(findings: Iterator[Finding]) -> list[Finding]:
    """With one row for findings that differ in their subject only: a wrong label, say."""
    rows: dict[tuple[Level, str, str], list[str]] = {}
    for finding in findings:
        key = finding.level, finding.detail, finding.cure
        subjects = rows.setdefault(key, [])
        if finding.subject not in subjects:
            subjects.append(finding.subject)
    return [Finding(level, ", ".join(s), what, cure) for (level, what, cure), s in rows.items()]
