"""Every overlay builds, is valid, and hangs together."""

import ipaddress
import json
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from .rendered import DEPLOY, OVERLAYS, ROOT, one, overlay, pod, rendered

SCHEMAS = Path(__file__).parents[1] / "data" / "deploy"
OLDEST, NEWEST = "1.30", "1.37"
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
FOLDERS = [*(f"overlays/{name}" for name in OVERLAYS), "base"]


def test_the_overlays_are_those_that_the_readme_explains():
    text = (DEPLOY / "README.md").read_text()
    assert OVERLAYS == ["dry-run", "monitoring", "one-namespace", "several-namespaces"]
    for name in [
        *OVERLAYS,
        "capacity",
        "targets/gpustack",
        "targets/scale",
        "targets/kserve",
        "targets/objects",
        "width-limits",
    ]:
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_fits_the_schemas_of_kubernetes(folder, version):
    for found in rendered(folder):
        schema = SCHEMAS / f"{found['kind'].lower()}.schema.json"
        if schema.exists():
            jsonschema.validate(found, json.loads(schema.read_text()))
        else:
            kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_validator_sees_a_mistyped_key(version):
    wrong = one(rendered("base"), "Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenessProb"):
        kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize("name", OVERLAYS)
def test_everything_has_a_namespace_and_the_products_label(name):
    for found in overlay(name):
        meta = found["metadata"]
        assert (found["kind"] in CLUSTER_WIDE) != ("namespace" in meta), meta
        assert meta["labels"]["app.kubernetes.io/name"] == "autoscaler"


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_reference_is_to_something_in_the_overlay(name):
    objects = overlay(name)
    there = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects}
    deployment = one(objects, "Deployment")
    home = deployment["metadata"]["namespace"]
    assert ("ServiceAccount", home, pod(objects)["serviceAccountName"]) in there
    for volume in pod(objects)["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", home, volume["configMap"]["name"]) in there
    for found in objects:
        if found["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        role, namespace = found["roleRef"], found["metadata"].get("namespace")
        assert (role["kind"], namespace if role["kind"] == "Role" else None, role["name"]) in there
        for subject in found["subjects"]:
            assert (subject["kind"], subject["namespace"], subject["name"]) in there


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_selector_selects_the_deployments_pods(name):
    objects = overlay(name)
    template = one(objects, "Deployment")["spec"]["template"]
    selectors = [one(objects, "Deployment")["spec"]["selector"]]
    selectors += [one(objects, "PodDisruptionBudget")["spec"]["selector"]]
    selectors += [one(objects, "NetworkPolicy")["spec"]["podSelector"]]
    selectors += [c["labelSelector"] for c in template["spec"]["topologySpreadConstraints"]]
    selectors += [o["spec"]["selector"] for o in objects if o["kind"] == "PodMonitor"]
    for selector in selectors:
        assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_port_that_is_named_is_one_of_the_container(name):
    objects = overlay(name)
    (container,) = pod(objects)["containers"]
    names = {port["name"] for port in container["ports"]}
    used = {container[f"{probe}Probe"]["httpGet"]["port"] for probe in ("liveness", "readiness")}
    used |= {container["startupProbe"]["httpGet"]["port"]}
    policy = one(objects, "NetworkPolicy")["spec"]
    used |= {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    for found in objects:
        if found["kind"] == "PodMonitor":
            used |= {e["port"] for e in found["spec"]["podMetricsEndpoints"]}
    assert used == names


@pytest.mark.parametrize("name", OVERLAYS)
def test_one_of_two_pods_stays_through_a_drain_and_an_update(name):
    objects = overlay(name)
    spec = one(objects, "Deployment")["spec"]
    assert spec["replicas"] > one(objects, "PodDisruptionBudget")["spec"]["minAvailable"] >= 1
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_network_lets_in_scrapes_and_out_nothing_but_dns_prometheus_and_the_api_G79(name):
    policy = one(overlay(name), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (scrape,) = policy["ingress"]
    assert scrape["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ]
    anywhere = set()
    for rule in policy["egress"]:
        assert rule["to"], "to anybody"
        assert rule["ports"], "any port"
        for peer in rule["to"]:
            if "ipBlock" in peer:
                assert ipaddress.ip_network(peer["ipBlock"]["cidr"]).prefixlen == 0
                anywhere |= {port["port"] for port in rule["ports"]}
    assert anywhere == {443, 6443}  # the API server's; the README says how to narrow it


def test_the_image_is_named_in_one_place_and_of_this_version():
    version = (ROOT / "pyproject.toml").read_text().split('\nversion = "')[1].split('"')[0]
    for name in OVERLAYS:
        spec = pod(overlay(name))
        images = {c["image"] for c in [*spec["initContainers"], *spec["containers"]]}
        assert images == {f"registry.example.com/autoscaler:{version}"}


def test_no_manifest_is_left_out_of_its_kustomization():
    for found in DEPLOY.rglob("kustomization.yaml"):
        text = found.read_text()
        for beside in found.parent.glob("*.*"):
            assert beside == found or beside.name in text, beside
        yaml.safe_load(text)
