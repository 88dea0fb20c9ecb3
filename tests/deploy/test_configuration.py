"""The shipped configuration loads, and the real endpoint answers where the Pod is probed."""

import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from autoscaler.cli_run import run
from autoscaler.clock import SystemClock
from autoscaler.settings import load

from .rendered import OVERLAYS, Json, configuration, one, overlay, pod

WAIT_S = 30


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_configuration_loads_as_it_is(name, tmp_path):
    objects = overlay(name)
    settings = load(configuration(objects, tmp_path), environment(objects))
    home = one(objects, "Deployment")["metadata"]["namespace"]
    roles = {o["metadata"]["namespace"] for o in objects if o["kind"] == "Role"}
    steered = {target.target.params.namespace for target in settings.targets}
    assert roles == {home} | steered | set(settings.objects.namespaces)
    assert settings.warnings == ()
    assert settings.leader_election.enabled  # or two replicas are two writers
    (container,) = pod(objects)["containers"]
    assert {"containerPort": settings.telemetry.port, "name": "telemetry"} in container["ports"]
    assert settings.telemetry.host == "0.0.0.0"  # noqa: S104  # the kubelet's probes come to the Pod's address
    mounts = [m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")]
    assert str(settings.decisions.parent) in mounts
    limit = next(v for v in pod(objects)["volumes"] if v["name"] == "decisions")
    assert limit["emptyDir"]["sizeLimit"] == "512Mi"  # beyond it the kubelet evicts the Pod
    assert 2 * settings.decisions_max_bytes < 512 * 2**20


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_arguments_are_those_of_the_command(name):
    (container,) = pod(overlay(name))["containers"]
    command, *options = container["args"]
    assert command == run.__name__
    assert options[:2] == ["--config", "/etc/autoscaler/autoscaler.yaml"]
    assert set(options[2:]) <= {"--dry-run"}
    assert ("--dry-run" in options) == (name == "dry-run")
    assert "/etc/autoscaler" in [m["mountPath"] for m in container["volumeMounts"]]


def test_the_endpoint_answers_every_probe_and_the_scrape_while_nothing_else_is_there(tmp_path):
    """Prometheus and the API server are unreachable: alive, not ready, and showing why."""
    objects = overlay("monitoring")
    path = configuration(objects, tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = path.read_text().replace("0.0.0.0", "127.0.0.1").replace("9464", str(port))  # noqa: S104
    text = text.replace("prometheus-operated.monitoring.svc:9090", "127.0.0.1:9")
    path.write_text(re.sub(r"/var/log/autoscaler", str(tmp_path), text))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: "
        "{cluster: c, user: c}}], clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], "
        "users: [{name: c, user: {token: t}}]}"
    )
    command = [sys.executable, "-m", "autoscaler", "run", "--config", str(path)]
    environ = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        **environment(objects),
        "AUTOSCALER_LEADER_ELECTION__NAMESPACE": "inference",  # in a Pod: its own
    }
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        assert running.stdout is not None
        assert any('"started"' in line for line in running.stdout)
        (container,) = pod(objects)["containers"]
        expected = {"startupProbe": 200, "livenessProbe": 200, "readinessProbe": 503}
        for probe, status in expected.items():
            page = container[probe]["httpGet"]["path"]
            assert answer(f"http://127.0.0.1:{port}{page}")[0] == status
        (scrape,) = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
        status, body = answer(f"http://127.0.0.1:{port}{scrape['path']}")
        assert status == 200
        assert "autoscaler_build_info" in body
        running.terminate()
        before_s = SystemClock()
        start_s = before_s.now_s()
        assert running.wait(timeout=WAIT_S) == 0
        grace_s = pod(objects)["terminationGracePeriodSeconds"]
        assert before_s.now_s() - start_s < grace_s
    finally:
        running.kill()
        running.communicate()


def environment(objects: list[Json]) -> dict[str, str]:
    """What the manifest sets of the program's environment."""
    (container,) = pod(objects)["containers"]
    return {e["name"]: e["value"] for e in container.get("env", ()) if "value" in e}


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as found:  # noqa: S310  # loopback
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
