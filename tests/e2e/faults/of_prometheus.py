"""What goes wrong with Prometheus."""

from tests.e2e.faults.lane import WINDOW_S, Lane
from tests.e2e.faults.rows import Act, Fault, shows

PROMETHEUS = "prometheus"
_SOURCE = r'autoscaler_errors_total\{class="ObservationError",port="source"'


def _front(fault: str) -> tuple[Act, Act]:
    def on(lane: Lane) -> None:
        lane.front.fault = fault

    def off(lane: Lane) -> None:
        lane.front.fault = ""

    return on, off


def _answers(name: str, fault: str, says: str) -> Fault:
    return Fault(PROMETHEUS, name, *_front(fault), _SOURCE, says, blind=True)


def _ahead(lane: Lane) -> None:
    lane.front.ahead_s = 600.0


def _back(lane: Lane) -> None:
    lane.front.ahead_s = 0.0


def _skewed(lane: Lane) -> None:
    lane.front.skew_s = 600.0


def _level(lane: Lane) -> None:
    lane.front.skew_s = 0.0


ROWS = (
    Fault(PROMETHEUS, "refused", lambda lane: lane.front.refuse(),
          lambda lane: lane.front.listen(), _SOURCE, "connection refused", blind=True),
    Fault(PROMETHEUS, "black-holed", lambda lane: lane.front.swallow(),
          lambda lane: lane.front.listen(), _SOURCE, "timed out|no whole answer", blind=True),
    _answers("hung", "hang", "timed out|no whole answer"),
    _answers("1.2 x deadline", "late", "timed out|no whole answer"),
    _answers("429, Retry-After 6 h", "429", "HTTP 429, asks to wait 21600 s"),
    _answers("503", "503", "HTTP 503"),
    _answers("HTML login page", "login", "it is no JSON"),
    _answers("status error in a 200", "error", "query timed out in expression"),
    _answers("NaN", "nan", "is nan"),
    _answers("Inf", "inf", "is inf"),
    _answers("scalar", "scalar", "must be a matrix|no data"),
    _answers("two elements", "two", "2 elements where one is meant"),
    _answers("1e6 series", "many", "bytes|no whole answer|timed out"),
    _answers("truncated", "cut", "(?i)incomplete|cut|protocol|no JSON"),
    Fault(PROMETHEUS, "warnings", *_front("warned"),
          r'autoscaler_errors_total\{class="PartialAnswer",port="source"', "may be partial"),
    Fault(PROMETHEUS, "clock 10 min ahead", _ahead, _back,
          shows("ttft_p95_s", "quarantined", "few_samples", "stale", "no_series"),
          "stale|few_samples|quarantined|no_series", patience_s=WINDOW_S,
          why="times are compared on Prometheus' clock; a jump of it empties the window"),
    Fault(PROMETHEUS, "clock 10 min ahead of the samples", _skewed, _level,
          shows("queue_depth", "stale"), "selects no series|the last scrape failed", blind=True,
          patience_s=WINDOW_S, why="the clock goes back at the end, which empties the window"),
)  # fmt: skip
