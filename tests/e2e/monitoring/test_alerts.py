"""Each alert in its fault, with real processes, a real Prometheus and the shipped expressions.

Only durations are shorter: windows a thirtieth, and one second instead of each ``for``; promtool
tests those.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from autoscaler.endpoint import Endpoint
from autoscaler.telemetry import Telemetry
from monitoring.answers import Prometheus as Asked
from monitoring.answers import Window, read
from monitoring.preview import FOLDER
from tests.adapters.prometheus.conftest import Prometheus, Start
from tests.adapters.prometheus.servers import free_port
from tests.e2e.monitoring.rules import alerts, faster
from tests.e2e.run.conftest import BURNING, FREE, QUIET, Process, World

SCRAPE_MS = 500
TICK_S = 0.5
BY_TARGET = {
    "burning": {"AutoscalerSloBurnFast", "AutoscalerSloBurnSlow"},
    "blind": {"AutoscalerSignalLost"},
    "unreadable": {"AutoscalerTargetUnreadable"},
    "slow": {"AutoscalerResizeSlow"},
    "stuck": {"AutoscalerResizeStuck"},
    "failed": {"AutoscalerResizeFailed"},
    "refused": {"AutoscalerRefused"},
    "unheard": {"AutoscalerRefused"},
    "forbidden": {"AutoscalerForbidden"},
    "no_capacity": {"AutoscalerNoCapacity"},
    "flapping": {"AutoscalerFlapping"},
    "fight": {"AutoscalerFight"},
    "paused": {"AutoscalerPaused"},
    "late": {"AutoscalerLoopLate"},
    "stalled": {"AutoscalerLoopLate", "AutoscalerLoopStalled"},
    "well": set(),
}
"""What fires for each target besides what concerns the process."""

LOG = {"AutoscalerDecisionLogLost"}
"""All of them write one log, to a full disk."""

OF_PROCESSES = {
    "AutoscalerDecisionLogLost", "AutoscalerConfigRefused", "AutoscalerTwoLead",
    "AutoscalerNobodyLeads", "AutoscalerScrapeFails", "AutoscalerGone",
}  # fmt: skip


class Faults:
    """Two processes that steer what goes wrong, one that never leads, and who watches them."""

    def __init__(self, folder: Path, start_prometheus: Start) -> None:
        rules = folder / "rules.yaml"
        rules.write_text(faster(30.0, held_s=1.0), encoding="utf-8")
        self.ports = [free_port(), free_port()]
        self.idle = Telemetry()
        self.idle.set_leader(False)
        self.standby = Endpoint(self.idle, list, list, "127.0.0.1", 0)
        self.standby.start()
        addresses = [f"127.0.0.1:{port}" for port in self.ports]
        self.prometheus: Prometheus = start_prometheus(
            {
                "autoscaler": (" ".join(addresses), {"namespace": "bench"}),
                "standby": (f"127.0.0.1:{self.standby.port}", {"namespace": "other"}),
            },
            SCRAPE_MS,
            rules,
        )
        (folder / "one").mkdir()
        (folder / "two").mkdir()
        self.worlds = [World(folder / "one"), World(folder / "two")]
        self._describe(self.worlds[0])
        self.worlds[0].save(
            tick_s=TICK_S, telemetry={"port": self.ports[0]}, decisions={"path": "/dev/full"}
        )
        self.worlds[1].add_target("other", policy="static:2")
        self.worlds[1].save(tick_s=TICK_S, telemetry={"port": self.ports[1]})
        self.processes: list[Process] = [world.start() for world in self.worlds]
        self._over = threading.Event()
        self._rival = threading.Thread(target=self._put_back, daemon=True)
        self._rival.start()
        # A window that reaches back before the start looks like one with ticks left out.
        well = 'rate(autoscaler_tick_duration_seconds_count{target="well"}[10s])'
        self.prometheus.wait_for(
            lambda: bool(self.prometheus.query(f"{well} > {0.9 / TICK_S}")), "ten seconds of ticks"
        )
        self.prometheus.wait_for(
            lambda: ("AutoscalerLoopLate", "well") not in self.firing(), "ticks in time"
        )

    def firing(self, name: str = ".+") -> set[tuple[str, str]]:
        """Alerts that fire now: name and target ("": of a process)."""
        found = self.prometheus.query(f'ALERTS{{alertstate="firing", alertname=~"{name}"}}')
        return {(one["metric"]["alertname"], one["metric"].get("target", "")) for one in found}

    def wait_for(self, name: str, target: str = "") -> None:
        self.prometheus.wait_for(lambda: (name, target) in self.firing(name), f"{name} {target}")

    def settle(self, expected: object, found: Callable[[], object]) -> None:
        """Wait until exactly this is found: a scrape that failed may hide an alert for a moment."""
        last: list[object] = []

        def settled() -> bool:
            last[:] = [found()]
            return last[0] == expected

        with suppress(AssertionError):
            self.prometheus.wait_for(settled, "it")
        assert last[0] == expected

    def _put_back(self) -> None:
        """Another writer: wants two where ours asks for four."""
        world = self.worlds[0]
        while not self._over.wait(0.2):
            if world.read_state("fight")["effective"] == 4:
                world.state("fight", desired=2, effective=2)

    def close(self) -> None:
        self._over.set()
        self._rival.join(5)
        for process in self.processes:
            process.close()
        self.standby.stop()

    @staticmethod
    def _describe(world: World) -> None:
        """One target for each thing that can go wrong with one."""
        for name in BY_TARGET:
            world.add_target(name, policy="static:2")
        entries = {entry["name"]: entry for entry in world.settings["targets"]}

        def wants_four(*names: str) -> None:
            for name in names:
                entries[name]["policy"] = "static:4"

        wants_four("slow", "stuck", "unheard", "forbidden", "failed")
        world.metrics("burning", BURNING)
        world.metrics("blind", **{"raise": "no such host"})
        world.state("unreadable", unreadable="the object is gone")
        entries["slow"]["target"]["resize_reads"] = entries["stuck"]["target"]["resize_reads"] = (
            10**6
        )
        entries["stuck"]["convergence"] = {"timeout_s": 1.0}
        world.state("failed", desired=4, effective=2, failure="a rank ran out of memory")
        world.state("refused", desired=4, effective=2, refusal="above the role's limit")
        world.state("unheard", desired=2, effective=2, answer="refused")
        world.state("forbidden", desired=2, effective=2, answer="forbidden")
        late = json.dumps({"signals": QUIET, "block_s": 1.5})
        (world.folder / "late.metrics").write_text(late, encoding="utf-8")
        world.metrics("stalled", block_s=600)
        wants_four("fight", "paused")
        entries["paused"]["pause"] = "all"
        entries["no_capacity"]["policy"] = "says.yaml"  # no cluster here that could be full
        entries["flapping"]["policy"] = "flaps.yaml"  # an hour's budget takes an hour to spend
        for file, code in (("says.yaml", "no_capacity"), ("flaps.yaml", "flap_budget")):
            text = json.dumps({"kind": "live_fakes.says", "code": code})
            (world.folder / file).write_text(text, encoding="utf-8")
        for entry in entries.values():
            entry["guards"] = {**FREE, "max_width": 4}
        entries["fight"]["guards"] |= {"override_hold_s": 0.5, "fight_window_s": 600}


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory, start_prometheus: Start) -> Iterator[Faults]:
    made = Faults(tmp_path_factory.mktemp("faults"), start_prometheus)
    try:
        yield made
    finally:
        made.close()


def test_every_alert_has_a_fault_here() -> None:
    named = {alert["alert"] for alert in alerts()}
    assert set().union(*BY_TARGET.values()) | OF_PROCESSES == named


@pytest.mark.parametrize("target", BY_TARGET)
def test_its_alerts_fire_for_the_target_in_trouble_and_no_others(
    target: str, faults: Faults
) -> None:
    expected = BY_TARGET[target]
    faults.settle(expected, lambda: {name for name, of in faults.firing() if of == target} - LOG)


def test_a_full_disk_under_the_decision_log_fires(faults: Faults) -> None:
    faults.wait_for("AutoscalerDecisionLogLost", "well")


def test_two_processes_of_one_job_that_lead_fire_and_one_that_does_not_lead_alone(
    faults: Faults,
) -> None:
    query = 'ALERTS{alertstate="firing", alertname=~".*Lead.*"}'
    faults.settle(
        {("AutoscalerTwoLead", "autoscaler"), ("AutoscalerNobodyLeads", "standby")},
        lambda: {
            (one["metric"]["alertname"], one["metric"]["job"])
            for one in faults.prometheus.query(query)
        },
    )
    faults.idle.set_leader(True)
    faults.prometheus.wait_for(
        lambda: not faults.firing("AutoscalerNobodyLeads"), "the standby's lead to be seen"
    )


def test_a_refused_configuration_fires_until_it_is_corrected(faults: Faults) -> None:
    world = faults.worlds[1]
    assert not faults.firing("AutoscalerConfigRefused")
    world.config.write_text("targets: [", encoding="utf-8")
    faults.wait_for("AutoscalerConfigRefused")
    world.save()
    faults.prometheus.wait_for(
        lambda: not faults.firing("AutoscalerConfigRefused"), "the correction to be seen"
    )


def test_alerts_and_what_people_hold_back_are_marked_on_the_dashboard(faults: Faults) -> None:
    end_s = faults.prometheus.number("vector(time())")
    window = Window(end_s - 40.0, end_s, 0.5, 0.5)
    asked = Asked(faults.prometheus.url)
    for target, mark in (("fight", "fight: paused"), ("paused", "paused: paused")):
        shown = read(FOLDER / "autoscaler-target.json", asked, window, target)
        found = {
            one.panel: [series.named(one.legend) for series in one.series]
            for one in shown.annotations()
        }
        assert any(said.startswith(mark) for said in found["Held by people"])
        (name,) = BY_TARGET[target]
        assert any(said.startswith(name) for said in found["Alerts"])


def test_a_killed_process_fires_and_when_none_is_left_that_fires_too(faults: Faults) -> None:
    """The last one: it ends what the others look at."""
    assert not faults.firing("Autoscaler(ScrapeFails|Gone)")
    faults.processes[1].end(signal.SIGKILL)
    faults.wait_for("AutoscalerScrapeFails")
    assert not faults.firing("AutoscalerGone")
    faults.processes[0].end(signal.SIGKILL)
    faults.standby.stop()
    faults.wait_for("AutoscalerGone")
