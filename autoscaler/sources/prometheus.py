"""Reads the engines' series from Prometheus, through prometheus-api-client.

**Two queries a tick.** One asks how many gauges of the engines are there at this moment
(``count(...) or vector(0)``): it always has exactly one element, which also tells Prometheus' own
time; 0 means that the last scrape failed, the engines being 503 in a resize or gone. The other
fetches the raw samples of all series that matter over the window (``{...}[35s]``, a matrix) at that
same time. A router's counter is one more. What is new in them goes through the very code that the
direct scraper and the simulator use, so that

- p95, attainment and the penalised p95 come from ``histogram.py``, which says "no observations",
  "too few" and "at least" where ``histogram_quantile`` says NaN or passes a bound off as a value;
- resets, holes, frozen and phantom engines are seen a series, which no aggregate can show;
- a tick costs the same two round trips for one signal or for all, and all speak of one instant;
- after a start, and after an outage of Prometheus itself, the samples missed meanwhile are there.

It costs bytes: 55 series an engine with 7 samples each are 15 kB an engine and tick, 1 MB for 64
engines. Where PromQL knows better, ``queries`` replaces single signals by the value of a query.

Times are compared on Prometheus' clock alone. prometheus-api-client has no limit on time, bytes or
redirects, retries for up to 6 h, drops warnings and raises KeyError for ``status: error``: all its
requests go through ``_http.py``, and every answer is checked before it sees it.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from autoscaler.errors import ConfigError, ObservationError
from autoscaler.findings import Finding, Level
from autoscaler.model import Metrics, Signal, SignalStatus
from autoscaler.ports import SourceContext
from autoscaler.sources import _promql as promql
from autoscaler.sources._deadline import Callers
from autoscaler.sources._engine_window import EngineWindow
from autoscaler.sources._findings import (
    interval_finding,
    label_finding,
    objective_finding,
    range_findings,
    signal_findings,
    window_finding,
)
from autoscaler.sources._http import (
    LIBRARY_ERRORS,
    HttpClient,
    redacted,
    require_ok,
    translated,
)
from autoscaler.sources._presets import engine_preset, router_preset
from autoscaler.sources._prometheus_params import Params
from autoscaler.sources._rounds import Rounds


@dataclass(frozen=True, slots=True)
class _Answers:
    """What one tick's queries gave: time by Prometheus' clock, and the rest as of that time."""

    now_s: float
    gauges: float
    engines: Sequence[promql.Series]
    router: Sequence[promql.Series]
    signals: Mapping[str, Signal]
    warnings: Sequence[str]


class PrometheusSource:
    """Reads one deployment's engines, and its router where there is one, from Prometheus.

    Args:
        params: what to ask for.
        context: objective, clock, and how many engines count.

    Attributes:
        now_s: Prometheus' time of the last answer; None: none yet.
        warnings: what Prometheus said beside its last answer: it may be partial.

    Raises:
        ConfigError: the window is shorter than two scrapes, or a query is too long.
    """

    def __init__(self, params: Params, context: SourceContext) -> None:
        slo = context.slo
        window = window_finding(slo.window_s, params.scrape_interval_s)
        if window.level is Level.ERROR:
            raise ConfigError(f"{window.subject}: {window.detail}")
        self.params = params
        self.context = context
        self.now_s: float | None = None
        self.warnings: Sequence[str] = ()
        preset = engine_preset(params.engine)
        if params.engine_label is not None:
            preset = replace(preset, engine_label=params.engine_label)
        self._preset = preset
        self._router_preset = router_preset(params.router)
        # One interval more than the window: the range's end does not fall on a scrape.
        range_ms = round((slo.window_s + params.scrape_interval_s) * 1000)
        gauges = [name for names in preset.gauges().values() for name in names]
        self._count = f"count({promql.selector(gauges, params.labels)}) or vector(0)"
        self._range = f"{promql.selector(preset.names(), params.labels)}[{range_ms}ms]"
        promql.require_short("labels", self._range)
        self._router_range: str | None = None
        if self._router_preset is not None:
            names = self._router_preset.names()
            self._router_range = f"{promql.selector(names, params.router_labels)}[{range_ms}ms]"
            promql.require_short("router_labels", self._router_range)
        self._client = _Client(params)
        self._callers: Callers[_Answers] = Callers()
        self._checks: Callers[list[str]] = Callers()
        self._asked_at_s = 0.0
        self._start()

    def read(self) -> Metrics:
        """Ask Prometheus and say what the window shows.

        Raises:
            ObservationError: unreachable, too slow, or no proper answer.
        """
        where = redacted(self.params.url)
        answers = self._callers.run({where: self._ask}, self.params.timeout_s)[where]
        if isinstance(answers, ObservationError):
            self._engines.miss(str(answers))
            if self._router is not None:
                self._router.miss(str(answers))
            raise answers
        self._enter(answers)
        metrics = self._engines.read(answers.now_s, self.context.engines())
        changes = dict(answers.signals)
        if self._router is not None:
            arrivals = self._router.read(answers.now_s, 0).completion_rps
            changes = {"arrival_rps": arrivals, **changes}
        return replace(metrics, **changes)  # type: ignore[arg-type]  # none of them is window_s

    def findings(self) -> list[Finding]:
        """What a check of this source says.

        Raises:
            ObservationError: Prometheus cannot be read.
        """
        metrics, slo, params = self.read(), self.context.slo, self.params
        found = [
            window_finding(slo.window_s, params.scrape_interval_s),
            objective_finding(slo, self._engines.bounds_s),
            *signal_findings(metrics),
            *(Finding(Level.WARNING, "prometheus", warning) for warning in self.warnings),
            *range_findings(params.queries, params.scrape_interval_s),
        ]
        if self._rounds.interval_s is not None:
            found.append(interval_finding(params.scrape_interval_s, self._rounds.interval_s))
        gauges = [name for names in self._preset.gauges().values() for name in names]
        for label, wanted in params.labels.items():
            others = {name: value for name, value in params.labels.items() if name != label}
            query = "count by ({}) ({})"
            values = self._values(query.format(label, promql.selector(gauges, others)), label)
            if not values and others:  # another label may be the wrong one
                values = self._values(query.format(label, promql.selector(gauges, {})), label)
            found.append(label_finding(label, wanted, values))
        return found

    def _start(self) -> None:
        """Begin with nothing known."""
        params, slo = self.params, self.context.slo
        interval_s = params.scrape_interval_s
        self._engines = EngineWindow(
            self._preset,
            slo,
            params.scrape_interval_s,
            params.min_observations,
            params.min_coverage_ratio,
        )
        self._rounds = Rounds(self._preset, params.target_labels, interval_s, slo.window_s)
        self._router: EngineWindow | None = None
        if self._router_preset is not None:
            self._router = EngineWindow(self._router_preset, slo, params.scrape_interval_s)
            self._router_rounds = Rounds(
                self._router_preset, params.target_labels, interval_s, slo.window_s
            )

    def _enter(self, answers: _Answers) -> None:
        now_s, asked_at_s = answers.now_s, self.context.clock.now_s()
        if self.now_s is not None and now_s < self.now_s:
            # Its clock was set back, or another Prometheus answers: ages would be nonsense.
            self._start()
        elif now_s == self.now_s and asked_at_s - self._asked_at_s > self.params.scrape_interval_s:
            self._engines.miss("repeats an old answer")
            raise ObservationError(f"{redacted(self.params.url)}: repeats an old answer")
        self.now_s, self._asked_at_s, self.warnings = now_s, asked_at_s, answers.warnings
        for at_s, pages in self._rounds.new(now_s, answers.engines):
            self._engines.add(at_s, pages)
        if not answers.gauges:
            known = "selects no series" if not answers.engines else "the last scrape failed"
            self._engines.miss(f"{known}: {self._count}")
        if self._router is not None:
            for at_s, pages in self._router_rounds.new(now_s, answers.router):
                self._router.add(at_s, pages)
            if not answers.router:
                self._router.miss(f"selects no series: {self._router_range}")

    def _ask(self, given_up: threading.Event) -> _Answers:
        """All queries of a tick; runs in a thread of its own."""
        params, client = self.params, self._client
        client.begin(given_up)
        now_s, gauges = promql.single(*client.query("count", self._count))
        if gauges.value is None:
            raise ObservationError(f"{redacted(params.url)}: count: {gauges.detail}")
        limit = params.max_series
        engines = promql.matrix(*client.query("series", self._range, now_s), limit)
        router: list[promql.Series] = []
        if self._router_range is not None:
            router = promql.matrix(*client.query("router", self._router_range, now_s), limit)
        signals = {}
        for signal, query in params.queries.items():
            try:
                signals[signal] = promql.single(*client.query(signal, query, now_s))[1]
            except ObservationError as error:
                # One query that cannot be answered takes no other signal with it.
                signals[signal] = Signal(None, SignalStatus.STALE, detail=str(error))
        return _Answers(now_s, gauges.value, engines, router, signals, tuple(client.warnings))

    def _values(self, query: str, label: str) -> list[str]:
        """The values of a label over the elements of a query."""
        client = self._client

        def ask(given_up: threading.Event) -> list[str]:
            client.begin(given_up)
            return promql.label_values(*client.query(label, query), label)

        values = self._checks.run({label: ask}, self.params.timeout_s)[label]
        if isinstance(values, ObservationError):
            raise values
        return values


class _Client:
    """PrometheusConnect with answers that are checked before it sees them."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._http = HttpClient(params, params.max_bytes)
        self._given_up = threading.Event()
        self._url = params.url.rstrip("/")  # with it, the library asks for //api/v1/query
        self._kind = ""
        self.warnings: list[str] = []

    def begin(self, given_up: threading.Event) -> None:
        """Start a tick's queries."""
        self._given_up = given_up
        self.warnings = []

    def query(self, name: str, query: str, at_s: float | None = None) -> tuple[str, Any]:
        """Type and result of one instant query.

        Raises:
            ObservationError: no proper answer; names the address and which query it was.
        """
        where = f"{redacted(self._url)}: {name}"
        timeout_s = self._params.timeout_s
        try:
            session = self._http.session(timeout_s, self._given_up)
            session.hooks["response"] = [self._check]
            connection = PrometheusConnect(self._url, session=session, timeout=timeout_s)
            at = {} if at_s is None else {"time": f"{at_s:.3f}"}
            result = connection.custom_query(query, params=at)
        except ObservationError as error:
            raise ObservationError(f"{where}: {error}") from error
        except (*LIBRARY_ERRORS, PrometheusApiClientException) as error:
            raise translated(where, error) from error
        return self._kind, result

    def _check(self, response: requests.Response, **_: object) -> None:
        """Refuse what the library would misread; keep what it would drop."""
        if response.status_code in (400, 422) and (
            said := promql.refusal(response.content, self._http.clean)
        ):
            raise ObservationError(f"HTTP {response.status_code}: {said}")
        require_ok(response)
        self._kind, _result, warnings = promql.envelope(response.content, self._http.clean)
        self.warnings += warnings


__all__ = ["Params", "PrometheusSource", "build"]


def build(params: Params, context: SourceContext) -> PrometheusSource:
    """The source.

    Raises:
        ConfigError: the parameters do not fit the objective.
    """
    return PrometheusSource(params, context)
