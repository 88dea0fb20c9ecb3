"""The Roles that ship with the product permit what its targets do, and nothing besides."""

from pathlib import Path

import pytest
import yaml

from autoscaler.cluster.connection import Access, Connection, path
from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.model import SetResult
from autoscaler.targets import gpustack, scale_subresource
from autoscaler.testing_apiserver import Rule, User

from .worlds import NAME, NAMESPACE

BASE = Path(__file__).parents[3] / "deploy" / "base"
TOKEN = "of-the-service-account"  # noqa: S105  # opens nothing but the fake server


def shipped(file: str, namespace: str = NAMESPACE) -> User:
    """Somebody bound to a shipped Role in one namespace."""
    role = next(d for d in yaml.safe_load_all((BASE / file).read_text()) if d["kind"] == "Role")
    rules = tuple(
        Rule(tuple(r["verbs"]), tuple(r["apiGroups"]), tuple(r["resources"]), (namespace,))
        for r in role["rules"]
    )
    return User("system:serviceaccount:gpustack-bench:autoscaler", rules)


@pytest.mark.parametrize("file", ["role-gpustack.yaml", "role-scale.yaml"])
def test_no_role_has_a_wildcard_or_reaches_secrets(file):
    for rule in shipped(file).rules:
        assert "*" not in (*rule.verbs, *rule.groups, *rule.resources)
        assert "secrets" not in rule.resources
        assert set(rule.verbs) <= {"get", "patch"}


def test_a_gpustack_target_reads_rehearses_and_writes_with_nothing_but_its_role(
    make, api, tmp_path
):
    make()
    api.tokens[TOKEN] = shipped("role-gpustack.yaml")
    kubeconfig = api.kubeconfig(tmp_path / "limited", TOKEN)
    target = gpustack.build(gpustack.Params(NAMESPACE, NAME, kubeconfig=kubeconfig))
    assert target.read().effective == 2
    assert target.capabilities().max_width == 8
    assert target.rehearse(3, 2).result is SetResult.APPLIED
    assert target.set_width(4, 2).result is SetResult.APPLIED
    target.close()


@pytest.mark.parametrize(
    ("method", "api_version", "namespace", "plural", "name"),
    [
        ("DELETE", "worker.gpustack.ai/v1", NAMESPACE, "modeldeployments", NAME),
        ("DELETE", "v1", NAMESPACE, "configmaps", "elastic-resize-x"),
        ("PUT", "v1", NAMESPACE, "configmaps", "elastic-observation-x"),
    ],
)
def test_the_gpustack_role_denies_the_rest(
    make, api, tmp_path, method, api_version, namespace, plural, name
):
    make()
    api.tokens[TOKEN] = shipped("role-gpustack.yaml")
    connection = Connection(Access(api.kubeconfig(tmp_path / "limited", TOKEN)))
    with pytest.raises(TargetForbidden):
        connection.send(method, path(api_version, namespace, plural, name), {})
    connection.close()


def test_the_gpustack_role_ends_at_its_namespace(make, api, tmp_path):
    make()
    api.tokens[TOKEN] = shipped("role-gpustack.yaml", "elsewhere")
    kubeconfig = api.kubeconfig(tmp_path / "limited", TOKEN)
    target = gpustack.build(gpustack.Params(NAMESPACE, NAME, kubeconfig=kubeconfig))
    with pytest.raises(TargetError):
        target.read()
    target.close()


def test_a_deployment_is_scaled_with_nothing_but_its_role(api, tmp_path):
    kind = api.store.resource("apps/v1", "deployments")
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 2}}
    api.store.create(kind, NAMESPACE, body)
    api.tokens[TOKEN] = shipped("role-scale.yaml")
    target = scale_subresource.build(
        scale_subresource.Params(
            NAMESPACE,
            "web",
            "deployment",
            max_width=8,
            gpus_per_width=1,
            kubeconfig=api.kubeconfig(tmp_path / "limited", TOKEN),
        )
    )
    assert target.read().desired == 2
    assert target.set_width(3, 2).result is SetResult.APPLIED
    target.close()
