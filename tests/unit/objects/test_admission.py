"""What a spec means in its namespace, what it may not, and who comes first."""

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.objects.admission import admit
from autoscaler.objects.resource import WidthAutoscaler, parse
from autoscaler.objects.spec import Terms, resolved
from autoscaler.settings.target import FileSet

SOURCE = {"kind": "scrape", "urls": ["http://engine:8000/metrics"]}
TARGET = {"kind": "gpustack", "name": "elastic"}


def terms(folder: Path, **given) -> Terms:
    return Terms(5.0, FileSet(folder / "autoscaler.yaml"), **given)


def found(name="chat", namespace="bench", generation=1, created="2026-01-01T00:00:00Z", **spec):
    spec = {"source": SOURCE, "target": TARGET, "policy": "static:4"} | spec
    return WidthAutoscaler(namespace, name, f"uid-{name}", generation, "7", created, spec, {})


def by_key(*objects):
    return {one.key: one for one in objects}


def problems(folder, *, given=None, **spec):
    made = resolved(found(**spec), terms(folder, **(given or {})))
    assert made.settings is None
    return "\n".join(made.problems)


def test_an_object_is_a_target_named_after_it_in_its_own_namespace(tmp_path):
    made = resolved(found(), terms(tmp_path, kubeconfig="/k", context="c"))
    assert made.problems == []
    settings = made.settings
    assert settings.name == "bench/chat"
    params = settings.target.params
    assert (params.namespace, params.name, params.kubeconfig, params.context) == (
        "bench", "elastic", "/k", "c",
    )  # fmt: skip
    assert resolved(found(target={**TARGET, "namespace": "bench"}), terms(tmp_path)).settings


def test_the_target_of_a_dry_run_is_kept_within_the_namespace_too(tmp_path):
    made = resolved(found(target={"kind": "dry_run", "of": TARGET}), terms(tmp_path))
    assert made.settings.target.params.of == {**TARGET, "namespace": "bench"}
    said = problems(tmp_path, target={"kind": "dry_run", "of": {**TARGET, "namespace": "other"}})
    assert "spec.target.of.namespace: must be the object's own namespace (bench)" in said


BAD = {
    "nothing": ({"source": None}, "spec.source: must be a valid dictionary; got None"),
    "unknown key": (
        {"guard": {}},
        "spec.guard: unknown key; must be one of name, source, target, policy",
    ),
    "A14 a limit that is none": (
        {"guards": {"max_widht": 3}},
        "spec.guards.max_widht: unknown key",
    ),
    "other namespace": (
        {"target": {**TARGET, "namespace": "other"}},
        "spec.target.namespace: must be the object's own namespace (bench), or left out; got 'ot",
    ),
    "kubeconfig": (
        {"target": {**TARGET, "kubeconfig": "/admin.conf"}},
        "spec.target.kubeconfig: must not be given in an object; got a value",
    ),
    "code by its module": (
        {"source": {**SOURCE, "kind": "some.module"}},
        "spec.source.kind: must be a kind by its plain name; got 'some.module'",
    ),
    "code by its module, nested": (
        {"target": {"kind": "dry_run", "of": {"kind": "some.module"}}},
        "spec.target.of.kind: must be a kind by its plain name",
    ),
    "policy by its module": (
        {"policy": "some.module"},
        "spec.policy: must be a plain name or a YAML file beside the configuration",
    ),
    "shadow by its module": (
        {"shadow": ["hold", "some.module:3"]},
        "spec.shadow[1]: must be a plain name or a YAML file",
    ),
    "policy within a schedule": (
        {"policy": "schedule", "policy_params": {"policy": {"kind": "some.module"}}},
        "spec.policy_params.policy.kind: must be a kind by its plain name",
    ),
    "absolute file": (
        {"policy": "/etc/secret.yaml"},
        "spec.policy: must be a file beside the configuration; got '/etc/secret.yaml'",
    ),
    "file above": (
        {"profile": "../other.yaml"},
        "spec.profile: must be a file beside the configuration; got '../other.yaml'",
    ),
    "credentials without a folder for them": (
        {"source": {**SOURCE, "bearer_token_file": "token"}},
        "spec.source.bearer_token_file: must not be given: objects may name files only where",
    ),
    "unknown kind": ({"target": {"kind": "gpu"}}, "spec.target.kind: must be one of "),
    "parameter of a policy": (
        {"policy": "pid", "policy_params": {"kp": -1}},
        "spec.policy_params.kp: must be a finite number >= 0; got -1",
    ),
}


@pytest.mark.parametrize(("spec", "message"), BAD.values(), ids=BAD)
def test_what_an_object_may_not_say_is_refused_by_key_rule_and_value(spec, message, tmp_path):
    assert message in problems(tmp_path, **spec)


def test_a_name_is_the_objects_own(tmp_path):
    one = found()
    one = replace(one, spec={**one.spec, "name": "mine"})
    assert "spec.name: must not be given" in resolved(one, terms(tmp_path)).problems[0]


@pytest.mark.parametrize("name", ["/etc/token", "../token", "", ".."])
def test_a_credential_is_a_plain_name_in_the_namespaces_own_folder(name, tmp_path):
    folder = {"credentials": tmp_path / "credentials"}
    source = {**SOURCE, "bearer_token_file": "token"}
    made = resolved(found(source=source), terms(tmp_path, **folder)).settings
    expected = str(tmp_path / "credentials" / "bench" / "token")
    assert made.source.params.bearer_token_file == expected
    said = problems(tmp_path, given=folder, source={**source, "bearer_token_file": name})
    assert "must be the plain name of a file laid out for the object's namespace" in said


def test_a_policy_is_tuned_beside_its_name(tmp_path):
    made = resolved(found(policy="pid", policy_params={"kp": 0.5}), terms(tmp_path)).settings
    assert made.steering.policy.name == "pid"
    assert made.steering.policy.params.kp == 0.5
    assert made.steering.policy.params.kq > 0, "the rest is as the shipped file has it"


def test_a_policy_file_is_beside_the_configuration_and_is_noted(tmp_path):
    (tmp_path / "mine.yaml").write_text("kind: static\nwidth: 3\n", encoding="utf-8")
    these = terms(tmp_path)
    assert resolved(found(policy="mine.yaml"), these).settings.steering.policy.params.width == 3
    assert tmp_path / "mine.yaml" in these.files.read


def test_the_file_comes_before_objects(tmp_path):
    declared = resolved(found("of-the-file"), terms(tmp_path)).settings
    made = admit([declared], by_key(found()), {}, terms(tmp_path))
    assert made.admitted == {}
    assert made.refused["bench/chat"].code == "already_steered"
    assert (
        "target bench/of-the-file of the configuration file" in made.refused["bench/chat"].message
    )


def test_the_older_object_comes_first_unless_another_steers_already(tmp_path):
    young = found("a", created="2026-02-01T00:00:00Z")
    old = found("z", created="2026-01-01T00:00:00Z")
    first = admit([], by_key(young, old), {}, terms(tmp_path))
    assert (set(first.admitted), set(first.refused)) == ({"bench/z"}, {"bench/a"})
    alone = admit([], by_key(young), {}, terms(tmp_path))
    both = admit([], by_key(young, old), alone.admitted, terms(tmp_path))
    assert (set(both.admitted), set(both.refused)) == ({"bench/a"}, {"bench/z"})
    again = admit([], by_key(old), both.admitted, terms(tmp_path))
    assert (set(again.admitted), again.refused) == ({"bench/z"}, {})


def test_an_edit_towards_what_another_steers_disturbs_neither(tmp_path):
    other = found("other", target={"kind": "gpustack", "name": "second"})
    before = admit([], by_key(found("z"), other), {}, terms(tmp_path))
    assert len(before.admitted) == 2
    thief = found("other", generation=2, created="2020-01-01T00:00:00Z")
    after = admit([], by_key(found("z"), thief), before.admitted, terms(tmp_path))
    assert after.admitted == before.admitted
    assert after.refused["bench/other"].generation == 2


def test_a_bad_edit_leaves_the_spec_before_it_in_force_until_the_object_is_another(tmp_path):
    before = admit([], by_key(found()), {}, terms(tmp_path))
    bad = found(generation=2, policy="none_such")
    after = admit([], by_key(bad), before.admitted, terms(tmp_path))
    assert after.admitted == before.admitted
    assert after.refused["bench/chat"].code == "invalid_spec"
    anew = WidthAutoscaler("bench", "chat", "another-uid", 1, "9", "", bad.spec, {})
    assert admit([], by_key(anew), before.admitted, terms(tmp_path)).admitted == {}


@pytest.mark.parametrize("change", [
    {"target": {**TARGET, "timeout_s": 1.0}},
    {"target": {**TARGET, "role": "server"}},
    {"policy": "hold"},
])  # fmt: skip
def test_two_that_differ_in_anything_but_the_deployment_are_rivals(change, tmp_path):
    made = admit([], by_key(found("a"), found("b", **change)), {}, terms(tmp_path))
    assert set(made.refused) == {"bench/b"}


def test_deployments_of_one_name_in_two_namespaces_are_two(tmp_path):
    made = admit([], by_key(found("a"), found("b", "other")), {}, terms(tmp_path))
    assert set(made.admitted) == {"bench/a", "other/b"}
    roles = [
        found(role, target={**TARGET, "role": role}, source={**SOURCE, "urls": [f"http://{role}"]})
        for role in ("x", "y")
    ]
    assert len(admit([], by_key(*roles), {}, terms(tmp_path)).admitted) == 2


def test_two_roles_of_a_deployment_need_signals_of_their_own_A33(tmp_path):
    roles = [found(role, target={**TARGET, "role": role}) for role in ("decode", "prefill")]
    made = admit([], by_key(*roles), {}, terms(tmp_path))
    assert set(made.admitted) == {"bench/decode"}
    refused = made.refused["bench/prefill"]
    assert refused.code == "invalid_spec"
    assert refused.message == (
        "WidthAutoscaler bench/prefill: spec.source: must select the signals of its own role; "
        "got those of WidthAutoscaler bench/decode"
    )


@pytest.mark.parametrize("broken", [
    {}, {"metadata": 3}, {"metadata": {"name": "a"}},
    {"metadata": {"namespace": "n", "name": "a", "uid": "u", "resourceVersion": "1"}},
    {"metadata": {"namespace": "n", "name": "a", "uid": "u", "resourceVersion": "1",
                  "generation": True}},
])  # fmt: skip
def test_what_is_no_object_is_none(broken):
    assert parse(broken) is None


def test_an_object_without_a_spec_is_one_and_refused(tmp_path):
    metadata = {"namespace": "n", "name": "a", "uid": "u", "resourceVersion": "1", "generation": 1}
    one = parse({"metadata": metadata, "spec": "none"})
    made = admit([], by_key(one), {}, terms(tmp_path))
    assert "spec.source: must be given; got nothing" in made.refused["n/a"].message
