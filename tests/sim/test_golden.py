"""Golden simulations: what shipped scenarios give, held to the last landing's figures.

To write them anew: ``python -m tests.sim.test_golden``. Say in the commit why a file changed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from autoscaler import scenario
from autoscaler.wiring import simulated

GOLDEN = Path(__file__).parents[2] / "simulations" / "golden"
CASES = {
    "azure-conv": ("threshold", "static:2"),
    "ramp-up-and-down": ("threshold", "model_based", "hpa"),
    "resize-restart": ("threshold", "static:8"),
    "noisy-metrics": ("threshold",),
}


def summary(name: str) -> dict[str, Any]:
    """The figures that are held, by policy."""
    case = scenario.load(name, {"policy": CASES[name]})
    document = simulated.simulate(case, simulated.load_trace(case))
    return {
        entry["policy"]: {
            "failed": entry["requests"]["failed"],
            "windows_ok_ratio": entry["slo"]["windows_ok_ratio"],
            "ttft_p95_s": entry["ttft_s"]["p95"],
            "itl_p50_s": entry["itl_s"]["p50"],
            "gpu_hours": entry["gpu_hours"],
            "resizes": entry["resizes"],
            "width": entry["width"],
        }
        for entry in document["results"]
    }


@pytest.mark.parametrize("name", CASES)
def test_a_scenario_gives_what_it_gave(name):
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    found = summary(name)
    assert found.keys() == expected.keys()
    for policy, figures in expected.items():
        # Not to the last bit: another compiler may round a sum otherwise, and a queue magnifies it.
        for key in ("windows_ok_ratio", "ttft_p95_s", "itl_p50_s", "gpu_hours"):
            assert found[policy][key] == pytest.approx(figures[key], rel=0.01), (policy, key)
        assert found[policy]["failed"] == pytest.approx(figures["failed"], rel=0.02)
        assert found[policy]["resizes"] == figures["resizes"]
        assert found[policy]["width"]["max"] == figures["width"]["max"]


if __name__ == "__main__":
    for each in CASES:
        text = json.dumps(summary(each), indent=1) + "\n"
        (GOLDEN / f"{each}.json").write_text(text)
