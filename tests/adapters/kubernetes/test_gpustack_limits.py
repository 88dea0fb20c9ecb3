"""What the GPUStack target can do, as its deployment's command line and parameters say."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler import plugins
from autoscaler.cluster.connection import Access, Connection
from autoscaler.emulator.operator import Operator
from autoscaler.errors import ConfigError, TargetError, TargetForbidden
from autoscaler.model import SetResult, Tristate
from autoscaler.parameters import from_mapping
from autoscaler.targets import gpustack
from autoscaler.testing import ManualClock, check_target
from autoscaler.testing_apiserver import ApiServer, Rule, User

from .worlds import NAME, NAMESPACE, StubEngine, World, deployment

Make = Callable[..., gpustack.GpuStack]


@pytest.fixture
def target(api: ApiServer, tmp_path: Path) -> Iterator[Make]:
    made: list[gpustack.GpuStack] = []

    def build(*arguments: str, width: int = 2, **given: Any) -> gpustack.GpuStack:
        kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        api.store.create(kind, NAMESPACE, deployment(width, arguments))
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        made.append(
            gpustack.build(gpustack.Params(NAMESPACE, NAME, kubeconfig=kubeconfig, **given))
        )
        return made[-1]

    yield build
    for one in made:
        one.close()


def test_keeps_the_contract_of_its_port(world: World) -> None:
    check_target(world.target)


@pytest.mark.parametrize(
    ("arguments", "given", "highest"),
    [
        ((), {}, 64),
        (("--elastic-ep-max-dp-size=8",), {}, 8),
        (("--elastic_ep_max_dp_size", "8"), {"vllm_version": "0.33.0"}, 8),
        (("--elastic-ep-max-dp-size=100",), {}, 64),
        ((), {"vllm_version": "0.29.0"}, 64),
        ((), {"vllm_version": "0.30.0"}, 2),
        ((), {"vllm_version": "v0.33.1", "initial_width": 4}, 4),
        ((), {"vllm_version": "1.0.0"}, 2),
    ],
)
def test_growth_ends_where_the_engine_would_refuse_it_A22(
    target: Make, arguments: tuple[str, ...], given: dict[str, Any], highest: int
) -> None:
    made = target(*arguments, **given)
    made.read()
    can = made.capabilities()
    assert (can.min_width, can.max_width, can.can_shrink) == (2, highest, Tristate.NO)


def test_a_new_instance_may_grow_as_far_as_it_was_booted_A22(
    target: Make, api: ApiServer, clock: ManualClock, tmp_path: Path
) -> None:
    made = target(vllm_version="0.30.0")
    kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
    connection = Connection(Access(api.kubeconfig(tmp_path / "kubeconfig")))
    operator = Operator(connection, NAMESPACE, StubEngine(clock), clock)
    operator.run_once()
    made.read()

    def widen(found: dict[str, Any]) -> dict[str, Any]:
        found["spec"]["roles"][0]["elasticEp"]["width"] = 6
        return found

    raised = api.store.change(kind, NAMESPACE, NAME, widen)
    made.read()
    assert made.capabilities().max_width == 2, "the running engine was started with 2"
    operator.replace_master(raised)
    operator.run_once()
    made.read()
    assert made.capabilities().max_width == 6
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "gpus"), [((), 1), (("-tp", "4"), 4), (("--tensor_parallel_size=8",), 8)]
)
def test_gpus_of_a_rank_are_the_tensor_parallel_size(
    target: Make, arguments: tuple[str, ...], gpus: int
) -> None:
    assert target(*arguments).capabilities().gpus_per_width == gpus


def test_unreadable_gpus_of_a_rank_are_an_error_and_no_guess_A15(target: Make) -> None:
    made = target("--tensor-parallel-size", "$(TP)")
    with pytest.raises(ConfigError, match=f"{NAME}: role server: extraArgs: --tensor-parallel"):
        made.capabilities()


def test_a_role_of_another_name_is_not_touched_A29(target: Make, api: ApiServer) -> None:
    made = target(role="decode")
    with pytest.raises(TargetError, match=r"field_missing.*'decode'; got 0"):
        made.read()
    with pytest.raises(TargetError):
        made.capabilities()
    assert all(r.method == "GET" for r in api.requests)


def test_a_user_who_may_read_only_is_told_so_on_the_write(target: Make, api: ApiServer) -> None:
    made = target()
    reading = Rule(("get",), ("*",), ("modeldeployments", "configmaps"))
    api.tokens["admin"] = User("reader", (reading,))
    assert made.read().desired == 2
    answer = made.set_width(4, 2)
    assert answer.result is SetResult.FORBIDDEN
    assert 'User "reader" cannot patch' in answer.detail


def test_the_documented_role_is_all_that_is_needed(target: Make, api: ApiServer) -> None:
    made = target()
    rules = (
        Rule(("get", "patch"), ("worker.gpustack.ai",), ("modeldeployments",), (NAMESPACE,)),
        Rule(("get",), ("",), ("configmaps",), (NAMESPACE,)),
    )
    api.tokens["admin"] = User("autoscaler", rules)
    made.read()
    assert made.set_width(4, 2).result is SetResult.APPLIED
    api.tokens["admin"] = User("autoscaler", rules[:1])
    with pytest.raises(TargetForbidden, match="configmaps"):
        made.read()


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"namespace": "a/b"}, "namespace"),
        ({"name": ""}, "name"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"pause_s": -1}, "pause_s"),
        ({"initial_width": 1}, "initial_width"),
        ({"vllm_version": "new"}, "vllm_version"),
        ({"api_version": "v1"}, "api_version"),
        ({"rolle": "x"}, "rolle"),
    ],
)
def test_unusable_parameters_are_named(given: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"here: {key}"):
        from_mapping(gpustack.Params, {"namespace": "a", "name": "b", **given}, "here")


def test_targets_are_found_by_their_kind() -> None:
    known = plugins.names("targets")
    assert {"gpustack", "scale_subresource", "kserve", "ray_serve", "dry_run"} <= set(known)
    assert not any(name.startswith("_") for name in known)
    module = plugins.find("targets", "gpustack")
    assert module.Params is gpustack.Params


def test_the_stand_in_writes_the_operators_documents(
    api: ApiServer, clock: ManualClock, tmp_path: Path
) -> None:
    kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
    made = api.store.create(kind, NAMESPACE, deployment(4))
    connection = Connection(Access(api.kubeconfig(tmp_path / "kubeconfig")))
    Operator(connection, NAMESPACE, StubEngine(clock, 4), clock).run_once()
    uid = made["metadata"]["uid"]
    written = connection.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/elastic-observation-{uid}")
    connection.close()
    assert written["metadata"]["labels"] == {"gpustack.ai/elastic-observation": "true"}
    reference = written["metadata"]["ownerReferences"][0]
    assert reference["apiVersion"] == "worker.gpustack.ai/v1alpha1"
    layer = {"Known": True, "Value": 4, "Reason": ""}
    document = json.loads(written["data"]["observation.json"])
    master = document.pop("masterUID")
    assert master
    assert document == {
        "deploymentUID": uid,
        "observedGeneration": 1,
        **dict.fromkeys(("desired", "admitted", "allocated", "ray", "effective"), layer),
        "state": "",
        "reason": "native ranks and forwards agree",
        "stableWidth": 4,
    }


def test_the_stand_in_writes_nothing_when_nothing_changes(world: World, api: ApiServer) -> None:
    world.operator.run_once()
    version = api.store.version
    world.clock.advance(60.0)
    world.operator.run_once()
    assert api.store.version == version


def test_the_stand_in_goes_on_from_its_documents_after_a_restart(world: World) -> None:
    world.run(60.0)
    assert world.engine.commands == [4]
    world.operator = Operator(world.operations, NAMESPACE, world.engine, world.clock)
    world.run_until("converged")
    assert world.engine.commands == [4]


def test_a_hundred_targets_cost_a_few_calls_a_tick_and_none_waits_for_another_G80(
    api: ApiServer, tmp_path: Path
) -> None:
    kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
    kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
    made = []
    for number in range(100):
        name = f"d{number}"
        api.store.create(kind, NAMESPACE, {**deployment(), "metadata": {"name": name}})
        made.append(gpustack.build(gpustack.Params(NAMESPACE, name, kubeconfig=kubeconfig)))
    try:
        for target in made:  # the first reading also looks for capacity
            target.read()
        before = len(api.requests)
        began_s = time.perf_counter()
        assert {target.read().desired for target in made} == {2}
        took_s = time.perf_counter() - began_s
        calls = len(api.requests) - before
    finally:
        for target in made:
            target.close()
    assert calls <= 3 * len(made), "the deployment, its observation, its operation"
    # A client that limits itself takes this long at 10 calls a second; measured: 2 ms a call.
    assert took_s < calls / 10
