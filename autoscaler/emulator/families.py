"""The metric families of an engine: names, types, help and buckets, as vLLM 0.25.0 exports them.

Held to the recording of a live server in ``tests/data/vllm_control``. The help texts are vLLM's
(Apache-2.0).
"""

from dataclasses import dataclass

from autoscaler.engine.fleet import ITL_BOUNDS_S, TTFT_BOUNDS_S

_LATENCY_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
_STEP_TOKENS = tuple(float(2**k) for k in (0, *range(3, 15)))
_TTFT_S = tuple(TTFT_BOUNDS_S.tolist())
_ITL_S = tuple(ITL_BOUNDS_S.tolist())

FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass(frozen=True, slots=True)
class Family:
    """One family of series, one series an engine and value of ``label``.

    Args:
        name: without ``vllm:``, and of a counter without ``_total``.
        kind: counter | gauge | histogram.
        help: as exported.
        label: name of the further label; "": none.
        values: of that label.
        bounds: finite upper bucket bounds of a histogram.
    """

    name: str
    kind: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    bounds: tuple[float, ...] = ()


def _estimate(name: str, what: str) -> Family:
    why = "per GPU (for Model Flops Utilization calculations)."
    return Family(f"estimated_{name}_per_gpu", "counter", f"Estimated number of {what} {why}")


def _cache(name: str, what: str, unit: str, whose: str = "") -> tuple[Family, Family]:
    counted = f"{whose}, in terms of number of"
    return (
        Family(f"{name}_queries", "counter", f"{what} queries{counted} queried {unit}."),
        Family(f"{name}_hits", "counter", f"{what} hits{counted} cached {unit}."),
    )


def _histogram(name: str, bounds: tuple[float, ...], help_text: str) -> Family:
    return Family(name, "histogram", help_text, bounds=bounds)


def _phase(name: str, phase: str) -> Family:
    text = f"Histogram of time spent in {phase} phase for request."
    return _histogram(f"request_{name}_time_seconds", _LATENCY_S, text)


FAMILIES = (
    _estimate("flops", "floating point operations"),
    _estimate("read_bytes", "bytes read from memory"),
    _estimate("write_bytes", "bytes written to memory"),
    Family("num_requests_running", "gauge", "Number of requests in model execution batches."),
    Family("num_requests_waiting", "gauge", "Number of requests waiting to be processed."),
    Family(
        "num_requests_waiting_by_reason",
        "gauge",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling "
        "capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, "
        "blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        "reason",
        ("capacity", "deferred"),
    ),
    Family(
        "engine_sleep_state",
        "gauge",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
    Family("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage."),
    *_cache("prefix_cache", "Prefix cache", "tokens"),
    *_cache(
        "external_prefix_cache",
        "External prefix cache",
        "tokens",
        " from KV connector cross-instance cache sharing",
    ),
    *_cache("mm_cache", "Multi-modal cache", "items"),
    Family("num_preemptions", "counter", "Cumulative number of preemption from the engine."),
    Family("prompt_tokens", "counter", "Number of prefill tokens processed."),
    Family(
        "prompt_tokens_by_source",
        "counter",
        "Number of prompt tokens by source.",
        "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    Family("prompt_tokens_cached", "counter", "Number of cached prompt tokens (local + external)."),
    Family("generation_tokens", "counter", "Number of generation tokens processed."),
    Family(
        "request_success",
        "counter",
        "Count of successfully processed requests.",
        "finished_reason",
        FINISHED_REASONS,
    ),
    _histogram("request_prompt_tokens", _TOKENS, "Number of prefill tokens processed."),
    _histogram("request_generation_tokens", _TOKENS, "Number of generation tokens processed."),
    _histogram(
        "iteration_tokens_total", _STEP_TOKENS, "Histogram of number of tokens per engine_step."
    ),
    _histogram(
        "request_max_num_generation_tokens",
        _TOKENS,
        "Histogram of maximum number of requested generation tokens.",
    ),
    _histogram("request_params_n", _TOKENS[:5], "Histogram of the n request parameter."),
    _histogram(
        "request_params_max_tokens", _TOKENS, "Histogram of the max_tokens request parameter."
    ),
    _histogram(
        "time_to_first_token_seconds", _TTFT_S, "Histogram of time to first token in seconds."
    ),
    _histogram(
        "inter_token_latency_seconds", _ITL_S, "Histogram of inter-token latency in seconds."
    ),
    _histogram(
        "request_time_per_output_token_seconds",
        _ITL_S,
        "Histogram of time_per_output_token_seconds per request.",
    ),
    _histogram(
        "e2e_request_latency_seconds", _LATENCY_S, "Histogram of e2e request latency in seconds."
    ),
    _phase("queue", "WAITING"),
    _phase("inference", "RUNNING"),
    _phase("prefill", "PREFILL"),
    _phase("decode", "DECODE"),
    _histogram(
        "request_prefill_kv_computed_tokens",
        _TOKENS,
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
    ),
)
"""In the order of the page."""

CACHE_CONFIG_HELP = "Information of the LLMEngine CacheConfig"
CACHE_CONFIG = {
    "_block_size_resolved": "True",
    "block_size": "16",
    "cache_dtype": "auto",
    "calculate_kv_scales": "False",
    "enable_prefix_caching": "False",
    "gpu_memory_utilization": "0.8",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_max_concurrency": "325.603515625",
    "kv_cache_memory_bytes": "None",
    "kv_cache_size_tokens": "2667344",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "auto",
    "num_cpu_blocks": "None",
    "num_gpu_blocks": "330103",
    "num_gpu_blocks_override": "None",
    "prefix_caching_hash_algo": "sha256",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "user_specified_block_size": "False",
    "user_specified_mamba_block_size": "False",
}
"""Labels of ``vllm:cache_config_info`` as recorded."""

KV_CACHE_TOKENS = int(CACHE_CONFIG["kv_cache_size_tokens"])
"""Tokens that the KV cache of one engine holds, as recorded on an H200."""
