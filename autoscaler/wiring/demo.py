"""The live loop on this machine: an emulated engine on loopback HTTP, and the real adapters.

Only the engine and its users are made up. Metrics are scraped, widths are posted and proven over
HTTP, by the code that steers real deployments; all of it in scaled time.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from autoscaler import limits, policy_file, profiles
from autoscaler.clock import ScaledClock, SystemClock
from autoscaler.controller import Controller
from autoscaler.emulator.server import Options, serving
from autoscaler.engine.fleet import Load
from autoscaler.errors import ConfigError
from autoscaler.guards import Guards
from autoscaler.loop import ControlLoop
from autoscaler.model import Decision, Observation, SetOutcome, Slo
from autoscaler.parameters import require_number
from autoscaler.ports import PolicyContext, SourceContext
from autoscaler.sources import scrape
from autoscaler.targets import vllm
from autoscaler.targets._engine import EngineApi
from autoscaler.traces import load
from autoscaler.wiring.simulated import resize_model

TICK_S = 5.0


@dataclass(frozen=True, slots=True)
class Demo:
    """What is shown.

    Args:
        trace: the load; its speed is what carries it over the first width's capacity.
        speed: arrival times are divided by it.
        policy: kind or file.
        profile, resize: of the emulated engine.
        width, max_width: first and largest width.
        time_scale: emulated seconds a real second, 1..60.
        duration_s: emulated seconds.
    """

    trace: str
    speed: float = 2.2
    policy: str = "threshold"
    profile: str = "assumed-wide"
    resize: str = "elastic-nixl"
    width: int = 2
    max_width: int = 8
    time_scale: float = 15.0
    duration_s: float = 720.0

    def __post_init__(self) -> None:
        """Refuse what cannot be shown.

        Raises:
            ConfigError: names the key, the rule and the value.
        """
        # Beyond 60 a tick of 5 s is shorter than reading the engine takes.
        require_number("time_scale", self.time_scale, 1, 60)
        require_number("duration_s", self.duration_s, TICK_S)
        require_number("speed", self.speed, 0, above=True)


@dataclass(frozen=True, slots=True)
class Moment:
    """One tick of the demo; ``at_s`` counts from its start."""

    at_s: float
    decision: Decision
    obs: Observation | None
    outcome: SetOutcome | None


@dataclass(slots=True)
class Story:
    """Every tick, as a decision log that tells each one on.

    Args:
        now_s: the loop's clock.
        started_at_s: its reading at the start.
        on_tick: is told each moment.
    """

    started_at_s: float
    on_tick: Callable[[Moment], None]
    moments: list[Moment] = field(default_factory=list)

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],  # noqa: ARG002  # the port's
        shadows: Mapping[str, Decision] | None = None,  # noqa: ARG002  # the port's
    ) -> None:
        """Keep one tick and tell it."""
        moment = Moment(decision.at_s - self.started_at_s, decision, obs, outcome)
        self.moments.append(moment)
        self.on_tick(moment)


@dataclass(frozen=True, slots=True)
class Stage:
    """A demo ready to run: the loop, what it records, and how to end it."""

    url: str
    loop: ControlLoop
    story: Story
    clock: ScaledClock
    stop: Callable[[], None]
    slo: Slo


@contextmanager
def staged(demo: Demo, on_tick: Callable[[Moment], None]) -> Iterator[Stage]:
    """Start the engine and build the loop; the engine ends with the block.

    Raises:
        ConfigError: an unknown policy, profile or resize.
        TraceError: the trace is unusable.
    """
    profile = profiles.load(demo.profile)
    trace = load(demo.trace, speed=demo.speed)
    if not profile.known_widths[0] <= demo.width <= demo.max_width <= profile.known_widths[-1]:
        low, high = profile.known_widths[0], profile.known_widths[-1]
        raise ConfigError(f"width, max_width: must be within {low} to {high}; got {demo}")
    slo = Slo()
    options = Options(
        profile=profile,
        resize=resize_model(demo.resize),
        width=demo.width,
        max_width=demo.max_width,
        version="0.30",  # the first whose HTTP stays up while a growth is prepared
        time_scale=demo.time_scale,
        trace=Load(trace.arrival_s, trace.prompt_tokens, trace.output_tokens),
    )
    choice = policy_file.load(demo.policy)
    real = SystemClock()
    clock = ScaledClock(real, demo.time_scale)
    policy = choice.build(PolicyContext(slo, TICK_S, profile))
    with serving(options) as url:
        source = scrape.build(
            scrape.Params((f"{url}/metrics",), scrape_interval_s=TICK_S),
            SourceContext(slo, clock, lambda: _effective(loop)),
        )
        target = vllm.Vllm(
            vllm.Params(url, demo.max_width, profile.gpus(1), demo.width, can_shrink=True),
            EngineApi(url, None, None),
            clock,
        )
        story = Story(clock.now_s(), on_tick)
        guards = Guards(limits.Params(min_width=demo.width, max_width=demo.max_width))
        loop = ControlLoop(source, target, Controller(policy, guards), clock, story, slo, TICK_S)

        def stop() -> None:
            loop.stop()
            real.stop()

        yield Stage(url, loop, story, clock, stop, slo)


def _effective(loop: ControlLoop) -> int | None:
    obs = loop.observation
    return None if obs is None else obs.width.effective


@dataclass(frozen=True, slots=True)
class Change:
    """One resize of the story: when and why it was asked for, and when it was proven.

    ``proven_at_s`` None: not before the end.
    """

    at_s: float
    from_width: int
    to_width: int
    reason: str
    result: str
    proven_at_s: float | None


def changes(story: Story) -> list[Change]:
    """The resizes of a story in their order."""
    found = []
    for i, moment in enumerate(story.moments):
        decision = moment.decision
        if decision.width is None or decision.expected is None or moment.outcome is None:
            continue
        proven = (
            later.at_s
            for later in story.moments[i + 1 :]
            if later.obs is not None and later.obs.width.effective == decision.width
        )
        found.append(
            Change(
                moment.at_s,
                decision.expected,
                decision.width,
                decision.reason,
                moment.outcome.result.value,
                next(proven, None),
            )
        )
    return found
