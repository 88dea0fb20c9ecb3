"""A real Prometheus scrapes a real engine's recorded resizes; the prometheus source reads it.

Time is compressed five-fold: a recorded second is served for 0.2 s and scraped once in it, and the
window is 6 s instead of 30. All three resizes are played at once.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from autoscaler.clock import SystemClock
from autoscaler.controller import Controller
from autoscaler.model import Capabilities, Metrics, Observation, SignalStatus, Slo, WidthStatus
from autoscaler.policies.threshold import Params as ThresholdParams
from autoscaler.policies.threshold import Threshold
from autoscaler.ports import PolicyContext, SourceContext
from autoscaler.sources.prometheus import Params, PrometheusSource, build
from tests.adapters.prometheus.conftest import Start
from tests.adapters.prometheus.recorded import Reading, readings, refused_growth
from tests.adapters.prometheus.servers import Answer, Request, Server

SECOND_S = 0.2
SLO = Slo(ttft_p95_s=5.0, window_s=30 * SECOND_S)


@dataclass
class Player:
    """Serves recorded readings as time passes, from ``start`` on; before, the first one."""

    recorded: list[Reading]
    clock: SystemClock
    width_at: dict[float, int]
    started_s: float | None = None
    served_s: float = 0.0
    controller: Controller = field(
        default_factory=lambda: Controller(
            Threshold(ThresholdParams(idle_for_s=1.0), PolicyContext(SLO, SECOND_S))
        )
    )
    seen: list[tuple[float, float, Metrics]] = field(default_factory=list)

    def __call__(self, _: Request) -> Answer:
        passed = 0.0 if self.started_s is None else (self.clock.now_s() - self.started_s) / SECOND_S
        one = self.recorded[min(int(passed), len(self.recorded) - 1)]
        self.served_s = one.at_s
        return one.answer

    @property
    def width(self) -> int:
        return [w for at_s, w in self.width_at.items() if self.served_s >= at_s][-1]

    @property
    def over(self) -> bool:
        return self.served_s >= self.recorded[-1].at_s

    def watch(self, source: PrometheusSource, tick: int) -> None:
        """One tick of a controller that believes the width steady and may write."""
        before_s = self.served_s
        metrics = source.read()
        if before_s <= self.recorded[2].at_s:
            return  # the first reading was of an engine that really was idle
        width = WidthStatus(2, 2, 2)
        obs = Observation(tick, self.clock.now_s(), metrics, width, Capabilities(1, 8), SLO)
        assert not obs.idle, f"idle at {before_s}"
        decision = self.controller.step(obs)
        assert decision.width is None, f"at {before_s}: {decision}"
        self.seen.append((before_s, self.served_s, metrics))

    def between(self, start_s: float, end_s: float) -> list[Metrics]:
        """What was read while nothing but readings of this stretch were served, the first not."""
        found = [m for a, b, m in self.seen if start_s + 1.5 <= a <= b <= end_s]
        assert found, f"nothing read from {start_s} to {end_s}"
        return found


@pytest.fixture(scope="module")
def played(start_prometheus: Start) -> dict[str, Player]:
    clock = SystemClock()
    players = {
        "down": Player(readings("down-2to1-A"), clock, {0.0: 2, 57.0: 1}),
        "up": Player(readings("up-1to2-A"), clock, {0.0: 1, 345.2: 2}),
        "refused": Player(refused_growth(), clock, {0.0: 1}),
    }
    with ExitStack() as stack:
        servers = {name: stack.enter_context(Server(p)) for name, p in players.items()}
        jobs = {n: (f"127.0.0.1:{s.port}", {"resize": n}) for n, s in servers.items()}
        prometheus = start_prometheus(jobs, round(SECOND_S * 1000))
        prometheus.wait_for(
            lambda: all(len(s.requests) >= 4 for s in servers.values()), "first scrapes"
        )
        sources = {
            # Twice the real interval: a loaded machine scrapes late, and that is no gap.
            name: build(
                Params(
                    url=prometheus.url,
                    labels={"resize": name},
                    scrape_interval_s=2 * SECOND_S,
                    timeout_s=5.0,
                ),
                SourceContext(SLO, clock, lambda p=player: p.width),
            )
            for name, player in players.items()
        }
        for player in players.values():
            player.started_s = clock.now_s()
        until_s = clock.now_s() + 90.0
        tick = 0
        while not all(player.over for player in players.values()):
            assert clock.now_s() < until_s, "the recording takes too long"
            for name, player in players.items():
                if not player.over:
                    player.watch(sources[name], tick)
            tick += 1
            clock.sleep(SECOND_S)
    return players


def test_the_hole_of_a_shrink_is_stale_and_the_frozen_engine_is_left_out(
    played: dict[str, Player],
):
    down = played["down"]
    for metrics in down.between(30.0, 56.8):
        assert metrics.queue_depth.status is SignalStatus.STALE
        assert (
            metrics.running.value is metrics.ttft_p95_s.value is metrics.arrival_rps.value is None
        )
    for metrics in down.between(58.0, 84.0):
        assert metrics.ttft_p95_s.value is None
        assert metrics.arrival_rps.value is None
        assert metrics.running.value in (None, 1, 4, 8)  # with engine 1, at 4 for ever: 5, 8, 12
    assert any(m.ttft_p95_s.status is SignalStatus.QUARANTINED for m in down.between(58.0, 84.0))
    assert any(m.running.value == 8 for m in down.between(95.0, 122.0))


def test_the_zeros_after_a_growth_are_unknown_and_the_reset_is_one_M26(played: dict[str, Player]):
    up = played["up"]
    for metrics in up.between(279.0, 345.0):
        assert metrics.queue_depth.status is SignalStatus.STALE
        assert metrics.ttft_p95_s.value is None
    for metrics in up.between(346.0, 354.3):
        assert metrics.queue_depth.value is None
        assert metrics.running.value is None
        assert metrics.kv_cache_usage_ratio.value is None
    assert any(m.queue_depth.status is SignalStatus.QUARANTINED for m in up.between(346.0, 354.3))
    for metrics in up.between(346.0, 370.0):
        assert metrics.ttft_p95_s.value is None
        assert metrics.arrival_rps.value is None
    assert any(m.ttft_p95_s.status is SignalStatus.RESET for m in up.between(346.0, 370.0))


def test_a_refused_growth_is_a_reset_and_its_phantom_engine_does_not_count(
    played: dict[str, Player],
):
    refused = played["refused"]
    restart_s = refused.recorded[20].at_s
    after = refused.between(restart_s, restart_s + 24.0)
    for metrics in after:
        assert metrics.ttft_p95_s.value is None
        assert metrics.arrival_rps.value is None
        assert metrics.running.value in (None, 1, 4, 8)
    assert any(m.ttft_p95_s.status is SignalStatus.RESET for m in after)
