"""How long the proof of a width takes."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from autoscaler.clock import SystemClock
from autoscaler.errors import TargetError
from autoscaler.targets._engine import RANK_HEADER, EngineApi
from autoscaler.targets._rank_probe import RankProbe

QUEUED_S = 0.3


@pytest.fixture
def url():
    """An engine whose ranks serve a token after a while, all but the fourth."""

    class Engine(BaseHTTPRequestHandler):
        def do_POST(self):
            threading.Event().wait(QUEUED_S)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(500 if self.headers[RANK_HEADER] == "3" else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(5)


def test_ranks_are_proven_at_once_so_that_a_backlog_delays_it_once(url):
    probe, clock = RankProbe(EngineApi(url, None, None), "m"), SystemClock()
    began_s = clock.now_s()
    assert probe.prove(3, 5.0) == 3
    assert clock.now_s() - began_s < 2.5 * QUEUED_S
    with pytest.raises(TargetError, match="rank 3 served no token: 500"):
        probe.prove(6, 5.0)
