"""``autoscaler check`` against a real Prometheus, the emulated engine and a fake API server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from autoscaler import cli
from autoscaler.engine.fleet import Load
from autoscaler.testing import ManualClock
from autoscaler.testing_apiserver import ApiServer, Rule, User
from tests.adapters.kubernetes.test_replicas import crd
from tests.adapters.kubernetes.worlds import CRD, NAME, NAMESPACE, World, deployment
from tests.adapters.prometheus.conftest import Prometheus, Start
from tests.adapters.prometheus.servers import Answer, Server, free_port
from tests.e2e.emulator.worlds import Caller, emulated

INTERVAL_S = 0.25
LABELS = {"namespace": "bench", "model_name": "emulated"}
QUIET = {"cooldown_down_s": 60, "scale_down_window_s": 60, "settle_s": 10}


@pytest.fixture(scope="module")
def engine() -> Iterator[Caller]:
    n = 40_000
    load = Load(np.arange(n) / 4, np.full(n, 10, np.int32), np.full(n, 20, np.int32))
    with emulated(2, time_scale=10.0, trace=load) as call:
        yield call


@pytest.fixture(scope="module")
def prometheus(engine: Caller, start_prometheus: Start) -> Prometheus:
    target = engine.url.removeprefix("http://")
    started = start_prometheus({"engine": (target, {"namespace": "bench"})}, 250)
    full = 'count_over_time(vllm:num_requests_running{engine="0"}[5s]) > 16'
    started.wait_for(lambda: bool(started.query(full)), "a whole window")
    return started


class Bench:
    """One configuration, and what a check says of it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.content: dict[str, Any] = {"tick_s": 5, "targets": [{"name": "chat"}]}
        self.entry: dict[str, Any] = self.content["targets"][0]
        self.entry |= {"policy": "threshold", "guards": dict(QUIET)}
        self.entry["slo"] = {"ttft_p95_s": 5.0, "window_s": 4 * INTERVAL_S * 4}

    def save(self) -> Path:
        path = self.folder / "autoscaler.yaml"
        self.content["tick_s"] = min(self.content["tick_s"], self.entry["slo"]["window_s"])
        path.write_text(yaml.safe_dump(self.content), encoding="utf-8")
        return path

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, and what was printed."""
        with pytest.raises(SystemExit) as ended:
            cli.main(["check", "--config", str(self.save()), "--patience-s", "4", *arguments])
        printed = self._capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    def findings(self, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
        """Exit code, and the findings by subject, the worst one of each."""
        code, out, _ = self.run("--format", "json", *arguments)
        document = json.loads(out)
        assert document["schema"] == "autoscaler.check/v1"
        order = ["ok", "warning", "error"]
        rows = sorted(document["findings"], key=lambda row: order.index(row["level"]))
        return code, {s: row for row in rows for s in row["subject"].split(", ")}

    def finding(self, subject: str, level: str, *said: str, code: int | None = None) -> None:
        """The check says this of the subject, and what to do about it."""
        exit_code, found = self.findings()
        assert subject in found, found
        row = found[subject]
        text = f"{row['detail']} | {row['cure']}"
        assert row["level"] == level, text
        assert row["cure"] or level == "ok", row
        for part in said:
            assert part in text
        expected = (3 if level == "error" else 0) if code is None else code
        assert exit_code == expected, found


@pytest.fixture
def bench(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    prometheus: Prometheus,
    engine: Caller,
) -> Bench:
    made = Bench(tmp_path, capsys)
    made.entry["source"] = {
        "kind": "prometheus",
        "url": prometheus.url,
        "labels": dict(LABELS),
        "scrape_interval_s": INTERVAL_S,
        "timeout_s": 2.0,
    }
    made.entry["target"] = {
        "kind": "vllm",
        "url": engine.url,
        "max_width": 4,
        "gpus_per_width": 1,
        "timeout_s": 1.0,
    }
    return made


def test_all_in_order_is_said_with_exit_code_0(bench: Bench) -> None:
    code, found = bench.findings()
    assert code == 0
    assert {row["level"] for row in found.values()} == {"ok"}, found
    assert found["width"]["detail"] == "2 serves, 2 is desired"
    assert found["namespace"]["detail"] == "namespace='bench' selects series"
    assert found["guards"]["detail"] == "widths 2 to 4 can be asked for"
    code, out, _ = bench.run()
    assert code == 0
    assert "0 errors, 0 warnings" in out


def test_the_table_of_a_process_names_target_severity_what_and_cure(bench: Bench) -> None:
    bench.entry["source"]["labels"]["namespace"] = "benhc"
    done = subprocess.run(
        [sys.executable, "-m", "autoscaler", "check", "--config", str(bench.save())],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    first = next(line for line in done.stdout.splitlines() if "selects nothing" in line)
    assert first.split()[:3] == ["error", "chat", "namespace"]
    assert "set source.labels.namespace to" in first
    assert done.stdout.splitlines()[0].split() == ["severity", "target", "what", "cure"]


def test_a_wrong_address_is_named_M13(bench: Bench, engine: Caller) -> None:
    source = bench.entry["source"]
    closed = f"http://127.0.0.1:{free_port()}"
    source["url"] = closed
    bench.finding("source", "error", closed, "connection refused", "set source.url to an address")
    source["url"] = engine.url  # answers, and is no Prometheus
    bench.finding("source", "error", f"{engine.url}: ", "HTTP 404", "the server that is meant")
    with Server(Answer("<html>log in</html>", headers={"Content-Type": "text/html"})) as login:
        source["url"] = login.url
        bench.finding("source", "error", "it is no JSON", "set source.url to the server")
    with Server(Answer("", status=403)) as closed_door:
        source["url"] = closed_door.url
        bench.finding("source", "error", "HTTP 403", "source.bearer_token_file")


def test_a_wrong_address_of_the_engine_is_named(bench: Bench) -> None:
    bench.entry["target"]["url"] = f"http://127.0.0.1:{free_port()}"
    bench.finding("target", "error", "connection refused", "an address that this machine can reach")


def test_a_label_that_selects_nothing_is_told_with_what_is_there_M09_M10(bench: Bench) -> None:
    labels = bench.entry["source"]["labels"]
    labels["model_name"] = "emulatde"
    bench.finding(
        "model_name", "error", "there is 'emulated'", "is 'emulated' meant?",
        "set source.labels.model_name to 'emulated'",
    )  # fmt: skip
    labels["namespace"] = "benhc"  # both wrong: each is told from all that is there
    bench.finding("model_name", "error", "is 'emulated' meant?")
    bench.finding("namespace", "error", "is 'bench' meant?")
    labels |= {"namespace": "bench", "model_name": "emulated", "pod": "x"}
    bench.finding("pod", "error", "no series has a label pod", "leave source.labels.pod out")
    _, found = bench.findings()
    assert found["namespace"]["level"] == found["model_name"]["level"] == "ok"


def test_a_window_shorter_than_the_scrape_allows_is_no_usable_config_M25(bench: Bench) -> None:
    bench.entry["slo"]["window_s"] = 1.5 * INTERVAL_S
    bench.entry["source"]["timeout_s"] = bench.entry["target"]["timeout_s"] = 0.1
    code, out, err = bench.run()
    assert (code, out) == (2, "")
    assert "targets[0].slo.window_s: must be at least twice source.scrape_interval_s" in err


def test_a_scrape_slower_than_was_said_is_found_out_M25(bench: Bench) -> None:
    bench.entry["source"]["scrape_interval_s"] = 0.05
    bench.finding("scrape_interval_s", "error", "got 0.05 s", "set source.scrape_interval_s to 0.2")
    bench.entry["source"]["scrape_interval_s"] = 1.3
    bench.finding("window_s", "warning", "should be >= 4 scrape intervals", "set slo.window_s to")


def test_an_objective_between_two_bucket_bounds_is_told_both(bench: Bench) -> None:
    bench.entry["slo"]["ttft_p95_s"] = 6.0
    bench.finding("ttft_p95_s", "warning", "6 s is no bucket bound", "to 5 or 7.5")
    code, _, _ = bench.run("--strict")
    assert code == 3


def test_what_no_measured_value_ever_reaches_is_found_M29(bench: Bench) -> None:
    bench.entry["slo"] |= {"ttft_p95_s": 3000.0, "failure_penalty_s": 4000.0}
    bench.finding("ttft_p95_s", "error", "beyond the highest bucket bound, 2560 s")
    bench.entry["slo"] |= {"ttft_p95_s": 40.0, "failure_penalty_s": 30.0}
    bench.finding("slo.failure_penalty_s", "error", "a failed request would count as a good one")


def test_delays_shorter_than_what_they_look_back_on_are_warned_of_T04(bench: Bench) -> None:
    bench.entry["guards"]["cooldown_down_s"] = 1
    bench.finding(
        "targets[0].guards.cooldown_down_s", "warning", "should be at least slo.window_s",
        "autoscaler.yaml",
    )  # fmt: skip


def test_a_timeout_as_long_as_a_tick_is_no_usable_config(bench: Bench) -> None:
    bench.entry["source"]["timeout_s"] = 5
    code, _, err = bench.run()
    assert code == 2
    assert "targets[0].source.timeout_s: must be shorter than tick_s (4); got 5" in err
    bench.entry["source"]["timeout_s"] = 3.9
    bench.finding("tick_s", "ok", "takes up to 4.9 s", "to 4 s in all", code=0)


def test_bounds_that_the_target_cannot_keep_are_found(bench: Bench) -> None:
    bench.entry["guards"] = {**QUIET, "min_width": 6}
    bench.finding("guards", "error", "no width is within both the bounds and the target's 2 to 4")
    bench.entry["guards"] = {**QUIET, "max_width": 9}
    bench.finding("guards.max_width", "warning", "9 is above the highest width of the target, 4")
    bench.entry["guards"] = {**QUIET, "max_width": 2}
    bench.finding("guards", "warning", "there is no width to go to from 2")
    bench.entry["guards"] = {**QUIET, "min_width": 3}
    bench.finding("guards", "warning", "the desired width 2 is not within 3 to 4")
    bench.entry["guards"] = dict(QUIET)
    bench.entry["profile"] = "h100-dsv2lite-elastic-ep-rdma"
    bench.entry["target"]["max_width"] = 16
    bench.finding("profile", "warning", "width 16 is beyond the widest of the profile")


def test_a_policy_that_needs_a_profile_says_so(bench: Bench) -> None:
    policy = bench.folder / "mine.yaml"
    policy.write_text("kind: tests.e2e.live.needs_profile\n", encoding="utf-8")
    bench.entry["policy"] = "mine.yaml"
    code, _, err = bench.run()
    assert code == 2
    assert "targets[0].policy: " in err
    assert "must be given, this policy predicts from it" in err


def test_decisions_that_could_not_be_written_are_found(bench: Bench) -> None:
    bench.content["decisions"] = {"path": "nowhere/decisions.jsonl"}
    bench.finding("decisions.path", "error", "nowhere", "make the folder")


def test_a_scraped_engine_is_checked_alike(bench: Bench, engine: Caller) -> None:
    bench.entry["source"] = {"kind": "scrape", "urls": [f"{engine.url}/metrics"], "timeout_s": 1}
    bench.entry["source"]["scrape_interval_s"] = 1
    code, found = bench.findings()
    assert code == 0, found
    assert found["ttft_p95_s"]["detail"] == "5 s is a bucket bound"
    bench.entry["source"]["urls"] = [engine.url]
    bench.finding("source", "error", "HTTP 404", "set source.urls to the server that is meant")


def test_no_secret_is_shown_G76(bench: Bench) -> None:
    secret = bench.folder / "password"
    secret.write_text("hunter2-and-more", encoding="utf-8")
    bench.entry["source"] |= {"username": "reader", "password_file": str(secret)}
    bench.entry["source"]["url"] = f"http://127.0.0.1:{free_port()}/?token=abc-def"
    code, out, err = bench.run()
    assert code in (2, 3)
    assert "hunter2" not in out + err
    assert "abc-def" not in out + err


# On an API server.


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer(ManualClock()) as server:
        server.install(CRD)
        yield server


@pytest.fixture
def stacked(bench: Bench, api: ApiServer) -> Iterator[Bench]:
    """A GPUStack deployment that its operator has observed."""
    with ExitStack() as stack:
        world = World(api, ManualClock(), bench.folder)
        stack.callback(world.close)
        bench.entry["target"] = {
            "kind": "gpustack",
            "namespace": NAMESPACE,
            "name": NAME,
            "kubeconfig": str(bench.folder / "kubeconfig"),
            "timeout_s": 1.0,
        }
        yield bench


def replace_deployment(api: ApiServer, width: int, arguments: tuple[str, ...]) -> None:
    kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
    spec = deployment(width, arguments)["spec"]
    api.store.change(kind, NAMESPACE, NAME, lambda found: {**found, "spec": spec})


def test_a_gpustack_deployment_in_order_is_written_by_nobody(
    stacked: Bench, api: ApiServer
) -> None:
    before = api.store.version
    code, found = stacked.findings()
    assert code == 0, found
    assert found["permission"]["detail"] == "a dry run of width 3 is permitted"
    assert found["width limit"]["detail"] == "2 of 8 at most: --elastic-ep-max-dp-size 8"
    assert api.store.version == before
    patches = [r for r in api.requests if r.method == "PATCH" and "dryRun" not in r.query]
    assert not [r for r in patches if r.path.endswith(NAME)]


READ = Rule(("get", "list"), ("*",), ("modeldeployments", "configmaps"))


def test_no_permission_to_patch_is_found_by_a_dry_run(stacked: Bench, api: ApiServer) -> None:
    api.tokens["admin"] = User("reader", (READ,))
    stacked.finding(
        "permission", "error", "cannot patch", "grant patch on modeldeployments of worker.gpustack"
    )


@pytest.mark.parametrize("kept", ["modeldeployments", "configmaps"])
def test_no_permission_to_read_is_named(stacked: Bench, api: ApiServer, kept: str) -> None:
    api.tokens["admin"] = User("reader", (Rule(("get", "patch"), ("*",), (kept,)),))
    other = {"modeldeployments": "configmaps", "configmaps": "modeldeployments"}[kept]
    stacked.finding("target", "error", "cannot get", other, "grant what the message names")


def test_an_unknown_token_is_named(stacked: Bench, api: ApiServer) -> None:
    api.tokens.clear()
    stacked.finding("target", "error", "401", "a token or certificate that the server knows")


def test_a_deployment_without_the_width_field_is_found_A02(stacked: Bench, api: ApiServer) -> None:
    stacked.entry["target"]["role"] = "decode"
    stacked.finding("target", "error", "field_missing", "elasticEp.width", "check kind, name and")
    stacked.entry["target"] |= {"role": None, "name": "another"}
    stacked.finding("target", "error", "404", "correct target.namespace, target.name")


def test_a_width_above_the_flags_limit_is_found_A22(stacked: Bench, api: ApiServer) -> None:
    replace_deployment(api, 2, ())
    stacked.finding("width limit", "warning", "no --elastic-ep-max-dp-size", "vllm_version")
    replace_deployment(api, 4, ("--elastic-ep-max-dp-size=4",))
    stacked.finding("width limit", "warning", "is the engine's limit already", "a larger --elastic")
    replace_deployment(api, 8, ("--tensor-parallel-size=2", "--elastic-ep-max-dp-size=4"))
    stacked.finding(
        "width limit", "error", "width 8 is above the engine's limit 4",
        "with --elastic-ep-max-dp-size 8",
    )  # fmt: skip


def test_unreadable_gpus_of_a_rank_are_found_A15(stacked: Bench, api: ApiServer) -> None:
    replace_deployment(api, 2, ("--tensor-parallel-size", "$(TP)"))
    stacked.finding("target", "error", "extraArgs: --tensor-parallel-size", "correct what the")


def test_whoever_set_the_width_last_is_named_G33(stacked: Bench, api: ApiServer) -> None:
    width = {"f:elasticEp": {"f:width": {}}}

    def managed_by(manager: str) -> None:
        kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        fields = {"f:spec": {"f:roles": {'k:{"name":"server"}': width}}}
        entry = {"manager": manager, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}

        def change(found: dict[str, Any]) -> dict[str, Any]:
            return {**found, "metadata": {**found["metadata"], "managedFields": [entry]}}

        api.store.change(kind, NAMESPACE, NAME, change)

    managed_by("argocd-controller")
    stacked.finding("last writer", "warning", "'argocd-controller'", "ignore the field")
    managed_by("keda-operator")
    stacked.finding("last writer", "error", "'keda-operator'", "unbind it")
    managed_by("autoscaler")
    _, found = stacked.findings()
    assert "last writer" not in found


@pytest.mark.parametrize(("mode", "level"), [("Active", "error"), ("Shadow", "ok")])
def test_a_model_deployment_scaler_that_is_bound_is_found_A17(
    stacked: Bench, api: ApiServer, mode: str, level: str
) -> None:
    served = "worker.gpustack.ai/v1"
    scalers = crd(served, "modeldeploymentscalers", "ModelDeploymentScaler", scale=False)
    api.store.install(scalers)
    kind = api.store.resource(served, "modeldeploymentscalers")
    for name, target in (("ours", NAME), ("theirs", "another")):
        spec = {"targetRef": {"name": target}, "mode": mode}
        api.store.create(kind, NAMESPACE, {"metadata": {"name": name}, "spec": spec})
    stacked.finding("other autoscalers", level, "ModelDeploymentScaler ours")
    api.tokens["admin"] = User("steerer", (Rule(("get", "patch"), ("*",), ("*",)),))
    stacked.finding("other autoscalers", "ok", "none that may be seen")


def test_a_scale_that_may_not_be_patched_and_autoscalers_bound_to_it_are_found(
    bench: Bench, api: ApiServer
) -> None:
    deployments = api.store.resource("apps/v1", "deployments")
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}},
    }
    api.store.create(deployments, "here", {"metadata": {"name": "a"}, "spec": spec}, "helm")
    status = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    api.store.change(
        deployments, "here", "a", lambda found: {**found, "status": status}, subresource="status"
    )
    bench.entry["target"] = {
        "kind": "scale_subresource",
        "namespace": "here",
        "name": "a",
        "workload": "deployment",
        "max_width": 4,
        "gpus_per_width": 8,
        "timeout_s": 1.0,
        "kubeconfig": api.kubeconfig(bench.folder / "kubeconfig"),
    }
    bench.finding("permission", "ok", "a dry run of width 3 is permitted")
    for api_version, plural, kind in (
        ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
        ("keda.sh/v1alpha1", "scaledobjects", "ScaledObject"),
    ):
        api.store.install(crd(api_version, plural, kind, scale=False))
        served = api.store.resource(api_version, plural)
        reference = {"name": "a"} | ({"kind": "Deployment"} if plural[0] == "h" else {})
        for name, bound in (("ours", reference), ("theirs", {"name": "b", "kind": "Deployment"})):
            spec = {"scaleTargetRef": bound}
            api.store.create(served, "here", {"metadata": {"name": name}, "spec": spec})
        bench.finding("other autoscalers", "error", f"{kind} ours is bound to Deployment a")
        api.store.delete(served, "here", "ours")
    rule = Rule(("get", "list"), ("*",), ("*",))
    api.tokens["admin"] = User("reader", (rule,))
    bench.finding("permission", "error", "cannot patch", "grant patch on deployments/scale of apps")


def test_a_kserve_service_that_scales_itself_is_found(bench: Bench, api: ApiServer) -> None:
    api.store.install(crd("serving.kserve.io/v1alpha1", "llminferenceservices", "L", scale=False))
    served = api.store.resource("serving.kserve.io/v1alpha1", "llminferenceservices")
    spec = {"scaling": {"wva": {}}}
    api.store.create(served, "here", {"metadata": {"name": "a"}, "spec": spec})
    bench.entry["target"] = {
        "kind": "kserve",
        "namespace": "here",
        "name": "a",
        "workload": "deployment",
        "workload_name": "a-kserve",
        "max_width": 4,
        "gpus_per_width": 8,
        "timeout_s": 1.0,
        "kubeconfig": api.kubeconfig(bench.folder / "kubeconfig"),
    }
    bench.finding("target", "error", "KServe scales this by itself", "take the scaling out")
    api.store.change(served, "here", "a", lambda found: {**found, "spec": {"replicas": 2}})
    bench.finding("permission", "ok", "a dry run of width 3 is permitted")
