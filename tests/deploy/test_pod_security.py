"""The Pod against each rule of the Pod Security Standards' restricted profile, and beyond it."""

import pytest

from .rendered import OVERLAYS, containers, one, overlay, pod

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SYSCTLS: set[str] = set()
"""Of the few that are permitted, none is needed."""

every_overlay = pytest.mark.parametrize("name", OVERLAYS)


def setting(spec, container, key):
    """A container's own security setting, else the Pod's."""
    own = container.get("securityContext", {})
    return own[key] if key in own else spec.get("securityContext", {}).get(key)


@every_overlay
def test_baseline_nothing_of_the_host(name):
    spec = pod(overlay(name))
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        assert not spec.get(key)
    assert {s["name"] for s in spec["securityContext"].get("sysctls", [])} <= SYSCTLS
    assert "windowsOptions" not in spec["securityContext"]
    for container in containers(spec):
        assert not setting(spec, container, "privileged")
        assert setting(spec, container, "procMount") in (None, "Default")
        assert setting(spec, container, "seLinuxOptions") is None
        assert setting(spec, container, "appArmorProfile") is None
        assert not any("hostPort" in port for port in container.get("ports", []))
        for hook in ("livenessProbe", "readinessProbe", "startupProbe"):
            assert "host" not in container.get(hook, {}).get("httpGet", {})


@every_overlay
def test_restricted_volumes_are_of_permitted_types(name):
    for volume in pod(overlay(name))["volumes"]:
        assert set(volume) - {"name"} <= VOLUMES


@every_overlay
def test_restricted_no_privilege_escalation(name):
    for container in containers(pod(overlay(name))):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


@every_overlay
def test_restricted_runs_as_a_user_that_is_not_root(name):
    spec = pod(overlay(name))
    for container in containers(spec):
        assert setting(spec, container, "runAsNonRoot") is True
        assert setting(spec, container, "runAsUser") == 65532
        assert setting(spec, container, "runAsGroup") == 65532


@every_overlay
def test_restricted_seccomp_filters_system_calls(name):
    spec = pod(overlay(name))
    for container in containers(spec):
        assert setting(spec, container, "seccompProfile") == {"type": "RuntimeDefault"}


@every_overlay
def test_restricted_every_capability_is_dropped_and_none_added(name):
    for container in containers(pod(overlay(name))):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@every_overlay
def test_beyond_the_profile_the_root_is_read_only_and_what_is_writable_is_bounded(name):
    spec = pod(overlay(name))
    bounded = {v["name"] for v in spec["volumes"] if "sizeLimit" in v.get("emptyDir", {})}
    read_only = {v["name"] for v in spec["volumes"] if "configMap" in v}
    assert bounded | read_only == {v["name"] for v in spec["volumes"]}
    for container in containers(spec):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"requests", "limits"} <= set(container["resources"])
        for amounts in container["resources"].values():
            assert {"cpu", "memory"} <= set(amounts)


@every_overlay
def test_the_token_is_in_this_pod_and_in_no_other_of_its_account(name):
    objects = overlay(name)
    assert pod(objects)["automountServiceAccountToken"] is True
    assert one(objects, "ServiceAccount")["automountServiceAccountToken"] is False


@every_overlay
def test_no_environment_and_no_argument_carries_a_secret(name):
    for container in containers(pod(overlay(name))):
        assert "envFrom" not in container
        assert not [e for e in container.get("env", []) if "secretKeyRef" in e.get("valueFrom", {})]
    assert pod(overlay(name))["enableServiceLinks"] is False


def test_a_namespace_that_an_overlay_makes_enforces_the_profile():
    namespace = one(overlay("several-namespaces"), "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
