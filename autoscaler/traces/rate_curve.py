"""A rate curve: ``start_s,arrival_rps``, the rate from each row's start to the next one's.

It holds no requests: they are drawn from it, seeded, with the lengths and the variability asked
for. The last row lasts as long as the one before it.
"""

import numpy as np
import polars as pl

from autoscaler.errors import ConfigError, TraceError
from autoscaler.traces._format import Format, Options, Settled
from autoscaler.traces._synth import Lengths, RateProfile, arrivals


def _extract(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        "line",
        "arrival_rps",
        arrival=pl.col("start_s"),
        prompt_tokens=pl.lit(0.0),
        output_tokens=pl.lit(0.0),
    )


def profile(path: str, frame: pl.DataFrame, options: Options) -> RateProfile:
    """The curve as a rate.

    Raises:
        TraceError: a rate that is none, or starts that do not ascend.
    """
    bad = frame.filter(~_good())
    frame = frame.filter(_good())
    if bad.height and not options.skip_bad_rows:
        raise TraceError(
            f"{path}:{bad['line'][0]}: arrival_rps: must be a finite number from 0; "
            f"got {bad['arrival_rps'][0]}"
        )
    start_s, rps = frame["arrival"].to_numpy(), frame["arrival_rps"].to_numpy()
    falls = np.flatnonzero(np.diff(start_s) <= 0)
    if len(falls):
        row = int(falls[0]) + 1
        raise TraceError(
            f"{path}:{frame['line'][row]}: start_s: must be above the row before, "
            f"{start_s[row - 1]:g}; got {start_s[row]:g}"
        )
    if len(start_s) < 2:
        raise TraceError(f"{path}:2: must have at least two usable rows; got {len(start_s)}")
    return RateProfile.curve(start_s, rps, options.rate_scale)


def _good() -> pl.Expr:
    rps = pl.col("arrival_rps")
    return (rps.is_finite() & (rps >= 0)).fill_null(value=False)


def _settle(path: str, frame: pl.DataFrame, options: Options) -> Settled:
    rate = profile(path, frame, options)
    bad = frame.filter(~_good()).height
    rate = rate.clipped(options.start_s, options.duration_s)
    rng = np.random.default_rng(options.seed)
    at_s = arrivals(rate, rng, options.arrival_cv)
    if not len(at_s):
        raise ConfigError(f"rate_scale: must make at least one request of {path}; got none")
    prompt, output = Lengths(options.prompt_tokens), Lengths(options.output_tokens)
    drawn = pl.DataFrame(
        {
            "arrival": at_s - rate.edges_s[0],
            "prompt_tokens": prompt.draw(len(at_s), rng),
            "output_tokens": output.draw(len(at_s), rng),
        }
    )
    notice = (
        f"{len(at_s):,} requests drawn from the rate curve with seed {options.seed}, rates times "
        f"{options.rate_scale:g}, {options.prompt_tokens:,} prompt and {options.output_tokens:,} "
        "output tokens each"
    )
    return Settled(drawn, (notice,), skipped=bad)


FORMATS = (
    Format(
        "start_s",
        "",
        "",
        also=frozenset({"arrival_rps"}),
        types={"arrival_rps": pl.Float64()},
        extract=_extract,
        settle=_settle,
        samples=True,
    ),
)
