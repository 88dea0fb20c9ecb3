"""Which series of an engine mean what. Data only: names now, then older names.

Sources of the names: vLLM 0.30 and 0.33 ``vllm/v1/metrics/loggers.py``, SGLang 0.5.23
``observability/metrics_collector.py``, Dynamo 1.6 ``prometheus_names.py``, llm-d's reference of
its endpoint picker's metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Counted:
    """One counter, or the part of it that one label selects.

    Args:
        names: as exposed (``_total`` included), newest first; the first that exists counts.
        label: label to select by; "": all series.
        values: selected values of the label.
        inverted: all but these values.
    """

    names: tuple[str, ...]
    label: str = ""
    values: tuple[str, ...] = ()
    inverted: bool = False

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels counts."""
        return not self.label or (labels.get(self.label, "") in self.values) != self.inverted


@dataclass(frozen=True, slots=True)
class Preset:
    """The series of one kind of engine. Empty: it has none such.

    Args:
        ttft, itl: histograms, without ``_bucket``.
        waiting, running, kv: gauges; kv is a ratio, 0..1.
        completed: counters of requests that left the engine and were no failures of it.
        failed: counters of requests that the engine failed or turned away.
        prompt_tokens, output_tokens: counters.
        engine_label: label whose value is the index of an engine within one target; "": none.
        split_label: label by which a gauge is split; the series without it is the sum of all.
        duplicate_labels: labels of which each value repeats the same number.
    """

    ttft: tuple[str, ...] = ()
    itl: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    completed: tuple[Counted, ...] = ()
    failed: tuple[Counted, ...] = ()
    prompt_tokens: tuple[Counted, ...] = ()
    output_tokens: tuple[Counted, ...] = ()
    engine_label: str = ""
    split_label: str = ""
    duplicate_labels: tuple[str, ...] = ()

    def histograms(self) -> dict[str, tuple[str, ...]]:
        """Names by role."""
        return {"ttft": self.ttft, "itl": self.itl}

    def gauges(self) -> dict[str, tuple[str, ...]]:
        """Names by role."""
        return {"waiting": self.waiting, "running": self.running, "kv": self.kv}

    def counters(self) -> dict[str, tuple[Counted, ...]]:
        """Counters by role, in the order of ``samples.COUNTERS``."""
        return {
            "completed": self.completed,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "failed": self.failed,
        }

    def names(self) -> frozenset[str]:
        """Every name of a sample that is read."""
        found = {f"{name}_bucket" for names in self.histograms().values() for name in names}
        found |= {name for names in self.gauges().values() for name in names}
        for counted in self.counters().values():
            found |= {name for one in counted for name in one.names}
        return frozenset(found)


ENGINES: Mapping[str, Preset] = {
    "vllm": Preset(
        ttft=("vllm:time_to_first_token_seconds",),
        # Renamed in 0.11, the old one removed in 0.13.
        itl=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        waiting=("vllm:num_requests_waiting",),
        running=("vllm:num_requests_running",),
        # Renamed in 0.9. A ratio, whatever the name says.
        kv=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        completed=(
            # Every request that ended; "abort" is a client that went away.
            Counted(("vllm:request_success_total",), "finished_reason", ("error",), inverted=True),
        ),
        failed=(
            Counted(("vllm:request_success_total",), "finished_reason", ("error",)),
            Counted(("vllm:admission_rejections_total",)),
        ),
        prompt_tokens=(Counted(("vllm:prompt_tokens_total",)),),
        output_tokens=(Counted(("vllm:generation_tokens_total",)),),
        engine_label="engine",
    ),
    "sglang": Preset(
        ttft=("sglang:time_to_first_token_seconds",),
        itl=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        waiting=("sglang:num_queue_reqs",),
        running=("sglang:num_running_reqs",),
        kv=("sglang:token_usage",),
        completed=(
            Counted(("sglang:num_requests_total",)),
            Counted(("sglang:num_aborted_requests_total",)),
        ),
        prompt_tokens=(Counted(("sglang:prompt_tokens_total",)),),
        output_tokens=(Counted(("sglang:generation_tokens_total",)),),
        engine_label="dp_rank",
        split_label="priority",
        # Whether every tensor-parallel rank exports its gauges or rank 0 alone is not documented.
        duplicate_labels=("tp_rank", "pp_rank", "moe_ep_rank"),
    ),
}
"""By ``engine`` of the configuration."""

ROUTERS: Mapping[str, Preset] = {
    "dynamo": Preset(completed=(Counted(("dynamo_frontend_requests_started_total",)),)),
    "llm_d": Preset(
        completed=(Counted(("llm_d_epp_request_total", "inference_objective_request_total")),)
    ),
}
"""By ``router``: where true arrivals are counted, 503s and the router's own queue included.
``completed`` stands for what arrived."""


def engine_preset(engine: str) -> Preset:
    """The series of one kind of engine.

    Raises:
        ConfigError: unknown; lists those that exist.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine: must be one of {', '.join(sorted(ENGINES))}; got {engine!r}")
    return ENGINES[engine]


def router_preset(router: str | None) -> Preset | None:
    """The series of one kind of router; None for none.

    Raises:
        ConfigError: unknown; lists those that exist.
    """
    if router is None:
        return None
    if router not in ROUTERS:
        raise ConfigError(f"router: must be one of {', '.join(sorted(ROUTERS))}; got {router!r}")
    return ROUTERS[router]
