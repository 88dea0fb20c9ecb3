"""An API server, a Deployment with its controller, and processes that all want to write it.

Every process speaks with a token of its own, so that the server's own log says who asked for what.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path

import requests
import yaml

from autoscaler.clock import SystemClock
from autoscaler.testing_apiserver import ADMIN, ApiServer, Fault

PLUGINS = Path(__file__).parent / "plugins"
NAMESPACE = "apps"
GUARDS = {"settle_s": 0, "max_width": 10_000}


class Cluster:
    """The server's side.

    Args:
        folder: for configurations, kubeconfigs and logs.
        lease_duration_s: of the lease, whole seconds; with it all its other times are scaled.
    """

    def __init__(self, folder, lease_duration_s=1):
        self.folder = folder
        self.lease_s = lease_duration_s
        self.retry_s = 0.15 * lease_duration_s
        self.clock = SystemClock()
        self.api = ApiServer(self.clock)
        store = self.api.store
        self.deployments = store.resource("apps/v1", "deployments")
        self.leases = store.resource("coordination.k8s.io/v1", "leases")
        store.create(
            self.deployments, NAMESPACE, {"metadata": {"name": "web"}, "spec": {"replicas": 2}}
        )
        self._closing = threading.Event()
        self._controller = threading.Thread(target=self._control, daemon=True)
        self._controller.start()

    def close(self):
        self._closing.set()
        self._controller.join(5)
        self.api.close()

    def _control(self):
        """The Deployment's controller: Pods are there as soon as they are wanted."""
        while not self._closing.wait(0.02):
            self.api.store.change(
                self.deployments, NAMESPACE, "web", _reconciled, subresource="status"
            )

    def configuration(self, name, **changes):
        """Write the configuration of one process; returns its path."""
        self.api.tokens[name] = ADMIN
        kubeconfig = self.api.kubeconfig(self.folder / f"{name}.kubeconfig", name)
        (self.folder / "eager.yaml").write_text("kind: eager.policy\n", encoding="utf-8")
        target = {
            "name": "web",
            "source": {"kind": "eager.source", "defect": str(self.folder / "defect")},
            "target": {
                "kind": "scale_subresource",
                "namespace": NAMESPACE,
                "name": "web",
                "workload": "deployment",
                "max_width": 10_000,
                "gpus_per_width": 1,
                "kubeconfig": kubeconfig,
                "timeout_s": 0.14 * self.lease_s,
            },
            "slo": {"ttft_p95_s": 5, "window_s": 1},
            "policy": "eager.yaml",
            "guards": GUARDS,
        }
        settings = {
            "tick_s": 0.15 * self.lease_s,
            "targets": [target],
            "telemetry": {"port": 0},
            "leader_election": {
                "enabled": True,
                "namespace": NAMESPACE,
                "identity": name,
                "lease_duration_s": self.lease_s,
                "renew_deadline_s": 0.7 * self.lease_s,
                "retry_period_s": self.retry_s,
                "kubeconfig": kubeconfig,
            },
            **changes,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return path

    @property
    def holder(self):
        """Name of the process that the Lease names; "": none, or no Lease."""
        found = self.api.store.list(self.leases, NAMESPACE)
        return named(found[0]) if found else ""

    def writes(self, name=None):
        """What was asked of the target: every write, or one process's, however it was answered."""
        return [
            r
            for r in list(self.api.requests)
            if r.method == "PATCH" and name in (None, token(r)) and "/deployments/web" in r.path
        ]

    def asked(self, name):
        """Every request of one process that is not about the Lease."""
        return [r for r in list(self.api.requests) if token(r) == name and "/leases" not in r.path]

    def await_write_of(self, replica, slow_s=0.08):
        """Wait until a write was permitted and is about to be sent: its answer so far is slow."""
        fault = Fault("slow", method="GET", path="/web/scale", delay_s=slow_s)
        self.api.faults.append(fault)
        self.await_true(lambda: fault.seen or replica.ended)

    def strays(self):
        """Writes by somebody whom the Lease did not name at that time: (writer, holder)."""
        changes = [
            (h.version, named(h.object))
            for h in self.api.store.history
            if h.resource is self.leases
        ]
        found = []
        for write in self.writes():
            held = [holder for version, holder in changes if version <= write.version]
            holder = held[-1] if held else ""
            if holder != token(write):
                found.append((token(write), holder))
        return found

    def await_true(self, what, timeout_s=40.0):
        """Wait; returns how long it took, s."""
        began_s = self.clock.now_s()
        while self.clock.now_s() - began_s < timeout_s:
            if what():
                return self.clock.now_s() - began_s
            threading.Event().wait(0.005)
        raise AssertionError(f"did not happen within {timeout_s} s; held by {self.holder!r}")


def _reconciled(found):
    replicas = found["spec"]["replicas"]
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    status = dict.fromkeys(counts, replicas)
    return {**found, "status": {**status, "observedGeneration": found["metadata"]["generation"]}}


def named(lease):
    """The process that a Lease names, without what makes its identity unique."""
    return lease["spec"].get("holderIdentity", "").partition("_")[0]


def token(request):
    return request.headers.get("authorization", "").removeprefix("Bearer ")


def fleet():
    """Where processes come from: forked off one that has loaded the program already.

    A start of the interpreter costs seconds on a busy machine, and a fork milliseconds.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            __name__,
            "autoscaler.cli",
            "autoscaler.cli_run",
            "autoscaler.wiring.leading",
            "autoscaler.targets.scale_subresource",
        ]
    )
    return context


def program(arguments, log):
    """``autoscaler run`` in this process."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.path.insert(0, str(PLUGINS))
    from autoscaler import cli

    cli.main(["run", *arguments])


class Replica:
    """``autoscaler run`` as a process of its own."""

    def __init__(self, cluster, name, *arguments, **changes):
        self.cluster, self.name = cluster, name
        path = cluster.configuration(name, **changes)
        self.log = cluster.folder / f"{name}.log"
        self.log.touch()
        given = ["--config", str(path), *arguments]
        self.process = fleet().Process(target=program, args=(given, str(self.log)), daemon=True)
        self.process.start()

    @property
    def text(self):
        return self.log.read_text(encoding="utf-8")

    def events(self, name):
        found = [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == name]

    def await_event(self, name):
        self.cluster.await_true(lambda: self.events(name))
        return self.events(name)[-1]

    def page(self, path):
        address = self.await_event("started")["telemetry"]
        return requests.get(f"http://{address}{path}", timeout=5)

    def leading(self):
        """Wait until it leads and has written; returns how long that took, s."""
        c = self.cluster
        return c.await_true(lambda: c.holder == self.name and c.writes(self.name))

    def holding(self):
        """Wait until the lease is its; returns how long that took, s."""
        return self.cluster.await_true(lambda: self.cluster.holder == self.name)

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):  # it may just have ended by itself
            os.kill(self.process.pid, number)

    def wait(self, timeout_s=15.0):
        """Wait for its end; the exit code."""
        self.process.join(timeout_s)
        return self.process.exitcode

    @property
    def ended(self):
        return self.process.exitcode is not None

    def close(self):
        if not self.ended:
            self.signal(signal.SIGKILL)
            self.process.join(5)
