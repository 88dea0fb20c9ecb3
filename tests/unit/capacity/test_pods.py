"""The accelerator of a Pod is what the Pod says, and nothing where it does not."""

import pytest

from autoscaler.cluster.pods import Unknown, requests, shape, whole
from autoscaler.targets._pods import of_template

from .objects import GPU, QUEUE, a_pod


def test_the_one_extended_resource_with_that_many_is_the_accelerator():
    found = shape(a_pod("x", 2, labels={QUEUE: "team"}, tolerations=[{"operator": "Exists"}]), 2)
    assert (found.resource, found.gpus, found.queue) == (GPU, 2, "team")
    assert found.spec["tolerations"] == [{"operator": "Exists"}]
    assert shape(a_pod("x", 1, resource="amd.com/gpu"), 1).resource == "amd.com/gpu"


def test_what_is_ambiguous_or_missing_is_unknown_and_a_name_settles_it():
    pod = a_pod("x", 2)
    pod["spec"]["containers"].append({"resources": {"limits": {"rdma/hca": 2}}})
    with pytest.raises(
        Unknown, match=r"one accelerator of which it takes 2; got 2 .nvidia.com/gpu"
    ):
        shape(pod, 2)
    assert shape(pod, 2, GPU).resource == GPU
    with pytest.raises(Unknown, match="takes 4; got 0"):
        shape(pod, 4)
    with pytest.raises(Unknown, match=r"must request 4 of nvidia\.com/gpu; got 2"):
        shape(pod, 4, GPU)
    with pytest.raises(Unknown, match="got 0"):
        shape({}, 1)


def test_a_limit_alone_is_a_request():
    assert requests({"containers": [{"resources": {"limits": {GPU: "4"}}}]}) == {GPU: 4}


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), (8, 8), ("1k", 1000), ("0", 0), ("500m", None), ("1.5", None), (True, None)],
)
def test_quantities(text, number):
    assert whole(text) == number


def template(gpus, labels=None):
    return {"metadata": {"labels": labels or {}}, "spec": a_pod("x", gpus)["spec"]}


def test_a_replica_of_a_deployment_is_its_template_and_its_own_label_names_the_queue():
    obj = {"metadata": {"labels": {QUEUE: "team"}}, "spec": {"template": template(4)}}
    found = of_template("deployment", obj, 4, None)
    assert (found.resource, found.gpus, found.pods_per_width, found.queue) == (GPU, 4, 1, "team")


def test_a_group_shares_its_gpus_among_its_pods():
    group = {"size": 2, "workerTemplate": template(8), "leaderTemplate": template(8)}
    obj = {"metadata": {}, "spec": {"leaderWorkerTemplate": group}}
    found = of_template("leaderworkerset", obj, 16, None)
    assert (found.gpus, found.pods_per_width) == (8, 2)
    with pytest.raises(Unknown, match="a group of 2 Pods must share 15 GPUs evenly"):
        of_template("leaderworkerset", obj, 15, None)
    group["leaderTemplate"] = template(4)
    with pytest.raises(Unknown, match=r"must request 8 of nvidia\.com/gpu; got 4"):
        of_template("leaderworkerset", obj, 16, None)
