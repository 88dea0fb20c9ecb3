"""The recorded resizes of a real vLLM, and pages derived from them."""

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.adapters.prometheus.servers import Answer

_DATA = Path(__file__).parents[2] / "data" / "vllm"


@dataclass(frozen=True)
class Reading:
    """One recorded ``GET /metrics``; ``at_s`` since the first one."""

    at_s: float
    tag: str
    status: int
    text: str

    @property
    def answer(self) -> Answer:
        kind = "text/plain; version=1.0.0" if self.status == 200 else "application/json"
        return Answer(self.text, self.status, {"Content-Type": kind})


def readings(tag: str) -> list[Reading]:
    """All readings of one resize: ``down-2to1-A`` or ``up-1to2-A``, a second apart."""
    lines = gzip.decompress((_DATA / "resizes.jsonl.gz").read_bytes()).decode().splitlines()
    found = [Reading(**json.loads(line)) for line in lines]
    return [one for one in found if one.tag == tag]


def whole_page() -> str:
    """One whole page at width 2."""
    return gzip.decompress((_DATA / "metrics_width2.txt.gz").read_bytes()).decode()


def refused_growth() -> list[Reading]:
    """A growth 1 → 2 that the engine refused: counters restarted, a phantom engine 1 at 0.

    Derived from the second half of the shrink, where one engine serves: from the 20th reading on,
    engine 0 counts from 0 and engine 1 is there with zeros, as was observed but not recorded.
    """
    serving = [one for one in readings("down-2to1-A") if one.at_s > 66.0]
    base = _values(serving[20].text)
    found = []
    for i, one in enumerate(serving):
        lines = []
        for line in one.text.splitlines():
            series, _, value = line.rpartition(" ")
            if 'engine="1"' in series and i < 20:
                continue  # it was never there before
            if 'engine="1"' in series:
                line = f"{series} 0.0"
            elif i >= 20 and re.search(r"_(total|bucket|count|sum)\{", series):
                line = f"{series} {float(value) - base[series]}"
            lines.append(line)
        found.append(Reading(one.at_s, "refused", one.status, "\n".join(lines) + "\n"))
    return found


def _values(text: str) -> dict[str, float]:
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in pairs}
