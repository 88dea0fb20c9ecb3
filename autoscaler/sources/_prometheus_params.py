"""What the ``prometheus`` source can be told, and the rules it obeys."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from autoscaler.errors import ConfigError
from autoscaler.model import Metrics
from autoscaler.parameters import require_number, require_whole
from autoscaler.sources import _promql as promql
from autoscaler.sources._findings import counter_in, shortest_range_s
from autoscaler.sources._http import Access, require_url
from autoscaler.sources._presets import engine_preset, router_preset

_SIGNALS = tuple(f.name for f in fields(Metrics) if f.name != "window_s")


@dataclass(frozen=True, slots=True)
class Params(Access):
    """What to ask Prometheus for, and within which limits; credentials and trust are ``Access``'s.

    Args:
        url: of Prometheus, ``http://prometheus:9090``, a path prefix included.
        engine: kind of engine, ``vllm`` or ``sglang``.
        labels: labels that the engines' series have to have; they select one deployment.
        engine_label: label with an engine's index within one target; None: the engine's usual.
        target_labels: labels that tell the scraped targets apart.
        router: what counts true arrivals, ``dynamo`` or ``llm_d``; None: nothing does.
        router_labels: labels that the router's series have to have.
        queries: PromQL by signal (a field of ``Metrics``): its value replaces that signal. It has
            to give exactly one finite number in the unit that the signal's name ends in.
        scrape_interval_s: at which Prometheus scrapes the engines, s, > 0.
        timeout_s: limit of all queries of a tick together, s, > 0; to be shorter than the tick.
        min_observations: fewer first tokens in the window make no quantile, >= 1. Larger: calmer,
            and silent under light load.
        min_coverage_ratio: share of the engines that has to be seen, > 0, <= 1. Larger: fewer
            estimates, more holds.
        max_bytes: longer answers are refused, >= 1024.
        max_series: answers with more series are refused, >= 1.
    """

    url: str
    engine: str = "vllm"
    labels: Mapping[str, str] = field(default_factory=dict)
    engine_label: str | None = None
    target_labels: tuple[str, ...] = ("cluster", "namespace", "pod", "instance")
    router: str | None = None
    router_labels: Mapping[str, str] = field(default_factory=dict)
    queries: Mapping[str, str] = field(default_factory=dict)
    scrape_interval_s: float = 5.0
    timeout_s: float = 3.0
    min_observations: int = 10
    min_coverage_ratio: float = 0.8
    max_bytes: int = 16 * 1024 * 1024
    max_series: int = 20_000

    def __post_init__(self) -> None:
        require_url("url", self.url)
        engine_preset(self.engine)
        router_preset(self.router)
        promql.require_labels("labels", self.labels)
        promql.require_labels("router_labels", self.router_labels)
        promql.require_labels("target_labels", dict.fromkeys(self.target_labels, ""))
        if not self.target_labels:
            raise ConfigError("target_labels: must name at least one label; got none")
        if self.router is None and self.router_labels:
            raise ConfigError("router_labels: must be given with router only")
        require_number("scrape_interval_s", self.scrape_interval_s, 0, above=True)
        for signal, query in self.queries.items():
            _require_query(signal, query, self.scrape_interval_s)
        require_number("timeout_s", self.timeout_s, 0, above=True)
        require_whole("min_observations", self.min_observations, 1)
        require_number("min_coverage_ratio", self.min_coverage_ratio, 0, 1, above=True)
        require_whole("max_bytes", self.max_bytes, 1024)
        require_whole("max_series", self.max_series, 1)
        Access.__post_init__(self)  # super() does not know a class with slots


def _require_query(signal: str, query: str, scrape_interval_s: float) -> None:
    if signal not in _SIGNALS:
        raise ConfigError(f"queries: must be of {', '.join(_SIGNALS)}; got {signal!r}")
    if not query.strip():
        raise ConfigError(f"queries: {signal}: must be a query; got nothing")
    counter = counter_in(query)
    if counter is not None:
        rule = "must use rate() or increase() of a counter"
        raise ConfigError(f"queries: {signal}: {rule}; got {counter} as it is")
    range_s = shortest_range_s(query)
    if range_s is not None and range_s < 2 * scrape_interval_s:
        # One scrape in the range makes no increase: the rate is empty, or now and then is.
        rule = f"must look back over at least two scrape intervals ({scrape_interval_s:g} s)"
        raise ConfigError(f"queries: {signal}: {rule}; got a range of {range_s:g} s")
    promql.require_short(f"queries: {signal}", query)
