"""The mean lengths of requests, followed as far as they can be read."""

import math

from autoscaler.foresight.curves import Mix
from autoscaler.model import Metrics
from autoscaler.window import elapsed

_FILLING_RATIO = 0.8


class MixTracker:
    """Mean prompt and output lengths, averaged over ``memory_s``.

    Tokens of requests that still run count, the requests do not: while an engine fills up, the
    mean output length is read too large, at first many times over. So only what is read while
    about as many requests end as come is believed, unless there is nothing else for long.

    Args:
        memory_s: of the average, s, > 0.
        tick_s: distance of observations, s, > 0.
        reference: what to suppose before anything was read; None: nothing.

    Attributes:
        mix: the present mix; None: unknown.
    """

    def __init__(self, memory_s: float, tick_s: float, reference: Mix | None) -> None:
        self._share = 1.0 - math.exp(-tick_s / memory_s)
        self._seen = False
        self._since_s: float | None = None
        self.mix = reference

    def observe(self, now_s: float, metrics: Metrics) -> None:
        """Take in what one tick shows; what is missing changes nothing."""
        prompt, output = metrics.prompt_tokens_mean.value, metrics.output_tokens_mean.value
        if prompt is None or output is None or prompt < 0 or output < 0:
            return
        if self._since_s is None or self._since_s > now_s:
            self._since_s = now_s
        came, went = metrics.arrival_rps.value, metrics.completion_rps.value
        filling = came is not None and went is not None and went < _FILLING_RATIO * came
        mix = self.mix
        long_enough = mix is None and elapsed(self._since_s, now_s, 3 * metrics.window_s)
        if filling and not long_enough:
            return
        if mix is None or not self._seen:
            self._seen = True
            self.mix = Mix(max(prompt, 1.0), max(output, 1.0))
            return
        self.mix = Mix(
            max(mix.prompt_tokens + self._share * (prompt - mix.prompt_tokens), 1.0),
            max(mix.output_tokens + self._share * (output - mix.output_tokens), 1.0),
        )
