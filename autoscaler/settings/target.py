"""One entry of ``targets``: plug-ins, objective, policy and limits, each checked by its owner.

Collects every problem of the entry instead of stopping at the first.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field

from autoscaler import limits, plugins, policy_file, profiles
from autoscaler.convergence import Params as ConvergenceParams
from autoscaler.errors import ConfigError
from autoscaler.model import Slo
from autoscaler.parameters import from_mapping, require_number
from autoscaler.policy_file import PolicyChoice
from autoscaler.profile import Profile
from autoscaler.redaction import MASK, is_secret
from autoscaler.settings.environment import EnvironmentText
from autoscaler.settings.where import KeyPath, Where
from autoscaler.steering import Steering

_NAMING = (
    *("kubeconfig", "context", "namespace", "name", "workload"),
    *("url", "application", "deployment", "of"),
)
_KEY = re.compile(r"(?:(?:guards|convergence)\.)?(\w+): ")


class Section(BaseModel):
    """Part of the file: exact types, no other keys, inputs never in messages."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class TargetSection(Section):
    """One entry as the file has it; the plug-ins check their own parts."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
    source: dict[str, Any]
    target: dict[str, Any]
    policy: str
    policy_params: dict[str, Any] = {}
    slo: dict[str, Any] = {}
    shadow: list[str] = []
    guards: dict[str, Any] = {}
    convergence: dict[str, Any] = {}
    profile: str | None = None
    pause: Literal["all", "up", "down"] | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """A source or target that was chosen but not built yet: its kind and its ``Params``."""

    group: str
    kind: str
    params: Any

    @property
    def module(self) -> ModuleType:
        """The plug-in's module; its ``build`` makes the object."""
        return plugins.find(self.group, self.kind)

    @property
    def means(self) -> tuple[Any, ...]:
        """What it is about, not how it is gone about: its kind and the parameters that name it."""
        named = {key: getattr(self.params, key) for key in _NAMING if hasattr(self.params, key)}
        if not named:
            return self.kind, self.params
        if isinstance(named.get("url"), str):
            named["url"] = named["url"].rstrip("/")
        return self.kind, *named.items()


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """One target.

    Args:
        name: unique, for logs and labels.
        source: where its metrics come from.
        target: the deployment whose width is steered.
        steering: how it is decided.
        shadows: how it would be decided otherwise: recorded and exported, never written.
        dry_run: whether the target is read and never written.
    """

    name: str
    source: PluginChoice
    target: PluginChoice
    steering: Steering
    shadows: tuple[Steering, ...] = ()
    dry_run: bool = False

    def steers_same_as(self, other: "TargetSettings") -> bool:
        """Whether both steer one deployment, as far as their parameters tell.

        A role that is not named may be any.
        """
        roles = [getattr(t.target.params, "role", None) for t in (self, other)]
        return self.target.means == other.target.means and (None in roles or roles[0] == roles[1])

    def hears_same_as(self, other: "TargetSettings") -> bool:
        """Whether both steer one deployment, or roles of one, by the very same signals.

        Then one role's load moves the other, and a role whose own load shows nowhere never scales.
        """
        one_deployment = self.target.means == other.target.means
        return one_deployment and self.source == other.source

    def write_s(self, tick_s: float) -> float:
        """The longest that one write lasts, s: what the target says, else a whole tick."""
        timeout_s: float | None = getattr(self.target.params, "timeout_s", None)
        return tick_s if timeout_s is None else timeout_s


@dataclass(slots=True)
class Resolved:
    """What became of one entry; ``settings`` None: it has problems."""

    settings: TargetSettings | None = None
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class FileSet:
    """Every file that a configuration consists of.

    Args:
        path: the configuration file itself.
    """

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._read = [path]

    @property
    def read(self) -> tuple[Path, ...]:
        """The files that were asked for so far, the configuration first."""
        return tuple(dict.fromkeys(self._read))

    def beside(self, text: str) -> Path:
        """A path, relative to the configuration's folder."""
        return self._folder / text

    def named(self, text: str) -> str:
        """A file's whole path, or the shipped name that the text is."""
        if not text.endswith((".yaml", ".yml")) and len(Path(text).parts) == 1:
            return text
        self._read.append(self.beside(text))
        return str(self.beside(text))


def resolve(
    section: TargetSection, at: KeyPath, tick_s: float, where: Where, files: FileSet
) -> Resolved:
    """Check one entry and put it together.

    Args:
        section: the entry.
        at: its key path.
        tick_s: seconds between two ticks.
        where: names key paths in messages.
        files: what relative paths are relative to; notes every file.
    """
    return _Resolver(section, at, tick_s, where, files).resolve()


class _Resolver:
    def __init__(
        self, section: TargetSection, at: KeyPath, tick_s: float, where: Where, files: FileSet
    ) -> None:
        self._section, self._at, self._tick_s = section, at, tick_s
        self._where, self._files = where, files
        self._found = Resolved()

    def resolve(self) -> Resolved:
        section, found = self._section, self._found
        source = self._plugin("sources", "source", section.source)
        target = self._plugin("targets", "target", section.target)
        slo = self._slo()
        given = dict(section.guards)
        if slo is not None:  # metrics speak of the resize as long as it is in their window
            for key in ("settle_s", "scale_down_window_s", "cooldown_down_s"):
                given.setdefault(key, max(getattr(limits.Params(), key), slo.window_s))
        guards = self._part(limits.Params, given, "guards")
        convergence = self._part(ConvergenceParams, section.convergence, "convergence")
        profile = self._profile()
        if slo is not None and guards is not None:
            self._check_windows(slo, guards, source)
        if slo is None or guards is None or convergence is None:
            return found

        def steering(name: str, params: Mapping[str, Any], *at: str | int) -> Steering | None:
            try:
                choice = self._tuned(policy_file.load(self._files.named(name)), params)
                if choice is None:
                    return None
                made = Steering(
                    choice,
                    slo,
                    self._tick_s,
                    guards,
                    convergence,
                    profile,
                    profile_name,
                    pause=section.pause,
                )
                made.build_policy()
            except ConfigError as error:
                self._problem(str(error), *at)
                return None
            return made

        profile_name = None if section.profile is None else self._files.named(section.profile)
        live = steering(section.policy, section.policy_params, "policy")
        shadows = [steering(name, {}, "shadow", i) for i, name in enumerate(section.shadow)]
        self._check_names(shadows)
        if found.problems or source is None or target is None or live is None:
            return found
        kept = tuple(shadow for shadow in shadows if shadow is not None)
        found.settings = TargetSettings(section.name, source, target, live, kept, section.dry_run)
        return found

    def _plugin(self, group: str, key: str, given: dict[str, Any]) -> PluginChoice | None:
        given = dict(given)
        kind = given.pop("kind", None)
        if not isinstance(kind, str):
            known = ", ".join(plugins.names(group))
            self._problem(f"must be one of {known}; got {kind!r}", key, "kind")
            return None
        try:
            module = plugins.find(group, str(kind))
        except ConfigError as error:
            self._problem(str(error).removeprefix(f"{group} kind: "), key, "kind")
            return None
        if not hasattr(module, "Params") or not hasattr(module, "build"):
            self._problem(f"must have Params and build; got {kind!r}", key, "kind")
            return None
        params = self._part(module.Params, given, key)
        if params is None:
            return None
        timeout_s = getattr(params, "timeout_s", None)
        if timeout_s is not None and timeout_s >= self._tick_s:
            # A call that outlasts the tick delays the next decision.
            rule = f"must be shorter than tick_s ({self._tick_s:g})"
            self._problem(f"{rule}; got {timeout_s:g}", key, "timeout_s")
        if getattr(params, "tls_insecure_skip_verify", False):
            self._warning("any certificate is trusted", key, "tls_insecure_skip_verify")
        return PluginChoice(group, str(kind), params)

    def _tuned(self, choice: PolicyChoice, given: Mapping[str, Any]) -> PolicyChoice | None:
        """The policy with other values for some of its parameters; None: they have a problem."""
        if not given:
            return choice
        present = {f.name: getattr(choice.params, f.name) for f in fields(choice.params)}
        params = self._part(type(choice.params), {**present, **given}, "policy_params")
        return None if params is None else replace(choice, params=params)

    def _slo(self) -> Slo | None:
        slo = self._part(Slo, self._section.slo, "slo")
        if slo is None:
            return None
        before = len(self._found.problems)
        for key in ("ttft_p95_s", "itl_p95_s", "window_s", "failure_penalty_s"):
            try:
                require_number(key, getattr(slo, key), 0, above=True)
            except ConfigError as error:
                self._problem(str(error).removeprefix(f"{key}: "), "slo", key)
        return slo if len(self._found.problems) == before else None

    def _profile(self) -> Profile | None:
        if self._section.profile is None:
            return None
        try:
            return profiles.load(self._files.named(self._section.profile))
        except ConfigError as error:
            self._problem(str(error), "profile")
            return None

    def _part(self, cls: type[Any], given: Mapping[str, Any], key: str) -> Any:
        """An instance of a frozen parameter class; None: it has a problem."""
        hints = get_type_hints(cls)
        values = {name: _typed(value, hints.get(name, Any)) for name, value in given.items()}
        try:
            return from_mapping(cls, values, key)
        except ConfigError as error:
            text = str(error).removeprefix(f"{key}: ")
            match = _KEY.match(text)
            if match is None:
                self._problem(text, key)
            else:
                rule, got, _ = text[match.end() :].partition("; got ")
                secret = got and is_secret(match[1])
                self._problem(
                    f"{rule}; got {MASK}" if secret else text[match.end() :], key, match[1]
                )
            return None

    def _check_windows(self, slo: Slo, guards: limits.Params, source: PluginChoice | None) -> None:
        window_s, at = slo.window_s, ("slo", "window_s")
        scrape_s = getattr(source and source.params, "scrape_interval_s", None)
        if window_s < self._tick_s:
            rule = f"must be at least tick_s ({self._tick_s:g})"
            self._problem(f"{rule}, or samples go unseen; got {window_s:g}", *at)
        elif scrape_s is not None and window_s < 2 * scrape_s:
            # Two scrapes make an increase; a window that may hold one makes none.
            rule = f"must be at least twice source.scrape_interval_s ({scrape_s:g})"
            self._problem(f"{rule}; got {window_s:g}", *at)
        elif scrape_s is not None and window_s < 4 * scrape_s:
            rule = f"should be at least four times source.scrape_interval_s ({scrape_s:g})"
            self._warning(f"{rule}, or one late scrape empties it; got {window_s:g}", *at)
        for key in ("settle_s", "scale_down_window_s", "cooldown_down_s"):
            # A delay shorter than the look-back acts twice on the same samples.
            value = getattr(guards, key)
            if value < window_s:
                rule = f"should be at least slo.window_s ({window_s:g})"
                self._warning(
                    f"{rule}, or it acts on what it saw before; got {value:g}", "guards", key
                )

    def _check_names(self, shadows: list[Steering | None]) -> None:
        names: dict[str, int] = {}
        for i, shadow in enumerate(shadows):
            if shadow is not None and names.setdefault(shadow.policy.name, i) != i:
                rule = f"must differ in name from shadow[{names[shadow.policy.name]}]"
                self._problem(f"{rule}; got {shadow.policy.name!r}", "shadow", i)

    def _problem(self, text: str, *at: str | int) -> None:
        self._found.problems.append(f"{self._where((*self._at, *at))}: {text}")

    def _warning(self, text: str, *at: str | int) -> None:
        self._found.warnings.append(f"{self._where((*self._at, *at))}: {text}")


def _typed(value: Any, hint: Any) -> Any:
    """A text from the environment as the parameter's type wants it."""
    if isinstance(value, EnvironmentText):
        return value.typed(hint)
    if isinstance(value, dict):
        return {str(k): _typed(item, str) for k, item in value.items()}
    return value
