"""Reads ``/metrics`` of the engines itself: no Prometheus needed.

Each ``read`` is one scrape of every address, in parallel and within one total time. A 503 is the
normal course of a resize (a vLLM answers nothing else for 28 to 76 s) and makes the signals stale;
if no address can be read for another reason, that is an error. It keeps no sample longer than a
window: after a start it takes one until rates speak for a whole one.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autoscaler.errors import ConfigError, ObservationError
from autoscaler.findings import Finding, Level
from autoscaler.model import Metrics
from autoscaler.parameters import require_number, require_whole
from autoscaler.ports import SourceContext
from autoscaler.sources._deadline import Callers
from autoscaler.sources._engine_window import EngineWindow
from autoscaler.sources._findings import (
    objective_finding,
    signal_findings,
    window_finding,
)
from autoscaler.sources._http import (
    LIBRARY_ERRORS,
    Access,
    HttpClient,
    redacted,
    require_ok,
    require_url,
    translated,
)
from autoscaler.sources._ledger import Page
from autoscaler.sources._page import parse
from autoscaler.sources._presets import Preset, engine_preset, router_preset


@dataclass(frozen=True, slots=True)
class Params(Access):
    """What to scrape, and within which limits; credentials and trust are ``Access``'s.

    Args:
        urls: metrics addresses of the engines, each whole, ``http://host:8000/metrics``; one for
            each server, however many engines it has inside.
        engine: kind of engine, ``vllm`` or ``sglang``.
        engine_label: label with an engine's index within one server; None: the engine's usual.
        router: what counts true arrivals, ``dynamo`` or ``llm_d``; None: nothing does.
        router_url: metrics address of the router; to be given with ``router``.
        model_name: only series with this ``model_name`` count; None: all. Larger setups serve
            several models from one server.
        scrape_interval_s: expected seconds between two reads, that is the loop's tick, s, > 0.
            Too small: one late tick is taken for a gap.
        timeout_s: limit of one read of everything, s, > 0; to be shorter than the tick.
        min_observations: fewer first tokens in the window make no quantile, >= 1. Larger: calmer,
            and silent under light load.
        min_coverage_ratio: share of the engines that has to answer, > 0, <= 1. Larger: fewer
            estimates, more holds.
        max_bytes: longer pages are refused, >= 1024. A vLLM page has 42 kB an engine.
        max_series: pages with more series that are read are refused, >= 1; 55 an engine are.
    """

    urls: tuple[str, ...]
    engine: str = "vllm"
    engine_label: str | None = None
    router: str | None = None
    router_url: str | None = None
    model_name: str | None = None
    scrape_interval_s: float = 5.0
    timeout_s: float = 3.0
    min_observations: int = 10
    min_coverage_ratio: float = 0.8
    max_bytes: int = 16 * 1024 * 1024
    max_series: int = 20_000

    def __post_init__(self) -> None:
        if not self.urls:
            raise ConfigError("urls: must name at least one address; got none")
        for url in self.urls:
            require_url("urls", url)
        if len(set(self.urls)) != len(self.urls):
            raise ConfigError("urls: must name each address once; got one twice")
        engine_preset(self.engine)
        router_preset(self.router)
        if (self.router is None) != (self.router_url is None):
            raise ConfigError("router_url: must be given with router, and only then")
        if self.router_url is not None:
            require_url("router_url", self.router_url)
        require_number("scrape_interval_s", self.scrape_interval_s, 0, above=True)
        require_number("timeout_s", self.timeout_s, 0, above=True)
        require_whole("min_observations", self.min_observations, 1)
        require_number("min_coverage_ratio", self.min_coverage_ratio, 0, 1, above=True)
        require_whole("max_bytes", self.max_bytes, 1024)
        require_whole("max_series", self.max_series, 1)
        Access.__post_init__(self)  # super() does not know a class with slots


class ScrapeSource:
    """Scrapes engines, and a router where there is one.

    Args:
        params: what to scrape.
        context: objective, clock, and how many engines count.

    Raises:
        ConfigError: the window is shorter than two scrapes.
    """

    def __init__(self, params: Params, context: SourceContext) -> None:
        window = window_finding(context.slo.window_s, params.scrape_interval_s)
        if window.level is Level.ERROR:
            raise ConfigError(f"{window.subject}: {window.detail}")
        self.params = params
        self.context = context
        preset = engine_preset(params.engine)
        if params.engine_label is not None:
            preset = replace(preset, engine_label=params.engine_label)
        self._preset = preset
        self._engines = EngineWindow(
            preset,
            context.slo,
            params.scrape_interval_s,
            params.min_observations,
            params.min_coverage_ratio,
        )
        self._router: EngineWindow | None = None
        router = router_preset(params.router)
        if router is not None:
            self._router = EngineWindow(router, context.slo, params.scrape_interval_s)
        self._callers: Callers[Page] = Callers()
        presets = dict.fromkeys(params.urls, preset)
        if router is not None and params.router_url is not None:
            presets[params.router_url] = router
        access = params
        self._calls = {
            url: self._call(url, wanted, HttpClient(access, params.max_bytes))
            for url, wanted in presets.items()
        }

    def read(self) -> Metrics:
        """Scrape everything once and say what the window shows.

        Raises:
            ObservationError: no engine could be read, for another reason than a 503.
        """
        params, at_s = self.params, self.context.clock.now_s()
        answers = self._callers.run(self._calls, params.timeout_s)
        self._enter_router(at_s, answers)
        pages: dict[str, Page] = {}
        errors: dict[str, ObservationError] = {}
        for url in params.urls:
            answer = answers[url]
            if isinstance(answer, ObservationError):
                errors[url] = answer
            else:
                pages[url] = answer
        if not pages:
            first = next(iter(errors.values()))
            self._engines.miss(str(first))
            if not all(isinstance(error, _Resizing) for error in errors.values()):
                raise ObservationError(f"{len(errors)} of {len(errors)} unread: {first}") from first
        else:
            self._engines.add(at_s, pages)
        metrics = self._engines.read(at_s, self.context.engines())
        if self._router is None:
            return metrics
        return replace(metrics, arrival_rps=self._router.read(at_s, 0).completion_rps)

    def findings(self) -> list[Finding]:
        """What a check of this source says, after at least one ``read`` worked.

        Raises:
            ObservationError: nothing could be read.
        """
        metrics, slo = self.read(), self.context.slo
        return [
            window_finding(slo.window_s, self.params.scrape_interval_s),
            objective_finding(slo, self._engines.bounds_s),
            *signal_findings(metrics),
        ]

    def _enter_router(self, at_s: float, answers: Mapping[str, Page | ObservationError]) -> None:
        url = self.params.router_url
        if self._router is None or url is None:
            return
        answer = answers[url]
        if isinstance(answer, ObservationError):
            self._router.miss(str(answer))
        else:
            self._router.add(at_s, {url: answer})

    def _call(
        self, url: str, preset: Preset, client: HttpClient
    ) -> Callable[[threading.Event], Page]:
        """What reads one address; runs in a thread of its own."""
        params, names, where = self.params, preset.names(), redacted(url)

        def call(given_up: threading.Event) -> Page:
            try:
                session = client.session(params.timeout_s, given_up)
                response = session.get(url, headers={"Accept": "text/plain"})
            except LIBRARY_ERRORS as error:
                raise translated(where, error) from error
            if response.status_code == 503:
                raise _Resizing(f"{where}: HTTP 503, as in a resize")
            require_ok(response)
            kind = response.headers.get("Content-Type", "text/plain").partition(";")[0]
            if kind.strip().lower() not in ("text/plain", "application/openmetrics-text"):
                shown = client.clean(kind)[:80]
                raise ObservationError(f"{where}: must be a metrics page; got {shown!r}")
            try:
                samples = parse(response.content.decode("utf-8"), names, params.max_series)
                if params.model_name is not None and preset.engine_label:
                    wanted = params.model_name
                    samples = [s for s in samples if s.labels.get("model_name", wanted) == wanted]
                return Page(preset, samples)
            except UnicodeDecodeError as error:
                raise ObservationError(f"{where}: must be UTF-8 text; {error.reason}") from error
            except ObservationError as error:
                raise ObservationError(f"{where}: {client.clean(str(error))[:300]}") from error

        return call


class _Resizing(ObservationError):
    """A server that answers 503: the normal course of a resize."""


def build(params: Params, context: SourceContext) -> ScrapeSource:
    """The source.

    Raises:
        ConfigError: the parameters do not fit the objective.
    """
    return ScrapeSource(params, context)
