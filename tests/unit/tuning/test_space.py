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


@pytest.mark.parametrize("kind", SEARCHED)
def test_both_ends_of_every_range_are_permitted_values(kind):
    params = plugins.find("policies", kind).Params()
    space = Space(params)
    middle = space.point(params)
    for at, name in enumerate(space.names):
        axis, _ = ranges(type(params))[name]
        for end, value in ((0.0, axis.low), (1.0, axis.high)):
            point = list(middle)
            point[at] = end
            try:
                found = space.params(point)
            except ConfigError as error:
                assert "must be <" in str(error)  # two parameters that contradict one another
            else:
                assert getattr(found, name) == pytest.approx(value)


@pytest.mark.parametrize("kind", SEARCHED)
def test_the_default_of_every_searched_parameter_is_where_the_search_looks(kind):
    params = plugins.find("policies", kind).Params()
    for name, (axis, _) in ranges(type(params)).items():
        assert axis.low <= getattr(params, name) <= axis.high, name


def test_the_point_of_parameters_gives_these_parameters_back():
    space = Space(pid.Params())
    assert space.params(space.point(pid.Params())) == pid.Params()


def test_each_whole_number_has_an_equal_part_of_its_axis():
    space = Space(threshold.Params())
    at = space.names.index("step_up")
    point = space.point(threshold.Params())
    found = []
    for share in np.linspace(0, 1, 600):
        point[at] = share
        found.append(space.params(point).step_up)
    assert np.bincount(found)[1:].tolist() == [100] * 6


def test_a_logarithmic_range_gives_each_ratio_the_same_part():
    space = Space(pid.Params())
    at = space.names.index("ki_per_s")
    point = space.point(pid.Params())
    found = []
    for share in (0.0, 0.5, 1.0):
        point[at] = share
        found.append(space.params(point).ki_per_s)
    assert found == [1e-4, 1e-3, 1e-2]


def test_what_has_no_range_stays_as_it_was():
    base = hpa.Params(signal="queue_depth", target=4.0)
    space = Space(base)
    assert space.params([0.0] * len(space.names)).signal == "queue_depth"


def test_a_policy_without_ranges_cannot_be_searched():
    with pytest.raises(ConfigError, match="must have parameters that can be searched"):
        Space(static.Params(4))
