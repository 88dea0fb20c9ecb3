"""What each engine has counted since its metrics were last built anew."""

from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from autoscaler.emulator.families import FAMILIES, FINISHED_REASONS

Counts = npt.NDArray[np.int64]


class Distribution:
    """A histogram with a row for each engine.

    Attributes:
        bounds: finite upper bounds, ascending.
        counts: int64[engines, bounds + 1], not cumulative, +Inf last.
        sums: sum of the observations, an entry an engine.
    """

    def __init__(self, bounds: tuple[float, ...], engines: int) -> None:
        self.bounds = bounds
        self.counts: Counts = np.zeros((engines, len(bounds) + 1), np.int64)
        self.sums = [0.0] * engines

    def observe(self, engine: int, value: float, times: int = 1) -> None:
        """Enter a value, ``times`` times."""
        self.counts[engine, bisect_left(self.bounds, value)] += times
        self.sums[engine] += value * times

    def extend(self, engines: int) -> None:
        """Add rows at zero up to so many engines."""
        more = engines - len(self.sums)
        if more > 0:
            empty = np.zeros((more, len(self.bounds) + 1), np.int64)
            self.counts = np.concatenate((self.counts, empty))
            self.sums += [0.0] * more


class Accounts:
    """Counters, gauges and histograms of all engines.

    Args:
        engines: series there are, >= 1; those of a removed engine stay.
        created_s: Unix seconds, exported as ``_created``.

    Attributes:
        distributions: histograms by name.
        counters: name: a list for each value of its label, an entry an engine.
        gauges: likewise.
    """

    def __init__(self, engines: int, created_s: float) -> None:
        self.engines = engines
        self.created_s = created_s
        self.distributions = {
            f.name: Distribution(f.bounds, engines) for f in FAMILIES if f.kind == "histogram"
        }
        self.counters = self._zeros("counter")
        self.gauges = self._zeros("gauge")
        self.gauges["engine_sleep_state"][0] = [1.0] * engines

    def _zeros(self, kind: str) -> dict[str, list[list[float]]]:
        return {
            f.name: [[0.0] * self.engines for _ in f.values] for f in FAMILIES if f.kind == kind
        }

    def extend(self, engines: int) -> None:
        """Let series at zero appear for engines up to ``engines``: a refused growth leaves them."""
        more = engines - self.engines
        if more <= 0:
            return
        self.engines = engines
        for distribution in self.distributions.values():
            distribution.extend(engines)
        for rows in (*self.counters.values(), *self.gauges.values()):
            for row in rows:
                row += [0.0] * more
        self.gauges["engine_sleep_state"][0] = [1.0] * engines

    def load(self, engine: int, running: int, waiting: int, kv_usage_ratio: float) -> None:
        """Set the gauges of one engine."""
        self.gauges["num_requests_running"][0][engine] = running
        self.gauges["num_requests_waiting"][0][engine] = waiting
        self.gauges["num_requests_waiting_by_reason"][0][engine] = waiting
        self.gauges["kv_cache_usage_perc"][0][engine] = kv_usage_ratio

    def first_token(self, engine: int, ttft_s: float, prompt_tokens: int) -> None:
        """A prompt is done and its first token is out."""
        self.distributions["time_to_first_token_seconds"].observe(engine, ttft_s)
        self.counters["prompt_tokens"][0][engine] += prompt_tokens
        self.counters["prompt_tokens_by_source"][0][engine] += prompt_tokens

    def gaps(self, tokens: Counts, counts: Counts, sum_s: float) -> None:
        """Share gaps between tokens among the engines, whose steps are the same ones.

        Args:
            tokens: int64[engines], tokens after the first that each made.
            counts: int64[bounds + 1], the gaps of all by bucket.
            sum_s: sum of all gaps.
        """
        total = int(tokens.sum())
        if total == 0:
            return
        shares = np.concatenate(([0], np.cumsum(tokens))) / total
        itl = self.distributions["inter_token_latency_seconds"]
        for bucket in np.flatnonzero(counts):
            # Rounding the running sum keeps the sum over the engines exact.
            itl.counts[:, bucket] += np.diff(np.rint(shares * counts[bucket]).astype(np.int64))
        for engine, count in enumerate(tokens.tolist()):
            itl.sums[engine] += sum_s * count / total

    def finished(
        self,
        engine: int,
        reason: str,
        *,
        arrived_s: float,
        scheduled_s: float,
        first_s: float,
        finished_s: float,
        prompt_tokens: int,
        output_tokens: int,
        max_tokens: int,
    ) -> None:
        """A request has ended, for whatever ``reason`` (one of FINISHED_REASONS)."""
        seen = self.distributions
        decode_s = finished_s - first_s
        gaps = output_tokens - 1
        seen["request_prompt_tokens"].observe(engine, prompt_tokens)
        seen["request_generation_tokens"].observe(engine, output_tokens)
        seen["request_max_num_generation_tokens"].observe(engine, output_tokens)
        seen["request_params_n"].observe(engine, 1)
        seen["request_params_max_tokens"].observe(engine, max_tokens)
        seen["request_prefill_kv_computed_tokens"].observe(engine, prompt_tokens)
        seen["request_time_per_output_token_seconds"].observe(
            engine, decode_s / gaps if gaps > 0 else 0.0
        )
        seen["e2e_request_latency_seconds"].observe(engine, finished_s - arrived_s)
        seen["request_queue_time_seconds"].observe(engine, scheduled_s - arrived_s)
        seen["request_inference_time_seconds"].observe(engine, finished_s - scheduled_s)
        seen["request_prefill_time_seconds"].observe(engine, first_s - scheduled_s)
        seen["request_decode_time_seconds"].observe(engine, decode_s)
        self.counters["request_success"][FINISHED_REASONS.index(reason)][engine] += 1
