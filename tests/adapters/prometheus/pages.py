"""Metrics pages of made-up vLLM engines."""

from collections.abc import Sequence
from dataclasses import dataclass, field

TTFT_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0)
ITL_BOUNDS = (0.01, 0.025, 0.05, 0.1)


@dataclass
class Engine:
    """What one engine has counted."""

    index: int = 0
    waiting: float = 0.0
    running: float = 0.0
    kv: float = 0.25
    ttfts: dict[float, int] = field(default_factory=dict)
    completed: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0

    def serve(self, requests: int, ttft_s: float = 0.3, output_tokens: int = 10) -> None:
        """Begin and end some requests."""
        self.ttfts[ttft_s] = self.ttfts.get(ttft_s, 0) + requests
        self.completed += requests
        self.prompt_tokens += 100 * requests
        self.output_tokens += output_tokens * requests


def page(engines: Sequence[Engine], model: str = "m") -> str:
    """The page of one server."""
    lines = []
    for name, kind in (
        ("vllm:num_requests_waiting", "gauge"),
        ("vllm:num_requests_running", "gauge"),
        ("vllm:kv_cache_usage_perc", "gauge"),
        ("vllm:prompt_tokens_total", "counter"),
        ("vllm:generation_tokens_total", "counter"),
        ("vllm:request_success_total", "counter"),
        ("vllm:time_to_first_token_seconds", "histogram"),
        ("vllm:inter_token_latency_seconds", "histogram"),
    ):
        lines.append(f"# TYPE {name} {kind}")
        for engine in engines:
            lines += _series(name, engine, f'engine="{engine.index}",model_name="{model}"')
    return "\n".join(lines) + "\n"


def _series(name: str, engine: Engine, labels: str) -> list[str]:
    plain = {
        "vllm:num_requests_waiting": engine.waiting,
        "vllm:num_requests_running": engine.running,
        "vllm:kv_cache_usage_perc": engine.kv,
        "vllm:prompt_tokens_total": engine.prompt_tokens,
        "vllm:generation_tokens_total": engine.output_tokens,
    }
    if name in plain:
        return [f"{name}{{{labels}}} {float(plain[name])}"]
    if name == "vllm:request_success_total":
        return [
            f'{name}{{{labels},finished_reason="stop"}} {float(engine.completed)}',
            f'{name}{{{labels},finished_reason="error"}} {float(engine.failed)}',
        ]
    if name == "vllm:time_to_first_token_seconds":
        observed, bounds = engine.ttfts, TTFT_BOUNDS
    else:
        observed, bounds = {0.02: engine.output_tokens - sum(engine.ttfts.values())}, ITL_BOUNDS
    lines = []
    for bound in bounds:
        upto = sum(count for value, count in observed.items() if value <= bound)
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {float(upto)}')
    total = float(sum(observed.values()))
    lines.append(f'{name}_bucket{{{labels},le="+Inf"}} {total}')
    lines.append(f"{name}_count{{{labels}}} {total}")
    return lines
