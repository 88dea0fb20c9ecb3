"""Where a search looks: every range is usable, and points and parameters are one to one."""

import numpy as np
import pytest

from autoscaler import plugins
from autoscaler.errors import ConfigError
from autoscaler.parameters import ranges
from autoscaler.policies import hpa, pid, static, threshold
from autoscaler.tuning.space import Space

SEARCHED = [
    kind
    for kind in plugins.names("policies")
    if ranges(plugins.find("policies", kind).Params) and kind != "static"
]

CONTRADICTS_OTHERS = {
    *("ttft_high_ratio", "ttft_low_ratio", "queue_high_per_width", "queue_low_per_width"),
    *("kv_spare_trigger_ratio", "queue_spare_trigger", "kv_cache_threshold_ratio"),
    "queue_threshold",
}
"""Where one parameter's limit is another parameter, only some combinations are permitted."""


@pytest.mark.parametrize("kind", SEARCHED)
@pytest.mark.parametrize("end", [0.0, 1.0])
def test_the_ends_of_every_range_are_permitted_values(kind, end):
    params = plugins.find("policies", kind).Params()
    space = Space("some", params)
    for at, name in enumerate(space.names):
        point = space.point(params)
        point[at] = end
        if name in CONTRADICTS_OTHERS:
            continue
        axis, _ = ranges(type(params))[name]
        value = axis.high if end else axis.low
        assert getattr(space.params(point), name) == pytest.approx(value)


def test_parameters_that_contradict_one_another_are_refused():
    space = Space("threshold", threshold.Params())
    point = space.point(threshold.Params())
    point[space.names.index("ttft_high_ratio")] = 0.0
    with pytest.raises(ConfigError, match="ttft_low_ratio: must be < ttft_high_ratio"):
        space.params(point)


@pytest.mark.parametrize("kind", SEARCHED)
def test_the_default_of_every_searched_parameter_is_where_the_search_looks(kind):
    params = plugins.find("policies", kind).Params()
    for name, (axis, _) in ranges(type(params)).items():
        assert axis.low <= getattr(params, name) <= axis.high, name


def test_the_point_of_parameters_gives_these_parameters_back():
    space = Space("pid", pid.Params())
    assert space.params(space.point(pid.Params())) == pid.Params()


def test_each_whole_number_has_an_equal_part_of_its_axis():
    space = Space("threshold", threshold.Params())
    at = space.names.index("step_up")
    point = space.point(threshold.Params())
    found = []
    for share in np.linspace(0, 1, 600):
        point[at] = share
        found.append(space.params(point).step_up)
    assert np.bincount(found)[1:].tolist() == [100] * 6


def test_a_logarithmic_range_gives_each_ratio_the_same_part():
    space = Space("pid", pid.Params())
    at = space.names.index("ki_per_s")
    point = space.point(pid.Params())
    found = []
    for share in (0.0, 0.5, 1.0):
        point[at] = share
        found.append(space.params(point).ki_per_s)
    assert found == [1e-4, 1e-3, 1e-2]


def test_what_has_no_range_stays_as_it_was():
    base = hpa.Params(signal="queue_depth", target=4.0)
    space = Space("some", base)
    assert space.params([0.0] * len(space.names)).signal == "queue_depth"


def test_a_policy_without_ranges_cannot_be_searched():
    with pytest.raises(ConfigError, match="policy static: must have parameters with a range"):
        Space("static", static.Params(4))
