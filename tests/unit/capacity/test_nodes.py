"""Room on nodes: one row a rule of placement."""

import pytest

from autoscaler.cluster.nodes import Nodes, unfit
from autoscaler.cluster.pods import Shape, Unknown

from .objects import GPU, a_node, a_pod

PAIR = Shape(GPU, 2)


def room(nodes, pods=(), shape=PAIR):
    found = Nodes(shape)
    found.add_nodes(nodes)
    found.add_pods(pods)
    return found


def test_whole_ranks_on_one_node_count_and_not_the_sum_of_what_is_left_over():
    nodes = [a_node("a", 8), a_node("b", 3), a_node("c", 1), a_node("cpu", 0)]
    found = room(nodes, [a_pod("x", 5, node="a")])
    assert found.pods == 1 + 1
    assert found.detail == (f"7 of 12 {GPU} free on 3 nodes, 2 together on one node 2 times")


def test_only_pods_that_hold_a_node_take_from_it():
    pods = [
        a_pod("running", 2, node="a"),
        a_pod("starting", 2, node="a", phase="Pending"),
        a_pod("done", 2, node="a", phase="Succeeded"),
        a_pod("failed", 2, node="a", phase="Failed"),
        a_pod("waiting", 2, phase="Pending"),
        a_pod("of-cpus", 0, node="a"),
        a_pod("elsewhere", 8, node="gone"),
    ]
    assert room([a_node("a", 8)], pods).pods == 2


def test_more_requested_than_there_is_is_no_debt_of_other_nodes():
    assert room([a_node("a", 4), a_node("b", 4)], [a_pod("x", 8, node="a")]).pods == 2


def test_init_containers_and_side_cars_hold_what_they_request():
    pod = a_pod("x", 1, node="a")
    pod["spec"]["initContainers"] = [
        {"resources": {"limits": {GPU: "4"}}},
        {"restartPolicy": "Always", "resources": {"requests": {GPU: "1"}}},
    ]
    assert room([a_node("a", 8)], [pod], Shape(GPU, 1)).pods == 4


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"unschedulable": True}, "cordoned"),
        ({"ready": "False"}, "not ready"),
        ({"ready": "Unknown"}, "not ready"),
        ({"ready": None}, "not ready"),
        ({"deleting": True}, "being deleted"),
        ({"taints": [{"key": "team", "value": "b", "effect": "NoSchedule"}]}, "tainted"),
        ({"taints": [{"key": "team", "effect": "NoExecute"}]}, "tainted"),
        ({"taints": [{"key": "team", "value": "b", "effect": "PreferNoSchedule"}]}, ""),
        ({}, ""),
    ],
)
def test_a_node_that_takes_no_pods_does_not_count_and_the_reason_is_told(change, why):
    found = room([a_node("a", 8, **change), a_node("b", 2)])
    assert found.pods == (1 if why else 5)
    assert found.detail.endswith(f"left out: 1 {why}") == bool(why)


TAINT = {"key": "gpu", "value": "h100", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "h100"}, True),
        ({"key": "gpu", "value": "h100", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "a100"}, False),
        ({"key": "gpu"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Equal"}, False),
    ],
)
def test_taints_are_tolerated_as_the_scheduler_does(toleration, fits):
    node = a_node("a", 8, taints=[TAINT])
    assert (unfit(node, {"tolerations": [toleration]}) == "") == fits


def expression(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("rules", "fits"),
    [
        ([expression("gpu", "In", "h100", "h200")], True),
        ([expression("gpu", "In", "a100")], False),
        ([expression("gpu", "NotIn", "a100")], True),
        ([expression("absent", "NotIn", "x")], True),
        ([expression("gpu", "Exists")], True),
        ([expression("gpu", "DoesNotExist")], False),
        ([expression("memory", "Gt", "40")], True),
        ([expression("memory", "Lt", "40")], False),
        ([expression("gpu", "Gt", "40")], False),
        ([expression("gpu", "Exists"), expression("memory", "Lt", "40")], False),
        ([], False),
    ],
)
def test_required_node_affinity_is_kept(rules, fits):
    node = a_node("a", 8, labels={"gpu": "h100", "memory": "80"})
    assert (unfit(node, affinity({"matchExpressions": rules})) == "") == fits


def affinity(*terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = list(terms)
    return {"affinity": {"nodeAffinity": required}}


def test_one_term_of_several_is_enough_and_names_may_be_asked_for():
    node = a_node("a", 8)
    never = {"matchExpressions": [expression("gpu", "Exists")]}
    named = {"matchFields": [expression("metadata.name", "In", "a")]}
    assert unfit(node, affinity(never)) == "of other labels"
    assert unfit(node, affinity(never, named)) == ""


def test_node_selectors_are_kept():
    node = a_node("a", 8, labels={"pool": "serving"})
    assert unfit(node, {"nodeSelector": {"pool": "serving"}}) == ""
    assert unfit(node, {"nodeSelector": {"pool": "training"}}) == "of other labels"


def test_an_operator_that_nobody_knows_makes_it_unknown():
    with pytest.raises(Unknown, match="operator must be a known one; got 'Near'"):
        unfit(a_node("a", 8), affinity({"matchExpressions": [expression("x", "Near")]}))
