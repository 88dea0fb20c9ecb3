"""Looking for GPUs on a fake API server: pages, permissions, and few calls."""

import pytest

from autoscaler.cluster.capacity import Capacity, Room
from autoscaler.cluster.connection import Access, Connection
from autoscaler.cluster.pods import Shape, Unknown
from autoscaler.emulator.operator import Pace
from autoscaler.findings import Level
from autoscaler.targets import gpustack, scale_subresource
from autoscaler.testing_apiserver import ApiError, Fault, Rule, User
from autoscaler.testing_apiserver._lists import listed
from tests.unit.capacity.objects import (
    GPU,
    QUEUE,
    a_cluster_queue,
    a_local_queue,
    a_node,
    a_pod,
)

from .worlds import CRD, NAME, NAMESPACE

KUEUE = CRD.with_name("kueue-crds.yaml")
ENGINE = {"app.kubernetes.io/instance": NAME, "app.kubernetes.io/component": "server"}
GPUSTACK = Rule(("get", "patch"), ("worker.gpustack.ai",), ("modeldeployments",), (NAMESPACE,))
MAPS = Rule(("get",), ("",), ("configmaps",), (NAMESPACE,))
MINE = Rule(("list",), ("",), ("pods",), (NAMESPACE,))
CLUSTER = Rule(("list",), ("",), ("nodes", "pods"))
QUEUES = Rule(("get", "list"), ("kueue.x-k8s.io",), ("localqueues", "clusterqueues"))


class Cluster:
    """Nodes, Pods and queues of the fake server."""

    def __init__(self, api):
        self.api, self.store = api, api.store

    def nodes(self, *nodes):
        for node in nodes:
            self.store.create(self.store.resource("v1", "nodes"), "", node)

    def pods(self, *pods, namespace=NAMESPACE):
        for pod in pods:
            self.store.create(self.store.resource("v1", "pods"), namespace, pod)

    def ranks(self, count, node="a", gpus=2, **labels):
        """The engine's own Pods."""
        given = {**ENGINE, **labels}
        self.pods(*[a_pod(f"rank-{i}", gpus, node=node, labels=given) for i in range(count)])

    def queues(self, flavors, **spec):
        self.api.install(KUEUE)
        version = "kueue.x-k8s.io/v1beta1"
        kind = self.store.resource(version, "localqueues")
        self.store.create(kind, NAMESPACE, a_local_queue())
        self.use(self.store.resource(version, "clusterqueues"), flavors, **spec)

    def use(self, kind, flavors, **spec):
        queue = a_cluster_queue(flavors, **spec)
        self.store.create(kind, "", queue)
        how = lambda found: {**found, "status": queue["status"]}  # noqa: E731
        self.store.change(kind, "", "pool", how, subresource="status")

    def calls(self):
        """Paths of the look's own requests."""
        paths = [r.path for r in self.api.requests if r.method == "GET"]
        return [p for p in paths if p.rsplit("/", 1)[-1] in ("nodes", "pods") or "queue" in p]


@pytest.fixture
def cluster(api):
    return Cluster(api)


@pytest.fixture
def patient(make, api, tmp_path):
    """A target of the world's deployment whose readings may take ``timeout_s``."""
    built = []

    def build(timeout_s, token="admin"):  # noqa: S107  # opens nothing but the fake server
        make()
        kubeconfig = api.kubeconfig(tmp_path / "limited", token)
        params = gpustack.Params(NAMESPACE, NAME, kubeconfig=kubeconfig, timeout_s=timeout_s)
        built.append(gpustack.build(params))
        return built[-1]

    yield build
    for target in built:
        target.close()


def room_of(target, ticks=1):
    """What the target says of its GPUs after so many readings."""
    for _ in range(ticks):
        target.read()
    can = target.capabilities()
    return Room(can.free_gpus, can.capacity)


def test_the_nodes_room_is_counted_in_ranks_of_the_engines_own_pods(make, cluster):
    world = make()
    cluster.nodes(a_node("a", 8), a_node("b", 8, unschedulable=True))
    cluster.ranks(2)
    cluster.pods(a_pod("other", 1, node="a"), namespace="elsewhere")
    assert room_of(world.target) == Room(
        2, f"3 of 8 {GPU} free on 1 nodes, 2 together on one node 1 times; left out: 1 cordoned"
    )


def test_the_layer_with_the_least_is_the_one_that_is_named(make, cluster):
    world = make()
    cluster.nodes(a_node("a", 8))
    cluster.ranks(2)
    cluster.queues({"h100": (6, 4)})
    assert room_of(world.target) == Room(2, f"4 of 6 {GPU} of queue pool are taken")


def test_the_pods_name_their_queue_where_there_are_several(make, cluster, api):
    world = make()
    cluster.queues({"h100": (6, 6)})
    kind = api.store.resource("kueue.x-k8s.io/v1beta1", "localqueues")
    api.store.create(kind, NAMESPACE, a_local_queue("another", "nowhere"))
    cluster.nodes(a_node("a", 8))
    cluster.ranks(2, **{QUEUE: "team"})
    assert room_of(world.target).gpus == 0


def test_hundreds_of_pods_and_nodes_come_in_pages_and_all_of_them_count(patient, cluster, api):
    target = patient(60.0)
    cluster.nodes(*[a_node(f"n{i}", 8) for i in range(230)])
    cluster.ranks(2, node="n229")
    cluster.pods(*[a_pod(f"p{i}", 2, node=f"n{i % 230}") for i in range(600)])
    assert room_of(target).gpus == 230 * 8 - 2 * 602
    nodes = [r.query for r in api.requests if r.path == "/api/v1/nodes"]
    pods = [r.query for r in api.requests if r.path == "/api/v1/pods"]
    assert (len(nodes), len(pods)) == (3, 3)
    assert [bool(query.get("continue")) for query in pods] == [False, True, True]


def test_a_look_is_spread_over_ticks_where_one_has_no_time_for_it(patient, cluster, api):
    target = patient(2.0)
    cluster.nodes(*[a_node(f"n{i}", 8) for i in range(250)])
    cluster.ranks(2, node="n0")
    api.faults.append(Fault("slow", "GET", "/api/v1/nodes", times=None, delay_s=0.7))
    assert room_of(target) == Room(None, "not looked at yet")
    assert target.read().effective == 2
    # A page that does not come in time is a look that has failed; these come one a tick.
    assert room_of(target, ticks=2).gpus == 250 * 8 - 4


def test_a_look_is_remembered_for_some_ticks(make, cluster):
    world = make()
    cluster.nodes(a_node("a", 8))
    cluster.ranks(2)
    room_of(world.target, ticks=30)
    # One of the engine's Pods, three versions of Kueue that are not there, nodes, Pods.
    assert len(cluster.calls()) / 30 < 1.2
    assert cluster.calls().count("/api/v1/nodes") == 5


def test_new_capacity_is_seen_within_half_a_minute(make, cluster):
    world = make()
    cluster.nodes(a_node("a", 4))
    cluster.ranks(2)
    assert room_of(world.target).gpus == 0
    cluster.nodes(a_node("b", 8))
    assert room_of(world.target, ticks=7).gpus == 8


@pytest.mark.parametrize(
    ("rules", "gpus", "said"),
    [
        ((MINE, CLUSTER, QUEUES), 2, "queue pool"),
        ((MINE, QUEUES), 2, "queue pool"),
        ((MINE, CLUSTER), 4, "free on 1 nodes"),
        ((MINE,), None, 'cannot list resource "localqueues"'),
        ((), None, 'cannot list resource "pods"'),
    ],
)
def test_what_may_not_be_seen_is_unknown_and_the_rest_counts(
    patient, cluster, api, rules, gpus, said
):
    target = patient(4.0, "limited")
    cluster.nodes(a_node("a", 8))
    cluster.ranks(2)
    cluster.queues({"h100": (6, 4)})
    api.tokens["limited"] = User("limited", (GPUSTACK, MAPS, *rules))
    before = len(cluster.calls())
    for _ in range(30):
        assert target.read().effective == 2
    can = target.capabilities()
    assert can.free_gpus == gpus
    assert said in can.capacity
    if gpus is None:
        assert can.capacity.startswith("unknown: ")
        assert len(cluster.calls()) - before <= 4  # and not asked again for ten minutes


@pytest.mark.parametrize(
    "fault",
    [
        Fault("answer", path="/api/v1/nodes", status=500, times=None),
        Fault("answer", path="/api/v1/pods", status=410, times=None),
        Fault("close", path="/api/v1/pods", times=None),
        Fault("answer", path="/api/v1/nodes", status=200, body="[]", times=None),
        Fault("hang", path="/api/v1/nodes", times=None),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status} {fault.path.rsplit('/')[-1]}",
)
def test_a_look_that_fails_costs_no_reading(patient, cluster, api, fault):
    target = patient(1.0)
    cluster.nodes(a_node("a", 8))
    cluster.ranks(2)
    api.faults.append(fault)
    assert room_of(target).gpus is None
    assert target.read().effective == 2
    api.faults.clear()
    assert room_of(target, ticks=8).gpus == 4


def test_without_pods_of_the_engine_the_accelerator_is_not_guessed(make, cluster):
    world = make()
    cluster.nodes(a_node("a", 8))
    cluster.pods(a_pod("head", 0, labels={**ENGINE, "app.kubernetes.io/component": "head"}))
    cluster.pods(a_pod("gone", 2, labels=ENGINE, phase="Failed"))
    found = room_of(world.target)
    assert found.gpus is None
    assert "no Pod labelled app.kubernetes.io/instance=b2-elastic-ep" in found.detail


def test_growth_is_held_until_the_gpus_are_there_and_then_it_is_asked_for(make, cluster, clock):
    world = make(wanted=4)
    cluster.nodes(a_node("a", 4))
    cluster.ranks(2)
    assert set(world.run(300.0)) == {"steady"}
    assert world.writes == []
    last = world.log.decisions[-1]
    assert last.code == "no_capacity"
    assert last.reason == (
        "4 more GPUs are needed for width 4, there are 0: "
        f"0 of 4 {GPU} free on 1 nodes, 2 together on one node 0 times"
    )
    cluster.nodes(a_node("b", 4))
    world.run_until("converged")
    assert len(world.writes) == 1
    assert world.engine.commands == [4]


def test_a_resize_whose_quota_went_to_somebody_else_says_so_A07(make, cluster):
    world = make(wanted=4, pace=Pace(capacity=3))
    said = world.run_until("waiting_for_capacity")
    assert said.reason.startswith("admitted 3 of 4 for ")
    assert "new members are not admitted, allocated and registered" in said.reason
    assert world.writes != []


def test_a_check_tells_what_can_be_had_and_what_is_missing_to_know_it(make, cluster, api):
    world = make()
    unknown = next(f for f in world.target.findings() if f.subject == "capacity")
    assert unknown.level is Level.WARNING
    assert "grant list on nodes, pods and localqueues" in unknown.cure
    cluster.nodes(a_node("a", 4))
    cluster.ranks(2)
    short = next(f for f in world.target.findings() if f.subject == "capacity")
    assert (short.level, short.detail[:25]) == (Level.WARNING, "0 more GPUs can be had: 0")
    cluster.nodes(a_node("b", 4))
    good = next(f for f in world.target.findings() if f.subject == "capacity")
    assert good.level is Level.OK


def test_a_deployment_is_looked_for_by_its_template(api, cluster, tmp_path):
    kind = api.store.resource("apps/v1", "deployments")
    template = {"metadata": {}, "spec": a_pod("x", 4)["spec"]}
    api.store.create(
        kind,
        NAMESPACE,
        {"metadata": {"name": "web"}, "spec": {"replicas": 1, "template": template}},
    )
    cluster.nodes(a_node("a", 8))
    cluster.pods(a_pod("web-1", 4, node="a"))
    target = scale_subresource.build(
        scale_subresource.Params(
            NAMESPACE,
            "web",
            "deployment",
            max_width=8,
            gpus_per_width=4,
            kubeconfig=api.kubeconfig(tmp_path / "kubeconfig"),
        )
    )
    target.read()
    assert target.capabilities().free_gpus == 4
    target.close()


def test_a_shape_that_cannot_be_told_is_looked_for_again(api, tmp_path):
    connection = Connection(Access(api.kubeconfig(tmp_path / "kubeconfig")))
    asked = []

    def shape(until_s: float) -> Shape:
        asked.append(until_s)
        raise Unknown("nobody says")

    capacity = Capacity(connection, NAMESPACE, shape, queued=True)
    for _ in range(14):
        capacity.tick(connection.deadline_s())
    assert len(asked) == 2
    assert capacity.room == Room(None, "unknown: nobody says")
    connection.close()


def test_lists_of_the_fake_server_are_as_a_real_ones(api, cluster, tmp_path):
    cluster.pods(*[a_pod(f"p{i}", 1, node="a" if i % 2 else "") for i in range(5)])
    connection = Connection(Access(api.kubeconfig(tmp_path / "kubeconfig")))
    first = connection.get("/api/v1/pods", limit="2")
    assert [item["metadata"]["name"] for item in first["items"]] == ["p0", "p1"]
    assert first["metadata"]["remainingItemCount"] == 3
    cluster.pods(a_pod("p4a", 1))
    token = first["metadata"]["continue"]
    rest = connection.get("/api/v1/pods", **{"limit": "9", "continue": token})
    assert [item["metadata"]["name"] for item in rest["items"]] == ["p2", "p3", "p4"]
    assert "continue" not in rest["metadata"]
    placed = connection.get("/api/v1/pods", fieldSelector="spec.nodeName!=")
    assert [item["metadata"]["name"] for item in placed["items"]] == ["p1", "p3"]
    connection.close()
    kind = api.store.resource("v1", "pods")
    with pytest.raises(ApiError, match="field label not supported"):
        listed(api.store, kind, "", {"fieldSelector": "spec.x=1"})
    with pytest.raises(ApiError, match="continue key is not valid"):
        listed(api.store, kind, "", {"continue": "nonsense"})
    api.store.compact()
    with pytest.raises(ApiError, match="too old to display a consistent list"):
        listed(api.store, kind, "", {"continue": token})
