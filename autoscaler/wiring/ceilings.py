"""What a gauge shows at saturation, against the value at which a policy means to hold it."""

from collections.abc import Iterator
from typing import Any

from autoscaler.findings import Finding, Level
from autoscaler.profile import Profile

_RATIOS = ("kv_cache_usage_ratio", "slo_attainment_ratio")


def of_gauges(params: Any, profile: Profile | None) -> Iterator[Finding]:
    """Targets that no measured value ever reaches, so that nothing ever grows.

    Args:
        params: the policy's; only those that hold signals at targets (``hpa``) are looked at.
        profile: says how many requests a unit of width runs at most; None: nobody does.
    """
    if not hasattr(params, "signal"):
        return
    first = {"signal": params.signal, "target": params.target, "per_width": params.per_width}
    for i, metric in enumerate((first, *params.also)):
        signal, target = metric["signal"], float(metric["target"])
        per_width = metric.get("per_width", True)
        most = 1.0 if signal in _RATIOS else None
        if signal == "running" and per_width and profile is not None:
            most = float(profile.slots_per_rank)
        if most is not None and target > most:
            key = "policy.target" if i == 0 else f"policy.also[{i - 1}].target"
            text = f"{target:g} is more than {signal} ever shows, {most:g}: nothing would grow"
            yield Finding(Level.WARNING, key, text, f"set it below {most:g}")
