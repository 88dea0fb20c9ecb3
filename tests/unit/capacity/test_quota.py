"""Kueue's quota: what it leaves, and what it does not say."""

import pytest

from autoscaler.cluster.pods import Shape, Unknown
from autoscaler.cluster.quota import cluster_queue_name, local_queue, pods

from .objects import GPU, a_cluster_queue, a_local_queue

PAIR = Shape(GPU, 2)
LOCAL = a_local_queue()


@pytest.mark.parametrize(
    ("queue", "left", "said"),
    [
        (a_cluster_queue({"h100": (8, 3)}), 2, f"3 of 8 {GPU} of queue pool are taken"),
        (a_cluster_queue({"h100": (8, 8)}), 0, f"8 of 8 {GPU} of queue pool are taken"),
        (a_cluster_queue({"h100": (8, 12)}), 0, f"12 of 8 {GPU} of queue pool are taken"),
        # What is left over in two flavours makes no rank.
        (a_cluster_queue({"h100": (3, 0), "h200": (3, 0)}), 2, f"0 of 6 {GPU}"),
        # What is reserved is gone before it is used.
        (a_cluster_queue({"h100": (8, 8)}, key="flavorsReservation"), 0, f"8 of 8 {GPU}"),
        (a_cluster_queue({"h100": (8, 8, 4)}, cohort="all"), 2, f"8 of 12 {GPU}"),
        (a_cluster_queue({"h100": (8, 8, 4)}, cohortName="all"), 2, f"8 of 12 {GPU}"),
        (a_cluster_queue({"h100": (8, 8, 0)}, cohortName="all"), 0, f"8 of 8 {GPU}"),
        (a_cluster_queue({"h100": (8, 0)}, stopPolicy="None"), 4, f"0 of 8 {GPU}"),
        (a_cluster_queue({"h100": (8, 0)}, stopPolicy="Hold"), 0, "queue pool is stopped (Hold)"),
        (a_cluster_queue({"h100": (8, 0)}, active="False"), 0, "queue pool is not active"),
    ],
)
def test_what_a_queue_leaves(queue, left, said):
    count, detail = pods(LOCAL, queue, PAIR)
    assert count == left
    assert detail.startswith(said)


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        (a_cluster_queue({"h100": (8, 8)}, cohort="all"), "may borrow nvidia.com/gpu without"),
        (a_cluster_queue({}), "does not count nvidia.com/gpu"),
    ],
)
def test_a_queue_without_a_limit_limits_nothing(queue, said):
    count, detail = pods(LOCAL, queue, PAIR)
    assert count is None
    assert said in detail


def test_a_stopped_local_queue_admits_nothing():
    queue = a_local_queue(stopPolicy="HoldAndDrain")
    assert pods(queue, a_cluster_queue({"h100": (8, 0)}), PAIR)[0] == 0


def test_a_quota_that_is_no_whole_number_makes_it_unknown():
    with pytest.raises(Unknown, match=r"nominalQuota of nvidia\.com/gpu must be a whole number"):
        pods(LOCAL, a_cluster_queue({"h100": ("7500m", 0)}), PAIR)


def test_the_queue_that_pods_name_else_the_only_one():
    queues = [a_local_queue("a"), a_local_queue("b")]
    assert local_queue(queues, "b")["metadata"]["name"] == "b"
    assert local_queue(queues[:1], "")["metadata"]["name"] == "a"
    assert local_queue([], "") is None
    with pytest.raises(Unknown, match="must name one of a, b"):
        local_queue(queues, "")
    with pytest.raises(Unknown, match="LocalQueue c: must be there; got a, b"):
        local_queue(queues, "c")


def test_a_local_queue_of_no_cluster_queue_makes_it_unknown():
    assert cluster_queue_name(LOCAL) == "pool"
    with pytest.raises(Unknown, match=r"spec\.clusterQueue: must be there"):
        cluster_queue_name({"spec": {}})
