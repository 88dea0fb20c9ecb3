"""``autoscaler run`` and ``replay`` as processes, in a world of files."""

import json
import signal

from prometheus_client.parser import text_string_to_metric_families

from autoscaler.clock import SystemClock
from tests.e2e.run.conftest import BURNING, FREE, QUIET


def samples(text):
    """Value by name and labels."""
    return {
        (s.name, *sorted(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_a_run_steers_records_exports_and_its_replay_is_equal_S18(world):
    world.add_target("chat", shadow=["threshold", "static:6"])
    world.add_target("batch", policy="static:3")
    world.save()
    process = world.start()
    names = ("chat", "batch")
    world.await_true(lambda: [world.read_state(n)["effective"] for n in names] == [4, 3])
    world.await_true(lambda: len([e for e in world.entries() if e["tick"] > 8]) > 2)

    found = samples(process.page("/metrics").text)
    chat = ("target", "chat")
    for kind in ("proposed", "desired", "effective", "stable"):
        assert found["autoscaler_width", ("kind", kind), chat] == 4
    assert found["autoscaler_shadow_width", ("policy", "static:6"), chat] == 6
    assert found["autoscaler_signal", ("signal", "ttft_p95_s"), chat] == 0.5
    assert process.page("/healthz").text == "ok\n"
    assert process.page("/readyz").text == "ok\n"

    clock = SystemClock()
    began_s = clock.now_s()
    assert process.end() == 0
    assert clock.now_s() - began_s < 1.0
    assert world.read_state("chat")["writes"] == [4]
    assert process.events("stopping")[0]["signal"] == "SIGTERM"
    assert len([e for e in process.events("decision") if e["target"] == "chat"]) < 10

    shadowed = [
        e["shadows"]["static:6"]["decision"]["width"]
        for e in world.entries()
        if e["controller"]["target"] == "chat"
    ]
    assert 6 in shadowed
    again = world.command("replay", str(world.log), "--format", "json")
    assert again.returncode == 0, again.stdout
    document = json.loads(again.stdout)
    assert document["equal"] == document["decisions"] == len(world.entries())
    assert sorted(document["targets"]) == ["batch", "chat"]
    other = world.command("replay", str(world.log), "--policy", "static:6")
    assert other.returncode == 0
    assert "a larger one in" in other.stdout


def test_a_blocked_target_neither_delays_the_others_nor_the_end(world):
    world.add_target("stuck")
    world.add_target("free")
    world.metrics("stuck", block_s=30)
    world.save()
    process = world.start()
    world.await_true(lambda: len(world.entries()) > 12)
    assert {e["controller"]["target"] for e in world.entries()} == {"free"}
    assert process.page("/healthz").status_code == 503
    assert process.page("/healthz").text.startswith("stuck: ")
    assert process.page("/readyz").status_code == 503
    clock = SystemClock()
    began_s = clock.now_s()
    assert process.end(signal.SIGINT) == 0
    assert clock.now_s() - began_s < 1.5  # 0.7 s for the stuck one, and the interpreter's end


def test_a_program_that_sees_no_engine_says_so_instead_of_looking_well_M10(world):
    world.add_target("chat", policy="static:1", guards=FREE)
    world.metrics("chat")  # an answer, in which nothing is of this model
    world.save()
    process = world.start()
    world.await_true(lambda: len(world.entries()) >= 15)  # a window of 1 s and more
    assert process.page("/healthz").text == "ok\n"
    page = process.page("/readyz")
    assert (page.status_code, page.text) == (503, "chat: its source selects no series\n")
    assert world.read_state("chat").get("writes", []) == []
    world.metrics("chat", QUIET)
    world.await_true(lambda: process.page("/readyz").status_code == 200)


def test_after_a_kill_the_next_process_takes_up_the_resize_and_the_log_goes_on_A30(world):
    target = world.add_target("chat")
    target["target"]["resize_reads"] = 25
    world.save()
    process = world.start()
    world.await_true(lambda: len(world.entries()) >= 3)
    assert world.read_state("chat")["writes"] == [4]
    process.end(signal.SIGKILL)
    with world.log.open("a", encoding="utf-8") as log:  # a line that the kill had cut off
        log.write('{"schema":"autoscaler.decision/v1","tick":9')
    again = world.start()
    world.await_true(lambda: world.read_state("chat")["effective"] == 4)
    again.await_line("decision")
    first = again.events("decision")[0]
    assert (first["code"], first["resize"]) == ("adopted", "2 -> 4")
    assert again.end() == 0
    assert world.read_state("chat")["writes"] == [4]  # never asked for a second time
    replayed = world.command("replay", str(world.log))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "cut off, left out" in replayed.stderr
    assert "(2 starts)" in replayed.stdout


def test_a_changed_file_is_taken_up_and_garbage_is_refused_with_the_old_one_kept(world):
    policy = world.folder / "mine.yaml"
    policy.write_text("kind: static\nwidth: 3\n", encoding="utf-8")
    chat = world.add_target("chat", policy="mine.yaml", guards={**FREE, "cooldown_up_s": 0})
    world.add_target("batch", policy="static:2")
    world.save()
    process = world.start()
    world.await_true(lambda: world.read_state("chat")["effective"] == 3)

    world.config.write_text("targets: [", encoding="utf-8")
    refused = process.await_line("config_refused")
    assert "must be valid YAML" in refused["problems"][0]
    world._write("mine.yaml", "kind: static\nwidth: -5\n")
    world.save()
    refused = process.await_line("config_refused", 2)
    assert "mine.yaml: width: must be a whole number >= 0; got -5" in refused["problems"][0]
    found = samples(process.page("/metrics").text)
    name = "autoscaler_errors_total", ("class", "SettingsError"), ("port", "config"), ("target", "")
    assert found[name] == 2
    current = ("autoscaler_config_last_reload_successful",)
    world.await_true(lambda: samples(process.page("/metrics").text)[current] == 0)

    world._write("mine.yaml", "kind: static\nwidth: 5\n")  # at once, or half of it is taken up
    assert process.await_line("config_taken_up")["changed"] == ["chat"]
    world.await_true(lambda: samples(process.page("/metrics").text)[current] == 1)
    world.await_true(lambda: world.read_state("chat")["effective"] == 5)
    world.metrics("chat", BURNING)
    chat["policy"] = "static:6"
    world.settings["targets"].pop()
    world.add_target("third", policy="static:3")
    world.save(telemetry={"port": 0, "host": "127.0.0.1"})
    changed = process.await_line("config_taken_up", 2)["changed"]
    assert changed == ["batch", "chat", "third"]
    world.await_true(lambda: world.read_state("third")["effective"] == 3)
    world.await_true(lambda: world.read_state("chat")["effective"] == 6)
    assert 'target="batch"' not in process.page("/metrics").text.split("autoscaler_gpu")[0]
    assert process.end() == 0

    ticks = [e["tick"] for e in world.entries() if e["controller"]["target"] == "chat"]
    assert ticks == list(range(len(ticks)))  # the loop went on, it was not begun anew
    replayed = world.command("replay", str(world.log))
    assert replayed.returncode == 0, replayed.stdout
    assert "(3 targets, 3 starts)" in replayed.stdout


def test_once_ticks_once_and_says_by_its_code_whether_it_could(world):
    world.add_target("chat")
    world.save()
    assert world.run("--once", "--dry-run").returncode == 0
    assert "writes" not in world.read_state("chat")
    assert world.entries()[-1]["outcome"]["result"] == "skipped"
    assert world.run("--once").returncode == 0
    assert world.read_state("chat")["writes"] == [4]
    world.state("chat", unreadable="no route")
    assert world.run("--once").returncode == 1
    assert len(world.entries()) == 3


def test_the_environment_has_precedence_and_its_typos_are_errors(world):
    world.add_target("chat")
    world.save()
    links = {"AUTOSCALER_PORT": "tcp://10.0.0.1:80", "AUTOSCALER_SERVICE_HOST": "10.0.0.1"}
    done = world.run("--once", env={"AUTOSCALER_TARGETS__0__POLICY": "static:7", **links})
    assert done.returncode == 0, done.stdout + done.stderr
    assert world.read_state("chat")["writes"] == [7]
    done = world.run("--once", env={"AUTOSCALER_TICKS": "1", "AUTOSCALER_TICK_S": "-1"})
    assert done.returncode == 2
    assert done.stderr.startswith(
        "autoscaler: environment: AUTOSCALER_TICKS: unknown name; must be one of AUTOSCALER_TICK_S,"
    )
    assert "environment: AUTOSCALER_TICK_S: must be greater than 0; got -1" in done.stderr


SECRET, USER = "hunter2-and-more", "http://admin:s3cr3t-pass@db/x"


def test_planted_secrets_are_in_no_output_G76_G78(world):
    chat = world.add_target("chat")
    chat["source"]["password"] = SECRET
    chat["target"]["api_key"] = SECRET + "'\"2"
    world.metrics("chat", **{"raise": f"401 from {USER}?token=abc: password {SECRET} is wrong"})
    world.save()
    done = world.run("--once")
    shown = done.stdout + done.stderr + world.log.read_text("utf-8")
    assert done.returncode == 1
    assert "401 from http://***@db/x?***" in world.log.read_text("utf-8")

    world.metrics("chat", defect=f"bug near {SECRET} and {USER}")
    done = world.run("--once")
    assert done.returncode == 1
    shown += done.stdout + done.stderr
    chat["source"]["pasword"] = SECRET  # a mistyped key is not known for what it is
    del chat["policy"]
    world.save()
    done = world.run()
    assert done.returncode == 2
    shown += done.stdout + done.stderr
    world.config.write_text(f"targets: [{{password: *{SECRET}}}", encoding="utf-8")
    done = world.run()
    assert done.returncode == 2
    shown += done.stdout + done.stderr
    for secret in (SECRET, "s3cr3t-pass", "token=abc"):
        assert secret not in shown


def test_a_full_disk_costs_lines_and_not_the_loop(world):
    world.add_target("chat")
    world.save(decisions={"path": "/dev/full"})
    process = world.start()
    world.await_true(lambda: world.read_state("chat")["effective"] == 4)
    found = samples(process.page("/metrics").text)
    lost = "autoscaler_errors_total", ("class", "OSError"), ("port", "decisions")
    assert found[*lost, ("target", "chat")] >= 3
    assert process.end() == 0
    assert len(process.events("decisions_lost")) == 1
    assert process.events("decisions_lost")[0]["problem"] == "/dev/full: No space left on device"


def test_a_defect_ends_the_program_loudly(world):
    world.add_target("chat")
    world.save()
    process = world.start()
    world.metrics("chat", QUIET)
    world.metrics("chat", defect="a bug")
    assert process.process.wait(5) == 1
    process._reader.join(5)
    assert "ValueError: a bug" in process.events("defect")[0]["traceback"]
