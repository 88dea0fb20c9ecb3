"""Engine windows and pages for the tests of the sources."""

from collections.abc import Sequence

from autoscaler.model import Slo
from autoscaler.sources._engine_window import EngineWindow
from autoscaler.sources._ledger import Page
from autoscaler.sources._page import Sample, parse
from autoscaler.sources._presets import ENGINES, Preset
from tests.adapters.prometheus.pages import Engine, page

SLO = Slo(ttft_p95_s=5.0, window_s=30.0)
VLLM = ENGINES["vllm"]
SGLANG = ENGINES["sglang"]


def window(preset: Preset = VLLM, **more: object) -> EngineWindow:
    return EngineWindow(preset, SLO, 5.0, **more)


def text_page(text: str, preset: Preset = VLLM) -> Page:
    return Page(preset, parse(text, preset.names(), 20_000))


def engines_page(*engines: Engine) -> Page:
    return text_page(page(engines))


def samples_page(samples: Sequence[tuple[str, dict[str, str], float]], preset: Preset) -> Page:
    return Page(preset, [Sample(*sample) for sample in samples])


def steady(target: EngineWindow, engines: Sequence[Engine], rounds: int = 8, start_s: float = 0.0):
    """Rounds of engines that serve 10 requests each between two of them; the last instant."""
    at_s = start_s
    for i in range(rounds):
        at_s = start_s + 5.0 * i
        for engine in engines:
            engine.serve(10)
        target.add(at_s, {"a": engines_page(*engines)})
    return at_s
