"""Settings: what is taken, what is refused, and in which words."""

import pytest
import yaml

from autoscaler.errors import ConfigError
from autoscaler.settings import SettingsError, load
from autoscaler.settings.environment import parse


def config(**changes):
    """A good configuration; ``targets__0__x`` and the like change it, None takes a key away."""
    content = {
        "tick_s": 5,
        "targets": [
            {
                "name": "chat",
                "source": {"kind": "prometheus", "url": "http://prometheus:9090"},
                "target": {"kind": "gpustack", "namespace": "bench", "name": "elastic"},
                "slo": {"ttft_p95_s": 5.0, "window_s": 30},
                "policy": "threshold",
                "guards": {"min_width": 2, "max_width": 8},
            }
        ],
    }
    for name, value in changes.items():
        *path, last = [int(k) if k.isdecimal() else k for k in name.split("__")]
        place = content
        for key in path:
            place = place.setdefault(key, {}) if isinstance(place, dict) else place[key]
        if value is None:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return content


def loaded(tmp_path, content, environ=None):
    path = tmp_path / "autoscaler.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), "utf-8")
    return load(path, environ or {})


def problems(tmp_path, content, environ=None):
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, content, environ)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return [line.replace(f"{tmp_path}/", "") for line in caught.value.problems]


def test_a_good_file_becomes_frozen_settings_with_the_defaults(tmp_path):
    settings = loaded(tmp_path, config())
    (chat,) = settings.targets
    assert settings.tick_s == chat.steering.tick_s == 5.0
    assert (chat.name, chat.source.kind, chat.target.kind) == ("chat", "prometheus", "gpustack")
    assert chat.steering.guards.max_width == 8
    assert chat.steering.slo.failure_penalty_s == 30.0
    assert chat.steering.policy.kind == "threshold"
    assert (settings.telemetry.host, settings.telemetry.port) == ("127.0.0.1", 9464)
    assert settings.decisions is None
    assert settings.warnings == ()
    assert settings.files == (tmp_path / "autoscaler.yaml",)


def test_the_example_of_the_interface_is_taken(tmp_path):
    for name in ("mine", "other"):
        (tmp_path / f"{name}.yaml").write_text("kind: threshold\n", "utf-8")
    settings = loaded(
        tmp_path,
        {
            "tick_s": 5,
            "targets": [
                {
                    "name": "chat",
                    "source": {
                        "kind": "prometheus",
                        "url": "http://prometheus:9090",
                        "engine": "vllm",
                        "labels": {"namespace": "gpustack-bench", "model_name": "chat"},
                        "scrape_interval_s": 5,
                    },
                    "target": {
                        "kind": "gpustack",
                        "namespace": "gpustack-bench",
                        "name": "b2-elastic-ep",
                        "role": "server",
                    },
                    "slo": {"ttft_p95_s": 5.0, "window_s": 30, "failure_penalty_s": 30},
                    "policy": "mine.yaml",
                    "shadow": ["other.yaml"],
                    "guards": {"min_width": 2, "max_width": 8},
                }
            ],
            "decisions": {"path": "log/decisions.jsonl"},
            "telemetry": {"host": "127.0.0.1", "port": 9464},
            "leader_election": {"enabled": False},
            "log": {"format": "json", "level": "info"},
        },
    )
    assert settings.decisions == tmp_path / "log" / "decisions.jsonl"
    assert [s.policy.name for s in settings.targets[0].shadows] == ["other"]
    assert settings.files[1:] == (tmp_path / "mine.yaml", tmp_path / "other.yaml")


FILE = "autoscaler.yaml: "
BAD = {
    "tick_s of nothing": ({"tick_s": 0}, "tick_s: must be greater than 0; got 0"),
    "tick_s below": ({"tick_s": -5}, "tick_s: must be greater than 0; got -5"),
    "NaN": ({"tick_s": float("nan")}, "tick_s: must be a finite number; got nan"),
    "infinity": ({"tick_s": float("inf")}, "tick_s: must be a finite number; got inf"),
    "text": ({"tick_s": "fast"}, "tick_s: must be a valid number; got 'fast'"),
    "a truth value": ({"tick_s": True}, "tick_s: must be a valid number; got True"),
    "unknown key": (
        {"tik_s": 1},
        (
            "tik_s: unknown key; must be one of tick_s, targets, decisions, telemetry, "
            "events, memory, leader_election, log, objects"
        ),
    ),
    "unknown key below": (
        {"telemetry__prot": 1},
        "telemetry.prot: unknown key; must be one of host, port",
    ),
    "port": (
        {"telemetry__port": 70000},
        "telemetry.port: must be less than or equal to 65535; got 70000",
    ),
    "log level": (
        {"log__level": "loud"},
        "log.level: must be 'debug', 'info', 'warning' or 'error'; got 'loud'",
    ),
    "no targets": (
        {"targets": []},
        "targets: must have at least one entry, unless objects.enabled is set; got none",
    ),
    "missing": ({"targets__0__policy": None}, "targets[0].policy: must be given; got nothing"),
    "L4 renew deadline": (
        {"leader_election": {"enabled": True, "renew_deadline_s": 10, "retry_period_s": 9}},
        ("leader_election.renew_deadline_s: must be more than 1.2 x retry_period_s (10.8); got 10"),
    ),
    "lease shorter than its deadline": (
        {"leader_election": {"enabled": True, "lease_duration_s": 9}},
        "leader_election.lease_duration_s: must be more than renew_deadline_s (10); got 9",
    ),
    "lease of half seconds": (
        {"leader_election": {"lease_duration_s": 15.5}},
        "leader_election.lease_duration_s: must be a valid integer; got 15.5",
    ),
    "lease too short for a write": (
        {
            "tick_s": 5,
            "leader_election": {
                "enabled": True,
                "lease_duration_s": 5,
                "renew_deadline_s": 4,
                "retry_period_s": 1,
            },
        },
        (
            "leader_election.lease_duration_s: must be more than 5.25, for a write of 4 s to be "
            "over in time; got 5"
        ),
    ),
    "name of the lease": (
        {"leader_election": {"name": "My_Lease"}},
        (
            "leader_election.name: must match pattern "
            "'^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$'; got 'My_Lease'"
        ),
    ),
    "name": (
        {"targets__0__name": "a b"},
        (
            "targets[0].name: must match pattern "
            "'^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'; got 'a b'"
        ),
    ),
    "A22 min over max": (
        {"targets__0__guards__min_width": 9},
        "targets[0].guards.max_width: must be a whole number >= 9; got 8",
    ),
    "A14 unknown guard": (
        {"targets__0__guards__max_gpu": 9},
        (
            "targets[0].guards.max_gpu: unknown key; must be one of min_width, max_width, "
            "max_gpus, max_step_up, max_step_down, cooldown_up_s, cooldown_down_s, "
            "scale_down_window_s, max_reversals_per_hour, allow_shrink_attempt, "
            "settle_s, settle_holds_growth, override_hold_s, fight_after, fight_window_s, "
            "require_capacity"
        ),
    ),
    "negative objective": (
        {"targets__0__slo__ttft_p95_s": -1},
        "targets[0].slo.ttft_p95_s: must be a finite number > 0; got -1.0",
    ),
    "objective NaN": (
        {"targets__0__slo__itl_p95_s": float("nan")},
        "targets[0].slo.itl_p95_s: must be a finite number > 0; got nan",
    ),
    "M25 window of one scrape": (
        {"targets__0__source__scrape_interval_s": 20},
        "targets[0].slo.window_s: must be at least twice source.scrape_interval_s (20); got 30",
    ),
    "T04 window below tick": (
        {"tick_s": 60},
        "targets[0].slo.window_s: must be at least tick_s (60), or samples go unseen; got 30",
    ),
    "R1 call as long as the tick": (
        {"tick_s": 4},
        "targets[0].target.timeout_s: must be shorter than tick_s (4); got 4",
    ),
    "unknown source": (
        {"targets__0__source__kind": "promteus"},
        "targets[0].source.kind: must be one of prometheus, scrape; got 'promteus'",
    ),
    "no kind": (
        {"targets__0__source__kind": None},
        "targets[0].source.kind: must be one of prometheus, scrape; got None",
    ),
    "missing parameter": (
        {"targets__0__target__namespace": None},
        "targets[0].target.namespace: must be given; got nothing",
    ),
    "type of a parameter": (
        {"targets__0__target__name": 5},
        "targets[0].target.name: must be str; got 5",
    ),
    "module that is no plug-in": (
        {"targets__0__target__kind": "json.decoder"},
        "targets[0].target.kind: must have Params and build; got 'json.decoder'",
    ),
    "module that is not there": (
        {"targets__0__target__kind": "no_such.module"},
        (
            "targets[0].target.kind: must be a module that can be imported; got 'no_such.module': "
            "No module named 'no_such'"
        ),
    ),
    "unknown shipped profile": (
        {"targets__0__profile": "missing.yaml"},
        "targets[0].profile: profiles: must be an existing file; got '{tmp}/missing.yaml'",
    ),
    "no such policy file": (
        {"targets__0__policy": "x/mine.yaml"},
        "targets[0].policy: policies: must be an existing file; got '{tmp}/x/mine.yaml'",
    ),
    "two shadows of one name": (
        {"targets__0__shadow": ["static:4", "static:4"]},
        "targets[0].shadow[1]: must differ in name from shadow[0]; got 'static:4'",
    ),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
def test_R25_bad_values_are_refused_by_file_key_rule_and_value(changes, message, tmp_path):
    found = problems(tmp_path, config(**changes))
    expected = FILE + message.replace("{tmp}/", "")
    if "must be one of prometheus" in message:  # others may add sources
        assert found[0].startswith(FILE + "targets[0].source.kind: must be one of prometheus, ")
    else:
        assert expected in found


def test_every_problem_is_told_at_once(tmp_path):
    changes = {
        "targets__0__slo__ttft_p95_s": -1,
        "targets__0__guards__min_width": -1,
        "targets__0__target__name": None,
        "targets__0__policy": "nothing",
    }
    assert len(problems(tmp_path, config(**changes))) == 3  # the policy needs the parts above
    assert len(problems(tmp_path, config(tick_s=-1, log__level="x", other=1))) == 3


def test_two_entries_of_one_name_or_of_one_deployment_are_refused(tmp_path):
    second = config()["targets"][0]
    found = problems(tmp_path, config(targets__1=second))
    assert found == [FILE + "targets[1].name: must differ from targets[0].name; got 'chat'"]
    found = problems(tmp_path, config(targets__1=second | {"name": "other"}))
    rule = "must not be steered by targets[0] too; got the same target"
    assert found == [f"{FILE}targets[1].target: {rule}"]


def test_what_looks_like_a_mistake_is_warned_of_T04_M25(tmp_path):
    changes = {"targets__0__guards__settle_s": 5, "targets__0__source__scrape_interval_s": 10}
    warnings = [w.replace(f"{tmp_path}/", "") for w in loaded(tmp_path, config(**changes)).warnings]
    assert warnings == [
        FILE + "targets[0].slo.window_s: should be at least four times source.scrape_interval_s "
        "(10), or one late scrape empties it; got 30",
        FILE + "targets[0].guards.settle_s: should be at least slo.window_s (30), or it acts on "
        "what it saw before; got 5",
    ]


def test_metrics_settle_for_a_whole_window_where_nobody_says_otherwise(tmp_path):
    changes = {"targets__0__slo__window_s": 120}
    guards = loaded(tmp_path, config(**changes)).targets[0].steering.guards
    assert guards.settle_s == 120


def test_the_environment_has_precedence_down_to_single_keys(tmp_path):
    environ = {
        "AUTOSCALER_TICK_S": "10",
        "AUTOSCALER_TELEMETRY__PORT": "0",
        "AUTOSCALER_LOG__LEVEL": "error",
        "AUTOSCALER_DECISIONS__PATH": "d.jsonl",
        "AUTOSCALER_TARGETS__0__SLO__TTFT_P95_S": "2.5",
        "AUTOSCALER_TARGETS__0__TARGET__NAME": "007",
        "AUTOSCALER_TARGETS__0__TARGET__PAUSE_S": "null",
        "AUTOSCALER_TARGETS__0__GUARDS__ALLOW_SHRINK_ATTEMPT": "true",
        "AUTOSCALER_TARGETS__0__SOURCE__LABELS__MODEL_NAME": "12",
        "AUTOSCALER_TARGETS__0__SHADOW": "[hold, 'static:4']",
        "autoscaler_targets__0__policy": "static:3",
        "HOME": "/nowhere",
    }
    settings = loaded(tmp_path, config(), environ)
    (chat,) = settings.targets
    assert (settings.tick_s, settings.telemetry.port, settings.log.level) == (10.0, 0, "error")
    assert settings.decisions == tmp_path / "d.jsonl"
    assert chat.steering.slo.ttft_p95_s == 2.5
    assert (chat.target.params.name, chat.target.params.pause_s) == ("007", None)
    assert chat.steering.guards.allow_shrink_attempt is True
    assert chat.source.params.labels == {"model_name": "12"}
    assert [s.policy.name for s in chat.shadows] == ["hold", "static:4"]
    assert chat.steering.policy.name == "static:3"


def test_a_whole_target_may_come_from_the_environment(tmp_path):
    environ = {
        "AUTOSCALER_TARGETS__1__NAME": "batch",
        "AUTOSCALER_TARGETS__1__SOURCE__KIND": "scrape",
        "AUTOSCALER_TARGETS__1__SOURCE__URLS": '["http://engine:8000/metrics"]',
        "AUTOSCALER_TARGETS__1__TARGET": "{kind: gpustack, namespace: bench, name: other}",
        "AUTOSCALER_TARGETS__1__POLICY": "hold",
    }
    batch = loaded(tmp_path, config(), environ).targets[1]
    assert batch.source.params.urls == ("http://engine:8000/metrics",)
    assert batch.target.params.name == "other"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "AUTOSCALER_TICKS",
            "1",
            (
                "unknown name; must be one of AUTOSCALER_TICK_S, AUTOSCALER_TARGETS, "
                "AUTOSCALER_DECISIONS, AUTOSCALER_TELEMETRY, AUTOSCALER_EVENTS, "
                "AUTOSCALER_MEMORY, AUTOSCALER_LEADER_ELECTION, "
                "AUTOSCALER_LOG, AUTOSCALER_OBJECTS"
            ),
        ),
        (
            "AUTOSCALER_TELEMETRY_PORT",
            "9464",
            (
                "unknown name; must be one of AUTOSCALER_TICK_S, AUTOSCALER_TARGETS, "
                "AUTOSCALER_DECISIONS, AUTOSCALER_TELEMETRY, AUTOSCALER_EVENTS, "
                "AUTOSCALER_MEMORY, AUTOSCALER_LEADER_ELECTION, "
                "AUTOSCALER_LOG, AUTOSCALER_OBJECTS"
            ),
        ),
        (
            "AUTOSCALER_TELEMETRY__PROT",
            "1",
            "unknown name; must be one of AUTOSCALER_TELEMETRY__HOST, AUTOSCALER_TELEMETRY__PORT",
        ),
        (
            "AUTOSCALER_TARGETS__2__NAME",
            "x",
            "unknown name; must be one of AUTOSCALER_TARGETS__0, AUTOSCALER_TARGETS__1",
        ),
        ("AUTOSCALER_TICK_S__X", "1", "must be AUTOSCALER_TICK_S; it has no keys of its own"),
        ("AUTOSCALER_TICK_S", "nan", "must be a finite number; got nan"),
        ("AUTOSCALER_TARGETS__0__SLO__WINDOW_S", "-1", "must be a finite number > 0; got -1.0"),
    ],
)
def test_mistyped_or_unusable_variables_are_named(name, value, message, tmp_path):
    assert f"environment: {name}: {message}" in problems(tmp_path, config(), {name: value})


def test_a_mistyped_parameter_of_a_plug_in_is_named_by_its_variable(tmp_path):
    name = "AUTOSCALER_TARGETS__0__TARGET__NAMESPACES"
    (found,) = problems(tmp_path, config(), {name: "x"})
    assert found.startswith(f"environment: {name}: unknown key; must be one of namespace, name,")


def test_links_to_a_kubernetes_service_called_autoscaler_are_no_settings(tmp_path):
    links = {
        "AUTOSCALER_SERVICE_HOST": "10.0.0.1",
        "AUTOSCALER_SERVICE_PORT": "9464",
        "AUTOSCALER_SERVICE_PORT_METRICS": "9464",
        "AUTOSCALER_PORT": "tcp://10.0.0.1:9464",
        "AUTOSCALER_PORT_9464_TCP": "tcp://10.0.0.1:9464",
        "AUTOSCALER_PORT_9464_TCP_PROTO": "tcp",
        "AUTOSCALER_PORT_9464_TCP_ADDR": "10.0.0.1",
        "AUTOSCALER_METRICS_SERVICE_HOST": "10.0.0.1",
    }
    assert loaded(tmp_path, config(), links).tick_s == 5.0
    assert problems(tmp_path, config(), {"AUTOSCALER_PORT": "9464"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tick_s: 5\ntick_s: 6\n", "must be valid YAML; key 'tick_s' is given twice"),
        ("a: *hunter2", ":1:4: must be valid YAML; found undefined alias ***"),
        ("password: 'hunter2", "must be valid YAML; found unexpected end of stream"),
        ("!!python/object:hunter2 {}", "must be valid YAML"),
        ("- a\n", "must be a mapping of keys; got list"),
        ("{5: 6}", "keys must be text; got 5"),
    ],
)
def test_files_that_are_no_settings_are_named_without_what_is_in_them(text, problem, tmp_path):
    (found,) = problems(tmp_path, text)
    assert found.startswith("autoscaler.yaml")
    assert problem in found
    assert "hunter2" not in found
    assert "\n" not in found


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: must be a readable text file"):
        load(tmp_path / "none.yaml", {})


def test_secrets_are_in_no_message_and_not_in_the_effective_configuration_G78(tmp_path):
    fakes = {
        "targets__0__source": {"kind": "live_fakes.source", "path": "m", "password": "short!"},
        "targets__0__target": {"kind": "live_fakes.target", "path": "s", "api_key": 12345678},
    }
    found = problems(tmp_path, config(**fakes))
    assert found == [
        FILE + "targets[0].source.password: must be longer; got ***",
        FILE + "targets[0].target.api_key: must be str; got ***",
    ]
    fakes["targets__0__source"] |= {"password": "hunter2-and-more"}
    fakes["targets__0__target"] = {"kind": "live_fakes.target", "path": "http://u:pw-12@h/?t=abc"}
    settings = loaded(tmp_path, config(**fakes))
    shown = str(settings.effective)
    assert "hunter2" not in shown
    assert "pw-12" not in shown
    assert "t=abc" not in shown
    assert settings.redaction.text("say hunter2-and-more") == "say ***"
    for broken in ({"tick_s": "hunter2-and-more"}, {"targets__0__slo": "hunter2-and-more"}):
        assert "hunter2" not in str(problems(tmp_path, config(**fakes, **broken)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("5.5", 5.5),
        ("1e3", 1000.0),
        ("true", True),
        ("[1, a]", [1, "a"]),
        ("", None),
        ("a: b: c", "a: b: c"),
        ("null", None),
        ("plain", "plain"),
    ],
)
def test_texts_of_the_environment_are_read_as_yaml_has_them(text, value):
    assert parse(text) == value


def test_a_role_without_a_signal_of_its_own_is_refused_A33(tmp_path):
    target = config()["targets"][0]["target"]
    second = config()["targets"][0] | {"name": "prefill", "target": target | {"role": "prefill"}}
    changes = {"targets__0__target__role": "decode", "targets__1": second}
    rule = "must select the signals of its own role; got those of targets[0]"
    assert problems(tmp_path, config(**changes)) == [f"{FILE}targets[1].source: {rule}"]
    labels = {"role": "prefill"}
    own = config(**changes, targets__1__source__labels=labels)
    assert len(loaded(tmp_path, own).targets) == 2


@pytest.mark.parametrize(
    ("part", "key"),
    [("guards", "max_gpu_budget"), ("policy_params", "max_gpus"), ("slo", "max_gpus")],
)
def test_a_budget_under_another_name_is_refused_and_not_off_A14(part, key, tmp_path):
    (found,) = problems(tmp_path, config(**{f"targets__0__{part}__{key}": 16}))
    assert found.startswith(f"{FILE}targets[0].{part}.{key}: unknown key; must be one of ")
    environ = {f"AUTOSCALER_TARGETS__0__{part}__{key}".upper(): "16"}
    (found,) = problems(tmp_path, config(), environ)
    assert "unknown key" in found


def test_a_width_below_the_engines_floor_is_refused_A22(tmp_path):
    target = {"kind": "vllm", "url": "http://e:8000", "gpus_per_width": 1, "max_width": 8}
    one = target | {"min_width": 1}
    (found,) = problems(tmp_path, config(targets__0__target=one))
    assert found.startswith(f"{FILE}targets[0].target.min_width: must be >= 2")
    assert (
        loaded(tmp_path, config(targets__0__target=target)).targets[0].target.params.min_width == 2
    )
