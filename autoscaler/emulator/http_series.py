"""The series of the process and of its HTTP server, which go on over resizes and resets."""

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

_UNCOUNTED = ("/metrics", "/health", "/load", "/ping", "/version", "/_emulator")
_HIGHR_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
    *(5.0, 7.5, 10.0, 30.0, 60.0),
)
_LOWR_S = (0.1, 0.5, 1.0)
_SIZE = (
    "Content length of {} by handler. Only value of header is respected. Otherwise ignored. No "
    "percentile calculated. "
)


class HttpSeries:
    """Counts requests as the engine's instrumentator does; 503s of its middleware are in none.

    Args:
        registry: gets the series, and those of the process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        GCCollector(registry=registry)
        PlatformCollector(registry=registry)
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "http_requests_total",
            "Total number of requests by method, status and handler.",
            ("method", "status", "handler"),
            registry=registry,
        )
        self._request_size = Summary(
            "http_request_size_bytes",
            _SIZE.format("incoming requests"),
            ("handler",),
            registry=registry,
        )
        self._response_size = Summary(
            "http_response_size_bytes",
            _SIZE.format("outgoing responses"),
            ("handler",),
            registry=registry,
        )
        self._highr = Histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate "
            "percentile calculations. ",
            buckets=_HIGHR_S,
            registry=registry,
        )
        self._lowr = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by "
            "handler is important. ",
            ("method", "handler"),
            buckets=_LOWR_S,
            registry=registry,
        )

    def note(self, request: web.Request, response: web.StreamResponse, duration_s: float) -> None:
        """Count one request, seconds of real time."""
        handler = request.path
        if handler.startswith(_UNCOUNTED):
            return
        if request.match_info.route.resource is None:
            handler = "none"
        status = f"{response.status // 100}xx"
        body = response.body if isinstance(response, web.Response) else None
        size = len(body) if isinstance(body, bytes) else 0
        self._requests.labels(request.method, status, handler).inc()
        self._request_size.labels(handler).observe(request.content_length or 0)
        self._response_size.labels(handler).observe(size)
        self._highr.observe(duration_s)
        self._lowr.labels(request.method, handler).observe(duration_s)

    def pages(self, exported: bytes) -> tuple[str, str]:
        """What comes before the engine's own series on the page, and what comes after."""
        text = exported.decode()
        at = text.index("# HELP http_requests_total")
        return text[:at], text[at:]
