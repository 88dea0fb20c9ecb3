"""Resizes over HTTP: what a client, a scraper and a controller see of them."""

import http.client
import json

import pytest

from autoscaler.emulator.faults import Faults
from tests.e2e.emulator.worlds import PREPARED, SCALING, emulated, meanwhile, until

PATHS = [("GET", "/health"), ("GET", "/metrics"), ("POST", "/is_scaling_elastic_ep")]


def test_growing_is_503_on_every_path_and_a_200_is_not_the_first_token_A36():
    with emulated(2) as call:
        assert call.complete()[0] == 200
        before_s = call.state()["now_s"]
        with meanwhile(lambda: call.scale(4)) as answer:
            until(lambda: call("GET", "/health")[0] == 503)
            for method, path in [*PATHS, ("GET", "/v1/models"), ("POST", "/scale_elastic_ep")]:
                assert call(method, path)[:2] == (503, SCALING)
            assert call.complete()[0] == 503
        assert answer == [(200, '{"message":"Scaled to 4 data parallel engines"}')]
        took_s = call.state()["now_s"] - before_s
        assert 67.1 <= took_s < 74.0
        page = call.series()
        served = 'vllm:generation_tokens_total{engine="0",model_name="emulated"}'
        assert page[served] == 0.0, "growing resets every counter"
        assert page['vllm:num_requests_waiting{engine="3",model_name="emulated"}'] == 0.0
        assert call.complete()[0] == 200
        assert call.state()["now_s"] - before_s >= 76.3
        ttft = 'vllm:time_to_first_token_seconds_sum{engine="0",model_name="emulated"}'
        assert 1.0 < call.series()[ttft] < 9.2


def test_after_a_shrink_series_stay_frozen_and_requests_hang_M15():
    with emulated(2, min_width=1) as call:
        body = {"prompt": "a", "max_tokens": 4000, "stream": True}
        headers = {"X-data-parallel-rank": "1", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(call.url.split("//")[1], timeout=1.0)
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        stream = connection.getresponse()
        assert stream.readline().startswith(b"data:")
        assert call.scale(1)[0] == 200
        running = 'vllm:num_requests_running{engine="1",model_name="emulated"}'
        assert call.series()[running] == 1.0
        with pytest.raises(TimeoutError):
            stream.read()
        connection.close()
        assert call.state()["ended"]["hang"] == 1


def test_a_refused_growth_resets_the_counters_and_leaves_a_phantom_engine():
    with emulated(2, faults=Faults(resize="refuse")) as call:
        assert call.complete()[0] == 200
        status, body = call.scale(4)
        assert (status, json.loads(body)["error"]["message"]) == (500, "Scale failed")
        assert call("GET", "/health")[0] == 200
        page = call.series()
        assert page['vllm:num_requests_running{engine="3",model_name="emulated"}'] == 0.0
        assert page['vllm:prompt_tokens_total{engine="0",model_name="emulated"}'] == 0.0
        assert call.state()["rank_bound"] == 2
        assert call.scale(4)[0] == 200, "the fault held for one resize"


def test_a_commit_that_fails_leaves_the_old_width_serving_A20():
    with emulated(2, faults=Faults(resize="fail_commit")) as call:
        assert call.scale(4)[0] == 500
        assert call.complete()[0] == 200
        assert call.state()["rank_bound"] == call.state()["width"] == 2


def test_a_wedged_engine_answers_503_until_it_is_restarted():
    with emulated(2, version="0.30", faults=Faults(resize="wedge")) as call:
        assert call.scale(4)[0] == 500
        assert call("GET", "/health")[:2] == (503, SCALING)
        assert call("POST", "/_emulator/restart", {"width": 2})[0] == 200
        assert call.complete()[0] == 200


def test_a_lost_answer_is_a_cut_connection_and_a_done_resize():
    with emulated(2, faults=Faults(resize="lose_answer")) as call:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            call.scale(4)
        assert call.state()["rank_bound"] == 4


@pytest.mark.parametrize(("version", "exempt"), [("0.30", False), ("0.33", True)])
def test_newer_versions_serve_while_they_prepare(version, exempt):
    with emulated(2, version=version, resize=PREPARED, time_scale=20.0) as call:
        with meanwhile(lambda: call.scale(4)) as answer:
            until(lambda: call.state()["phase"] == "preparing")
            assert call.complete()[0] == 200
            assert json.loads(call("POST", PATHS[2][1])[1])["is_scaling_elastic_ep"] is False
            until(lambda: call.state()["phase"] == "committing")
            assert call("GET", "/metrics")[0] == 503
            assert call.complete()[0] == 503
            assert call("GET", "/health")[0] == (200 if exempt else 503)
            if exempt:
                told = json.loads(call("POST", PATHS[2][1])[1])
                assert (told["is_scaling_elastic_ep"], told["phase"]) == (True, "committing")
        assert answer[0][0] == 200


@pytest.mark.parametrize(("version", "status"), [("0.25", 500), ("0.30", 400)])
def test_a_width_out_of_bounds_is_refused_as_the_version_does(version, status):
    with emulated(2, version=version) as call:
        assert call.scale(64)[0] == status
        assert call.state()["rank_bound"] == 2


def test_the_floor_is_two_unless_told_otherwise_A22():
    with emulated(2, version="0.30") as call:
        assert call.scale(1)[0] == 400


def test_two_calls_at_once_are_one_after_the_other():
    with emulated(2, version="0.30", resize=PREPARED, time_scale=200.0) as call:
        with meanwhile(lambda: call.scale(4)) as first:
            until(lambda: call.state()["phase"] == "preparing")
            assert call.scale(4)[0] == 200
        assert first[0][0] == 200


def test_faults_are_set_and_cleared_while_it_runs():
    with emulated(2) as call:
        assert call.faults(resize="explode") == 400
        assert call.faults(nonsense=1) == 400
        assert call.faults(metrics_status=500, health_status=500, probe_failure_ratio=0.5) == 200
        assert call("GET", "/metrics")[0] == call("GET", "/health")[0] == 500
        rank = {"X-data-parallel-rank": "0"}
        body = {"prompt": "a", "max_tokens": 1}
        answers = [call("POST", "/v1/completions", body, rank)[0] for _ in range(4)]
        assert answers == [200, 500, 200, 500]
        assert call("DELETE", "/_emulator/faults")[0] == 200
        assert call("GET", "/metrics")[0] == 200
