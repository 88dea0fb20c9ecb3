"""A Prometheus that answers what a test tells it to."""

import json
from urllib.parse import parse_qs, urlsplit

from tests.adapters.prometheus.pages import Engine, page
from tests.adapters.prometheus.servers import Answer, Request

QUERY = "my_query"


class FakePrometheus:
    """Answers for engines that are scraped each 5 s, up to ``now_s`` by its clock."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0
        self.live = 2
        self.custom: Answer | None = None
        self.count: Answer | None = None
        self.range: Answer | None = None
        self.warnings: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.scrapes: list[tuple[float, str]] = []
        engines = [Engine(0, waiting=1, running=2), Engine(1, waiting=2, running=2)]
        for i in range(8):
            for engine in engines:
                engine.serve(10)
            self.scrapes.append((self.now_s - 36.0 + 5.0 * i, page(engines)))

    def __call__(self, request: Request) -> Answer:
        parts = urlsplit(request.path)
        assert parts.path == "/api/v1/query"
        query = {name: value[0] for name, value in parse_qs(parts.query).items()}
        self.queries.append(query)
        if query["query"] == QUERY:
            return self.custom or self.success("vector", [])
        if query["query"].startswith("count("):
            element = {"metric": {}, "value": [self.now_s, str(self.live)]}
            return self.count or self.success("vector", [element])
        return self.range or self.success("matrix", self.matrix())

    def success(self, kind: str, result: object) -> Answer:
        content = {"status": "success", "data": {"resultType": kind, "result": result}}
        if self.warnings:
            content["warnings"] = self.warnings
        return Answer(json.dumps(content), 200, {"Content-Type": "application/json"})

    def matrix(self) -> list[dict[str, object]]:
        found: dict[str, list[list[object]]] = {}
        for at_s, text in self.scrapes:
            if at_s > self.now_s - 35.0:
                for line in text.splitlines():
                    if not line.startswith("#"):
                        series, _, value = line.rpartition(" ")
                        found.setdefault(series, []).append([at_s, value])
        return [
            {"metric": _labels(series), "values": values}
            for series, values in found.items()
            if "_count{" not in series
        ]


def _labels(series: str) -> dict[str, str]:
    name, _, rest = series.partition("{")
    pairs = (part.split("=", 1) for part in rest.rstrip("}").split(","))
    return {"__name__": name, "instance": "e:1"} | {k: v.strip('"') for k, v in pairs}
