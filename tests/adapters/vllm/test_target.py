"""The vLLM target against an emulated engine over HTTP."""

import threading

import pytest

from autoscaler.emulator.faults import Faults
from autoscaler.errors import ConfigError, TargetError
from autoscaler.model import SetResult, Tristate, WidthStatus
from autoscaler.targets.vllm import Params, Vllm, build
from autoscaler.testing import check_target
from tests.e2e.emulator.worlds import PREPARED, Caller, emulated, meanwhile, until

NOWHERE = "http://127.0.0.1:9"


def target(call: Caller, **given: object) -> Vllm:
    return build(Params(url=call.url, **({"max_width": 4, "gpus_per_width": 1} | given)))  # type: ignore[arg-type]


def proven(steered: Vllm, width: int) -> WidthStatus:
    """Read until a width is proven."""
    last: list[WidthStatus] = []

    def there() -> bool:
        last.append(steered.read())
        return last[-1].effective == width

    until(there)
    return last[-1]


def test_it_keeps_the_contract_of_its_port():
    with emulated(2) as call:
        steered = target(call)
        proven(steered, 2)
        check_target(steered)


def test_a_width_is_known_only_when_every_rank_has_served_a_token():
    with emulated(2) as call:
        steered = target(call)
        first = steered.read()
        assert (first.desired, first.effective, first.stable) == (2, None, None)
        status = proven(steered, 2)
        assert (status.desired, status.stable, status.resizing) == (2, 2, False)
        assert call.state()["requests"] == 2, "one token a rank, once"
        for _ in range(3):
            assert steered.read().effective == 2
        assert call.state()["requests"] == 2, "the rank bound is enough at rest"


def test_a_growth_holds_through_the_503s_and_converges_with_the_first_token_A36():
    with emulated(2, time_scale=40.0) as call:
        steered = target(call, timeout_s=0.3)
        proven(steered, 2)
        assert steered.set_width(4, 2).result is SetResult.APPLIED
        status = steered.read()
        assert (status.desired, status.effective, status.stable) == (4, None, 2)
        assert status.resizing
        assert "503" in status.detail
        assert steered.set_width(3, 4).result is SetResult.CONFLICT
        done = proven(steered, 4)
        assert (done.desired, done.stable, done.resizing) == (4, 4, False)
        assert call.state()["now_s"] >= 76.3, "a 200 after 67 s was not enough"


def test_the_old_width_is_proven_while_the_engine_prepares():
    with emulated(2, version="0.33", resize=PREPARED, time_scale=20.0) as call:
        steered = target(call, timeout_s=0.3)
        proven(steered, 2)
        assert steered.set_width(4, 2).result is SetResult.APPLIED
        status = proven(steered, 2)
        assert (status.desired, status.resizing) == (4, True)
        proven(steered, 4)


def test_a_refused_growth_is_a_named_failure_and_phantom_engines_are_no_width():
    with emulated(2, faults=Faults(resize="refuse")) as call:
        steered = target(call)
        proven(steered, 2)
        assert steered.set_width(4, 2).result is SetResult.AMBIGUOUS
        assert 'engine="3"' in call("GET", "/metrics")[1]
        status = proven(steered, 2)
        assert (status.desired, status.stable, status.resizing) == (4, 2, False)
        assert status.failure == "POST /scale_elastic_ep: 500 Scale failed; asked for 4"
        assert steered.set_width(3, 4).result is not SetResult.CONFLICT
        assert steered.read().failure is None, "the next write clears it"


def test_a_failure_at_the_commit_is_named_by_a_later_reading_A20():
    with emulated(2, resize=PREPARED, version="0.30", faults=Faults(resize="fail_commit")) as call:
        steered = target(call, timeout_s=0.2)
        proven(steered, 2)
        assert steered.set_width(4, 2).result is SetResult.APPLIED
        until(lambda: steered.read().failure is not None)
        status = proven(steered, 2)
        assert (status.desired, status.resizing) == (4, False)
        assert "500 Scale failed" in (status.failure or "")


def test_a_failed_resize_is_forgotten_after_a_while():
    with emulated(2, faults=Faults(resize="refuse")) as call:
        steered = target(call, forget_failure_s=0.2)
        proven(steered, 2)
        steered.set_width(4, 2)
        until(lambda: steered.read().desired == 2)
        assert steered.read().failure is None
        assert steered.set_width(4, 2).result is SetResult.APPLIED


def test_a_wedged_engine_stays_failed():
    with emulated(2, version="0.30", faults=Faults(resize="wedge")) as call:
        steered = target(call)
        proven(steered, 2)
        steered.set_width(4, 2)
        until(lambda: steered.read().failure is not None)
        status = steered.read()
        assert (status.effective, status.stable, status.resizing) == (None, 2, True)
        assert "503" in status.detail


def test_a_lost_answer_is_never_resent_and_the_width_shows_what_became_of_it_A05():
    with emulated(2, faults=Faults(resize="lose_answer")) as call:
        steered = target(call, timeout_s=0.2)
        proven(steered, 2)
        steered.set_width(4, 2)
        done = proven(steered, 4)
        assert (done.desired, done.failure) == (4, None)


def test_a_hang_is_held_and_nothing_is_sent_twice_A05():
    with emulated(2, version="0.30", resize=PREPARED, faults=Faults(resize="hang")) as call:
        steered = target(call, timeout_s=0.2, answer_timeout_s=0.6, lost_after_s=0.5)
        proven(steered, 2)
        assert steered.set_width(4, 2).result is SetResult.APPLIED
        assert steered.set_width(4, 4).result is SetResult.CONFLICT
        assert steered.read().resizing
        until(lambda: steered.read().failure is not None)
        status = proven(steered, 2)
        assert "the answer to the resize was lost" in (status.failure or "")
        posts = 'http_requests_total{handler="/scale_elastic_ep",method="POST",status="2xx"}'
        assert posts not in call.series()


def test_somebody_elses_resize_becomes_the_desired_width():
    with emulated(2, time_scale=200.0) as call:
        steered = target(call)
        proven(steered, 2)
        with meanwhile(lambda: call.scale(4)):
            until(lambda: steered.read().resizing is True)
        assert proven(steered, 4).desired == 4


def test_a_smaller_width_is_refused_unless_it_may_be_asked_for_A06():
    with emulated(4, time_scale=500.0) as call:
        steered = target(call)
        proven(steered, 4)
        refused = steered.set_width(2, 4)
        assert refused.result is SetResult.REFUSED
        assert "can_shrink" in refused.detail
        assert steered.capabilities().can_shrink is Tristate.NO
        shrinking = target(call, can_shrink=True)
        proven(shrinking, 4)
        assert shrinking.set_width(2, 4).result is SetResult.APPLIED
        proven(shrinking, 2)


def test_a_400_is_a_refusal():
    with emulated(2, version="0.30") as call:
        steered = target(call, max_width=9)
        proven(steered, 2)
        refused = steered.set_width(9, 2)
        assert refused.result is SetResult.REFUSED
        assert "400 new_data_parallel_size 9 exceeds" in refused.detail
        assert steered.read().desired == 2


def test_a_flaky_probe_takes_no_width_away_A19():
    with emulated(2) as call:
        steered = target(call)
        proven(steered, 2)
        call.faults(probe_failure_ratio=1.0)
        status = steered.read()
        assert (status.effective, status.stable, status.desired) == (None, 2, 2)
        call("DELETE", "/_emulator/faults")
        assert steered.read().effective == 2


def test_an_unhealthy_engine_proves_nothing():
    with emulated(2) as call:
        steered = target(call)
        proven(steered, 2)
        call.faults(health_status=500)
        status = steered.read()
        assert (status.effective, status.stable) == (None, 2)
        assert "GET /health: 500" in status.detail


def test_an_engine_that_is_not_there_is_unreadable_and_nothing_was_sent():
    steered = build(Params(url=NOWHERE, max_width=4, gpus_per_width=1))
    with pytest.raises(TargetError, match="no connection"):
        steered.read()
    assert steered.set_width(4, 2).result is SetResult.CONFLICT


def test_an_engine_that_goes_away_has_to_prove_itself_anew():
    with emulated(2) as call:
        steered = target(call)
        proven(steered, 2)
    with pytest.raises(TargetError):
        steered.read()
    assert steered.set_width(4, 2).result is SetResult.SKIPPED


def test_reading_a_silent_engine_ends_in_time_and_costs_one_thread():
    with emulated(2) as call:
        steered = target(call, timeout_s=0.2)
        proven(steered, 2)
        call.faults(probe_failure_ratio=0.0)
        before = threading.active_count()
        import socket

        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            quiet = build(Params(url=url, max_width=4, gpus_per_width=1, timeout_s=0.2))
            for _ in range(3):
                with pytest.raises(TargetError):
                    quiet.read()
            assert threading.active_count() <= before + 2


def test_the_key_is_sent_from_its_file_and_never_told(tmp_path):
    key = tmp_path / "key"
    with emulated(2) as call:
        steered = target(call, api_key_file=str(key))
        with pytest.raises(TargetError, match="api_key_file: must be readable"):
            steered.read()
        key.write_text("secret\n")
        proven(steered, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "ftp://x"}, "url: must be http"),
        ({"url": "http://user:secret@x"}, "url: must be http"),
        ({"min_width": 1}, "min_width: must be >= 2"),
        ({"max_width": 1}, "max_width: must be a whole number >= 2"),
        ({"gpus_per_width": 0}, "gpus_per_width: must be a whole number >= 1"),
        ({"timeout_s": 0.0}, "timeout_s: must be a finite number > 0"),
    ],
)
def test_unusable_parameters_are_named_A22(given, message):
    with pytest.raises(ConfigError, match=message) as raised:
        Params(**({"url": NOWHERE, "max_width": 4, "gpus_per_width": 1} | given))
    assert "secret" not in str(raised.value)


def test_the_gpus_of_a_rank_are_never_guessed_A15():
    from autoscaler.parameters import from_mapping

    with pytest.raises(ConfigError, match="gpus_per_width: must be given"):
        from_mapping(Params, {"url": NOWHERE, "max_width": 4}, "autoscaler.yaml")
