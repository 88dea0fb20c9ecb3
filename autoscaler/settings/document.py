"""``autoscaler.yaml`` and the environment to frozen settings.

Every problem names file (or variable), key path, rule and the value received, one line each, and
never shows a secret. Configuration is trusted input: a ``kind`` selects code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from autoscaler.errors import ConfigError
from autoscaler.policy_file import read_yaml
from autoscaler.redaction import MASK, Redaction, is_secret, masked
from autoscaler.settings import environment
from autoscaler.settings.target import FileSet, Section, TargetSection, TargetSettings, resolve
from autoscaler.settings.where import Where, dotted

_PORT_MAX = 65_535


class SettingsError(ConfigError):
    """The settings are unusable; ``problems`` has one line each, ``files`` what was read."""

    def __init__(self, problems: list[str], files: tuple[Path, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.files = files


class Decisions(Section):
    """Where the decision log is appended to; ``path`` None: nowhere."""

    path: str | None = None


class TelemetrySection(Section):
    """Where /metrics, /healthz and /readyz are served; port 0: any free one."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=_PORT_MAX)] = 9464


class EventsSection(Section):
    """Whether Kubernetes Events tell of changes, for targets that are objects."""

    enabled: bool = True


class LeaderElection(Section):
    """Whether only one of several processes may write."""

    enabled: bool = False


class Log(Section):
    """How the log of the run looks like."""

    format: Literal["json", "text"] = "json"
    level: Literal["debug", "info", "warning", "error"] = "info"


class _File(BaseSettings):
    """The whole file, merged with the environment."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    tick_s: Annotated[float, Field(gt=0)] = 5.0
    targets: Annotated[list[TargetSection], Field(min_length=1)]
    decisions: Decisions = Decisions()
    telemetry: TelemetrySection = TelemetrySection()
    events: EventsSection = EventsSection()
    leader_election: LeaderElection = LeaderElection()
    log: Log = Log()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what ``environment.overlay`` has merged: the library lets mistyped names pass."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that ``autoscaler run`` goes by.

    Args:
        tick_s: seconds between two ticks, > 0.
        targets: what is steered, at least one, each name once.
        decisions: path of the decision log; None: none is written.
        telemetry: where the program's own series are served.
        events: whether Kubernetes Events tell of changes.
        log: form and level of the run's log.
        warnings: what is permitted and still looks like a mistake, one line each.
        effective: the merged configuration with secrets masked, for people.
        redaction: takes this configuration's secrets out of texts.
        files: every file that was read, the configuration first.
    """

    tick_s: float
    targets: tuple[TargetSettings, ...]
    decisions: Path | None
    telemetry: TelemetrySection
    events: EventsSection
    log: Log
    warnings: tuple[str, ...]
    effective: Mapping[str, Any]
    redaction: Redaction
    files: tuple[Path, ...]


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """The settings of one configuration file; the environment has precedence.

    Args:
        path: YAML file. Relative paths in it, also those in the environment, are relative to it.
        environ: the environment, e.g. ``os.environ``.

    Raises:
        SettingsError: unusable; has every problem, not only the first.
    """
    files = FileSet(path)
    try:
        content = _read(path)
    except ConfigError as error:
        raise SettingsError([str(error)], files.read) from error
    merged, origins, problems = environment.overlay(_File, content, environ)
    redaction = Redaction(merged)
    where = Where(str(path), origins)
    try:
        checked = _File(**merged)
    except (ValidationError, TypeError) as error:
        found = _problems(error, where) if isinstance(error, ValidationError) else [str(error)]
        lines = [redaction.text(line) for line in problems + found]
        raise SettingsError(lines, files.read) from None  # the cause holds every input
    if checked.leader_election.enabled:
        problems.append(
            where(("leader_election", "enabled")) + ": must be false, it is not built in yet; got "
            "True"
        )
    targets, warnings = [], []
    for i, section in enumerate(checked.targets):
        resolved = resolve(section, ("targets", i), checked.tick_s, where, files)
        targets.append(resolved.settings)
        problems += resolved.problems
        warnings += resolved.warnings
    problems += _duplicates(checked, where)
    if problems:
        raise SettingsError([redaction.text(line) for line in problems], files.read)
    log = checked.decisions.path
    return Settings(
        checked.tick_s,
        tuple(target for target in targets if target is not None),
        None if log is None else files.beside(log),
        checked.telemetry,
        checked.events,
        checked.log,
        tuple(redaction.text(line) for line in warnings),
        masked(checked.model_dump()),
        redaction,
        files.read,
    )


def _read(path: Path) -> dict[str, Any]:
    """The file's content. A YAML error's own text quotes the line, and with it what is secret."""
    try:
        return read_yaml(path)
    except ConfigError as error:
        cause = error.__cause__
        if not isinstance(cause, yaml.YAMLError):
            raise
        mark = getattr(cause, "problem_mark", None)
        at = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        problem = str(getattr(cause, "problem", None) or "not readable as YAML")
        if "is given twice" not in problem:  # that one names a key
            head, quote, _ = problem.partition("'")
            problem = head.rstrip() + (f" {MASK}" if quote else "")
        raise ConfigError(f"{path}{at}: must be valid YAML; {problem}") from None


def _problems(error: ValidationError, where: Where) -> list[str]:
    return [_problem(found, where) for found in error.errors(include_url=False)]


def _problem(found: Mapping[str, Any], where: Where) -> str:
    path: tuple[str | int, ...] = found["loc"]
    value, kind = found["input"], found["type"]
    if kind == "missing":
        return f"{where(path)}: must be given; got nothing"
    if kind == "extra_forbidden":
        allowed = ", ".join(_keys(path[:-1]))
        return f"{where(path)}: unknown key; must be one of {allowed}"
    if kind == "too_short":
        return f"{where(path)}: must have at least one entry; got {value!r}"
    rule = found["msg"].replace("Input should be", "must be").replace("String should", "must")
    if any(is_secret(str(step)) for step in path):
        value = MASK
    shown = repr(masked(value))
    return f"{where(path)}: {rule}; got {shown if len(shown) <= 120 else shown[:117] + '...'}"


def _keys(path: tuple[str | int, ...]) -> list[str]:
    """The keys that are allowed at a place of the file."""
    model: Any = _File
    for step in path:
        if isinstance(step, int):
            continue
        model = model.model_fields[step].annotation
        model = TargetSection if step == "targets" else model
    return list(model.model_fields)


def _duplicates(checked: _File, where: Where) -> list[str]:
    """Two entries of one name, or two that steer one deployment."""
    problems = []
    names: dict[str, int] = {}
    steered: list[dict[str, Any]] = []
    for i, target in enumerate(checked.targets):
        first = names.setdefault(target.name, i)
        if first != i:
            other = dotted(("targets", first))
            here = where(("targets", i, "name"))
            problems.append(f"{here}: must differ from {other}.name; got {target.name!r}")
        elif target.target in steered:
            other = dotted(("targets", steered.index(target.target)))
            here = where(("targets", i, "target"))
            problems.append(f"{here}: must not be steered by {other} too; got the same target")
        steered.append(target.target)
    return problems
