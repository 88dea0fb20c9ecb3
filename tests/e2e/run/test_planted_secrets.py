"""A secret in every place where one can be, through every command that could show it.

Each begins with CANARY, and is searched for, as it is and in base64, in everything that was
written: both streams, the decision log, the memory, the pages, the objects of the API server, the
tables of ``capture``. The servers repeat what they were sent.
"""

import base64
import json

import pytest
import trustme
import yaml

from autoscaler.testing_apiserver import ADMIN, ApiServer, Fault
from tests.adapters.kubernetes.worlds import CRD, NAME, NAMESPACE, deployment

from .hostile import Hostile

CANARY = "canary-4f1c"
COMMANDS = [
    *("run", "replay", "check", "simulate", "scoreboard", "tune", "demo", "calibrate"),
    *("capture", "emulate", "trace"),
]
KEYED = ("engine_401", "engine_500")
PROMETHEUS = ("bad_request", "status_error", "warnings", "unauthorized", "redirect", "bad_vector")
SCRAPED = ("odd_type", "bad_page", "unauthorized", "redirect")


def forms(text):
    """The canary as it is, and as it looks within base64, at each of three offsets."""
    found = {text}
    for shift in range(3):
        coded = base64.b64encode(b"x" * shift + text.encode()).decode()
        found.add(coded[4 if shift else 0 : len(coded) - 4])
    return found


def assert_unseen(shown):
    for form in forms(CANARY):
        at = shown.find(form)
        assert at < 0, f"shown: {shown[max(at - 300, 0) : at + 200]}"


def files_of(folder):
    """Everything below a folder that was not put there by the test."""
    return "".join(f.read_text("utf-8", "replace") for f in folder.rglob("*") if f.is_file())


@pytest.fixture
def hostile():
    server = Hostile(CANARY)
    yield server
    server.close()


@pytest.fixture
def api():
    with ApiServer() as server:
        server.install(CRD)
        kind = server.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        server.store.create(kind, NAMESPACE, deployment(2))
        yield server


@pytest.fixture
def planted(world, hostile, tmp_path_factory):
    """Targets with every credential there is; the files are elsewhere than what is written."""
    vault = tmp_path_factory.mktemp("vault")

    def file(name):
        (vault / name).write_text(f"{CANARY}-{name}\n", encoding="utf-8")
        return str(vault / name)

    for how in PROMETHEUS:
        source = {"kind": "prometheus", "url": f"{hostile.url}/{how}", "timeout_s": 0.9}
        source |= {"bearer_token_file": file(f"bearer-{how}"), "scrape_interval_s": 0.5}
        source["headers"] = {"X-Scope-OrgID": f"{CANARY}-tenant"}
        world.add_target(f"prometheus-{how}".replace("_", "-"), source=source)
    for how in SCRAPED:
        source = {"kind": "scrape", "urls": [f"{hostile.url}/{how}"], "timeout_s": 0.9}
        source |= {"username": "me", "password_file": file(f"password-{how}")}
        source["scrape_interval_s"] = 0.5
        world.add_target(f"scrape-{how}".replace("_", "-"), source=source)
    for how in KEYED:
        target = {"kind": "vllm", "url": f"{hostile.url}/{how}", "max_width": 4}
        target |= {"gpus_per_width": 2, "timeout_s": 0.9, "api_key_file": file(f"key-{how}")}
        world.add_target(f"vllm-{how}".replace("_", "-"), target=target)
    ray = {"kind": "ray_serve", "url": f"{hostile.url}/ray", "application": "a", "timeout_s": 0.9}
    world.add_target("ray", target=ray | {"deployment": "d", "max_width": 4, "gpus_per_width": 1})
    fakes = world.add_target("fakes")
    fakes["source"]["password"] = f"{CANARY}-password"
    fakes["target"]["api_key"] = f"{CANARY}-api-key"
    world.metrics("fakes", **{"raise": f"401: {CANARY}-password; http://u:{CANARY}@h/?{CANARY}"})
    return world


ENVIRONMENT = {
    "AUTOSCALER_TARGETS__0__SOURCE__HEADERS": "{X-Scope-OrgID: canary-4f1c-environment}",
    "HTTPS_PROXY": f"http://u:{CANARY}-proxy@127.0.0.1:9",
    "DB_PASSWORD": f"{CANARY}-elsewhere",
    "KUBECONFIG": f"/nowhere/{CANARY}",
}


@pytest.mark.parametrize("form", ["json", "text"])
def test_servers_that_repeat_credentials_put_them_into_nothing_G76(planted, hostile, form):
    planted.save(
        tick_s=1.0,
        log={"format": form, "level": "debug"},
        memory={"path": "memory.json"},
    )
    del planted.settings["targets"]  # saved; the world's own file stays out of the search
    done = planted.run("--once", env=ENVIRONMENT)
    assert done.returncode == 1, done.stderr
    planted.config.unlink()
    for name in ("fakes.metrics", "fakes.state"):
        (planted.folder / name).unlink()
    shown = done.stdout + done.stderr + files_of(planted.folder)
    assert hostile.met >= {*PROMETHEUS, *SCRAPED, *KEYED, "ray"}
    assert "the header was" in shown  # the words of servers are shown, without what they repeat
    assert "***" in shown
    assert hostile.landed == []
    assert_unseen(shown)
    told = planted.command("replay", str(planted.log))
    assert_unseen(told.stdout + told.stderr)


def test_the_pages_and_the_log_of_a_long_run_show_nothing_G76(planted, hostile):
    planted.save(tick_s=1.0, log={"format": "json", "level": "debug"})
    process = planted.start(env=ENVIRONMENT)
    planted.await_true(lambda: len(planted.entries()) >= 20, 60.0)
    shown = "".join(process.page(f"/{name}").text for name in ("metrics", "healthz", "readyz"))
    assert "autoscaler_errors_total" in shown
    planted.metrics("fakes", defect=f"a bug near {CANARY}-password, http://u:{CANARY}-u@h/x")
    assert process.process.wait(30) == 1
    process._reader.join(5)
    assert process.events("defect")
    assert hostile.landed == []
    assert_unseen(shown + process.text + planted.log.read_text("utf-8"))


@pytest.mark.parametrize("form", ["text", "json"])
def test_check_shows_nothing_G76(planted, hostile, form):
    planted.save(tick_s=1.0)
    arguments = ("--format", form, "--patience-s", "0")
    done = planted.command("check", "--config", str(planted.config), *arguments, env=ENVIRONMENT)
    assert done.returncode == 3, done.stderr
    assert "the header was" in done.stdout
    assert hostile.landed == []
    assert_unseen(done.stdout + done.stderr)


def test_an_api_server_that_repeats_the_token_puts_it_into_nothing_G76(world, api, tmp_path):
    token = f"{CANARY}-token"
    api.tokens[token] = ADMIN
    target = {"kind": "gpustack", "namespace": NAMESPACE, "name": NAME, "timeout_s": 0.9}
    target["kubeconfig"] = api.kubeconfig(tmp_path / "kubeconfig", token)
    world.add_target("chat", target=target)
    world.save(tick_s=1.0, log={"level": "debug"})
    told = []
    for status in (302, 400, 401, 403, 404, 422, 429, 500, 503):
        said = f"no, {token} at https://me:{CANARY}-u@h/x"
        body = {"kind": "Status", "message": said, "reason": said, "code": status}
        location = {"Location": f"{api.url}/landing?token={CANARY}"}
        fault = Fault("answer", "", "modeldeployments", None, status=status, headers=location)
        fault.body = json.dumps(body)
        api.faults[:] = [fault]
        for command in (("run", "--once"), ("check", "--patience-s", "0")):
            done = world.command(command[0], "--config", str(world.config), *command[1:])
            assert done.returncode in (1, 3), done.stderr
            told.append(done.stdout + done.stderr)
    assert not [r for r in api.requests if "landing" in r.path]
    assert any("no, ***" in text for text in told)
    assert_unseen("".join(told) + world.log.read_text("utf-8"))


UNUSABLE = {
    "userinfo": {"url": f"http://me:{CANARY}@h:9090"},
    "query": {"url": f"http://h:9090/?token={CANARY}"},
    "fragment": {"url": f"http://h:9090/#{CANARY}"},
    "misspelt": {"url": "http://h", "bearer_token": f"{CANARY}-inline"},
    "misspelt_password": {"url": "http://h", "pasword": f"{CANARY}-inline", "password": CANARY},
    "authorization": {"url": "http://h", "headers": {"Authorization": f"Bearer {CANARY}"}},
    "control": {"url": "http://h", "headers": {"X-Token": f"{CANARY}\n"}},
    "not_a_mapping": {"url": "http://h", "headers": f"{CANARY}"},
    "port": {"url": f"http://me:{CANARY}@h:port"},
}


@pytest.mark.parametrize("what", [*UNUSABLE])
def test_refused_settings_are_named_without_their_secrets_G76_G78(world, what):
    world.add_target("chat", source={"kind": "prometheus", **UNUSABLE[what]})
    world.save()
    for command in ("run", "check"):
        done = world.command(command, "--config", str(world.config))
        assert done.returncode == 2, done.stderr
        assert "autoscaler.yaml: targets[0].source" in done.stderr
        assert_unseen(done.stdout + done.stderr)


@pytest.mark.parametrize(
    "text",
    [
        f"password: {CANARY}",  # no kubeconfig
        f"users: [{{name: a, user: {{token: {CANARY}",  # no YAML
        f"token: *{CANARY}",
        f"token: !{CANARY} x",
        f"{CANARY}",
        f"current-context: a\ncontexts: [{{name: a, context: {{user: {CANARY}}}}}]",
    ],
)
def test_an_unusable_kubeconfig_is_named_without_what_is_in_it_G76(world, tmp_path, text):
    file = tmp_path / "kubeconfig"
    file.write_text(text, encoding="utf-8")
    target = {"kind": "gpustack", "namespace": NAMESPACE, "name": NAME, "kubeconfig": str(file)}
    world.add_target("chat", target={**target, "timeout_s": 0.05})
    world.save()
    for command in ("run", "check"):
        done = world.command(command, "--config", str(world.config))
        assert done.returncode in (2, 3), done.stderr
        assert "kubeconfig" in done.stdout + done.stderr
        assert_unseen(done.stdout + done.stderr)


def test_a_credential_plugin_that_complains_is_not_quoted_G76(world, api, tmp_path):
    file = api.kubeconfig(tmp_path / "kubeconfig", "")
    content = yaml.safe_load((tmp_path / "kubeconfig").read_text("utf-8"))
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh"}
    plugin |= {"args": ["-c", "echo $SECRET >&2; exit 1"], "interactiveMode": "Never"}
    plugin["env"] = [{"name": "SECRET", "value": f"{CANARY}-plugin"}]
    content["users"][0]["user"] = {"exec": plugin}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content), encoding="utf-8")
    target = {"kind": "gpustack", "namespace": NAMESPACE, "name": NAME, "kubeconfig": file}
    world.add_target("chat", target={**target, "timeout_s": 0.9})
    world.save(tick_s=1.0)
    for command in (("run", "--once"), ("check", "--patience-s", "0")):
        done = world.command(command[0], "--config", str(world.config), *command[1:])
        assert done.returncode in (1, 2, 3), done.stderr
        assert_unseen(done.stdout + done.stderr)


def test_a_client_key_that_is_none_is_not_quoted_G76(world, tmp_path):
    key = tmp_path / "key.pem"
    key.write_text(f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n", encoding="utf-8")
    certificate = tmp_path / "certificate.pem"
    trustme.CA().issue_cert("me").cert_chain_pems[0].write_to_path(certificate)
    source = {"kind": "prometheus", "url": "https://127.0.0.1:9", "timeout_s": 0.9}
    source["scrape_interval_s"] = 0.5
    source |= {"cert_file": str(certificate), "key_file": str(key)}
    world.add_target("chat", source=source)
    world.save(tick_s=1.0)
    done = world.run("--once")
    assert done.returncode == 1
    assert_unseen(done.stdout + done.stderr + world.log.read_text("utf-8"))


def test_files_of_policies_are_refused_without_their_secrets_G78(world, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrival_s": 1, "prompt_tokens": 1, "output_tokens": 1}\n', encoding="utf-8")
    policy = tmp_path / "mine.yaml"
    for text in (
        f"kind: threshold\nparams: {{api_key: {CANARY}}}\n",
        f"kind: threshold\ntoken: {CANARY}\n",
        f"kind: *{CANARY}\n",
        f"password: {CANARY}\n",
    ):
        policy.write_text(text, encoding="utf-8")
        done = world.command("simulate", "--trace", str(trace), "--policy", str(policy))
        assert done.returncode == 2, done.stdout
        assert "mine.yaml" in done.stderr
        assert_unseen(done.stdout + done.stderr)


def test_capture_shows_and_keeps_no_key_G76(world, hostile, tmp_path_factory):
    key = tmp_path_factory.mktemp("vault") / "key"
    key.write_text(f"{CANARY}-key", encoding="utf-8")
    out = world.folder / "out.csv"
    for how in (*KEYED, "unauthorized", "redirect"):
        done = world.command(
            *("capture", "--url", f"{hostile.url}/{how}", "--model", "m", "--out", str(out)),
            *("--width", "2", "--concurrency", "1", "--requests", "2"),
            *("--timeout-s", "5", "--api-key-file", str(key)),
        )
        assert done.returncode in (1, 2)
        assert_unseen(done.stdout + done.stderr + files_of(world.folder))
    assert hostile.landed == []
    for url in (f"http://me:{CANARY}@h:1", f"http://h:1/?key={CANARY}", f"http://h:1/#{CANARY}"):
        done = world.command("capture", "--url", url, "--model", "m", "--out", str(out))
        assert done.returncode == 2
        assert "url: must be" in done.stderr
        assert_unseen(done.stdout + done.stderr)


def test_no_help_shows_a_value_of_the_environment_G76(world):
    environment = {**ENVIRONMENT, "AUTOSCALER_TOKEN": CANARY, "AUTOSCALER_CONFIG": CANARY}
    for command in COMMANDS:
        done = world.command(command, "--help", env=environment)
        assert done.returncode == 0, done.stderr
        assert_unseen(done.stdout + done.stderr)
    done = world.command("run", "--config", str(world.config), env=environment)
    assert done.returncode == 2
    assert_unseen(done.stdout + done.stderr)
