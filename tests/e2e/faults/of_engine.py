"""What goes wrong with the engine."""

from autoscaler.emulator.operator import Answer
from tests.e2e.faults.lane import WINDOW_S, Lane
from tests.e2e.faults.rows import Act, Fault, nothing, shows, then_replaced

ENGINE = "engine"
_QUIET_AGAIN = "what the engine did not tell is missing until a window is over"


def _pages(kind: str) -> tuple[Act, Act]:
    def on(lane: Lane) -> None:
        lane.front.pages = kind

    def off(lane: Lane) -> None:
        lane.front.pages = ""

    return on, off


def _mute(lane: Lane) -> None:
    lane.engine.serves = False


def _speak(lane: Lane) -> None:
    lane.engine.serves = True


def _wedge(lane: Lane) -> None:
    """Every command fails, and nothing is answered any more."""
    lane.engine.answers = [Answer(500, "Scale failed: a rank is gone")] * 100
    lane.engine.serves = False


def _replaced(lane: Lane) -> None:
    then_replaced(nothing)(lane)


ROWS = (
    Fault(ENGINE, "503 through the commit", _mute, _speak, shows("queue_depth", "stale"),
          "the last scrape failed|selects no series", blind=True, patience_s=WINDOW_S + 1,
          why=_QUIET_AGAIN),
    Fault(ENGINE, "wedged after a failure", _wedge, _replaced, shows("queue_depth", "stale"),
          "the last scrape failed|selects no series", blind=True, patience_s=WINDOW_S + 1,
          why="a person replaces the instance; then a window has to pass"),
    Fault(ENGINE, "counters reset", lambda lane: lane.front.restart_counters(), nothing,
          shows("ttft_p95_s", "reset"), "counters restarted", patience_s=WINDOW_S,
          why=_QUIET_AGAIN),
    Fault(ENGINE, "frozen series", *_pages("frozen"),
          shows("ttft_p95_s", "no_observations", "few_samples", "stale"), "no_observations",
          patience_s=WINDOW_S, why="only a whole window in which nothing ends can tell"),
    Fault(ENGINE, "renamed metric", *_pages("renamed"), shows("queue_depth", "no_series"),
          "no series vllm:num_requests_waiting", blind=True),
    Fault(ENGINE, "missing series", *_pages("missing"), shows("queue_depth", "no_series"),
          "no series vllm:num_requests_waiting", blind=True),
)  # fmt: skip
