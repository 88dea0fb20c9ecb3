"""``autoscaler.yaml`` and the environment to frozen settings.

Every problem names file (or variable), key path, rule and the value received, one line each, and
never shows a secret. Configuration is trusted input: a ``kind`` selects code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from autoscaler.errors import ConfigError
from autoscaler.policy_file import read_yaml
from autoscaler.redaction import Redaction, masked
from autoscaler.settings import environment
from autoscaler.settings.election import LeaderElection, lease_problems
from autoscaler.settings.problems import problems_of
from autoscaler.settings.target import FileSet, Section, TargetSection, TargetSettings, resolve
from autoscaler.settings.where import Where, dotted

_PORT_MAX = 65_535
_DECISION_LOG_MIN_BYTES = 2**20  # a few minutes' worth: less is a mistaken unit


class SettingsError(ConfigError):
    """The settings are unusable; ``problems`` has one line each, ``files`` what was read."""

    def __init__(self, problems: list[str], files: tuple[Path, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.files = files


class Decisions(Section):
    """Where the decision log is appended to; ``path`` None: nowhere.

    A file that would get longer than ``max_bytes`` becomes ``PATH.1``, in the place of the one
    before; None: it grows, and something else rotates it.
    """

    path: str | None = None
    max_bytes: Annotated[int, Field(ge=_DECISION_LOG_MIN_BYTES)] | None = None


class TelemetrySection(Section):
    """Where /metrics, /healthz and /readyz are served; port 0: any free one."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=_PORT_MAX)] = 9464


class EventsSection(Section):
    """Whether Kubernetes Events tell of changes, for targets that are objects."""

    enabled: bool = True


class MemorySection(Section):
    """Where the memory of targets is kept whose own object takes none.

    ``path``: a file. ``namespace``: of the ConfigMap ``autoscaler-memory``, reached by
    ``kubeconfig`` and ``context``. Neither: in a Pod the ConfigMap in its own namespace, elsewhere
    nowhere.
    """

    path: str | None = None
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    kubeconfig: str | None = None
    context: str | None = None


Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class ObjectsSection(Section):
    """Whether WidthAutoscaler objects declare targets too, and where they are looked for.

    ``namespaces`` empty: the program's own. ``credentials``: folder with one sub-folder a
    namespace, in which are the files that its objects may name; None: they may name none.
    """

    enabled: bool = False
    namespaces: list[Namespace] = Field(default_factory=list)
    kubeconfig: str | None = None
    context: str | None = None
    timeout_s: Annotated[float, Field(gt=0)] = 4.0
    credentials: str | None = None


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
    targets: list[TargetSection] = Field(default_factory=list)
    decisions: Decisions = Decisions()
    telemetry: TelemetrySection = TelemetrySection()
    events: EventsSection = EventsSection()
    memory: MemorySection = MemorySection()
    leader_election: LeaderElection = LeaderElection()
    log: Log = Log()
    objects: ObjectsSection = ObjectsSection()

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
        targets: what is steered, each name once.
        objects: whether and where WidthAutoscaler objects declare further targets.
        decisions: path of the decision log; None: none is written.
        decisions_max_bytes: longest that it may get; None: no limit.
        telemetry: where the program's own series are served.
        events: whether Kubernetes Events tell of changes.
        memory: where memories are kept; its path is whole.
        leader_election: whether and how one of several processes is made the one that writes.
        log: form and level of the run's log.
        warnings: what is permitted and still looks like a mistake, one line each.
        effective: the merged configuration with secrets masked, for people.
        redaction: takes this configuration's secrets out of texts.
        files: every file that was read, the configuration first.
        lenient: names of the targets that, if they cannot be built, are left out or stay as they
            were, without holding up the rest: those that objects declare.
    """

    tick_s: float
    targets: tuple[TargetSettings, ...]
    objects: ObjectsSection
    decisions: Path | None
    decisions_max_bytes: int | None
    telemetry: TelemetrySection
    events: EventsSection
    memory: MemorySection
    leader_election: LeaderElection
    log: Log
    warnings: tuple[str, ...]
    effective: Mapping[str, Any]
    redaction: Redaction
    files: tuple[Path, ...]
    lenient: frozenset[str] = frozenset()


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
        content = read_yaml(path)
    except ConfigError as error:
        raise SettingsError([str(error)], files.read) from error
    merged, origins, problems = environment.overlay(_File, content, environ)
    redaction = Redaction(merged)
    where = Where(str(path), origins)
    try:
        checked = _File(**merged)
    except (ValidationError, TypeError) as error:
        found = [str(error)]
        if isinstance(error, ValidationError):
            found = problems_of(error, _File, where)
        lines = [redaction.text(line) for line in problems + found]
        raise SettingsError(lines, files.read) from None  # the cause holds every input
    if not checked.targets and not checked.objects.enabled:
        rule = "must have at least one entry, unless objects.enabled is set; got none"
        problems.append(f"{where(('targets',))}: {rule}")
    if checked.memory.path is not None and checked.memory.namespace is not None:
        rule = "must not be given together with memory.namespace"
        problems.append(f"{where(('memory', 'path'))}: {rule}; got {checked.memory.path!r}")
    targets, warnings = [], []
    for i, section in enumerate(checked.targets):
        resolved = resolve(section, ("targets", i), checked.tick_s, where, files)
        targets.append(resolved.settings)
        problems += resolved.problems
        warnings += resolved.warnings
    problems += _duplicates(checked, targets, where)
    problems += lease_problems(checked.leader_election, checked.tick_s, targets, where)
    if problems:
        raise SettingsError([redaction.text(line) for line in problems], files.read)
    log = checked.decisions.path
    return Settings(
        checked.tick_s,
        tuple(target for target in targets if target is not None),
        checked.objects,
        None if log is None else files.beside(log),
        checked.decisions.max_bytes,
        checked.telemetry,
        checked.events,
        _beside(checked.memory, files),
        checked.leader_election,
        checked.log,
        tuple(redaction.text(line) for line in warnings),
        masked(checked.model_dump()),
        redaction,
        files.read,
    )


def _beside(memory: MemorySection, files: FileSet) -> MemorySection:
    if memory.path is None:
        return memory
    return memory.model_copy(update={"path": str(files.beside(memory.path))})


def _duplicates(
    checked: _File, targets: Sequence[TargetSettings | None], where: Where
) -> list[str]:
    """Two entries of one name, two that steer one deployment, or its roles by one signal."""
    problems = []
    names: dict[str, int] = {}
    for i, (section, target) in enumerate(zip(checked.targets, targets, strict=True)):
        first = names.setdefault(section.name, i)
        if first != i:
            other = dotted(("targets", first))
            here = where(("targets", i, "name"))
            problems.append(f"{here}: must differ from {other}.name; got {section.name!r}")
            continue
        for j, before in enumerate(targets[:i]):
            if target is None or before is None:
                continue
            other = dotted(("targets", j))
            if target.steers_same_as(before):
                here = where(("targets", i, "target"))
                rule = f"must not be steered by {other} too; got the same target"
            elif target.hears_same_as(before):
                here = where(("targets", i, "source"))
                rule = f"must select the signals of its own role; got those of {other}"
            else:
                continue
            problems.append(f"{here}: {rule}")
            break
    return problems
