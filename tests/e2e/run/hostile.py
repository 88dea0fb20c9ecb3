"""A server that repeats, in every way there is, the credentials that it was sent."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hostile:
    """Answers on 127.0.0.1 as the first part of the path says, until closed.

    ``bad_request``, ``status_error``, ``warnings``, ``unauthorized``, ``redirect``, ``odd_type``,
    ``bad_page``, ``bad_vector``, ``engine_401``, ``engine_500``, ``ray``.

    Attributes:
        landed: requests that followed a redirect.
        met: the ways in which something was asked for.
    """

    def __init__(self, canary):
        self.canary, self.landed, self.met = canary, [], set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if length := int(self.headers.get("Content-Length", 0)):
                    self.rfile.read(length)
                outer.answer(self)

            do_POST = do_GET  # noqa: N815  # the library's name

            def log_message(self, format, *args):  # noqa: A002
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)

    def answer(self, request):
        how = request.path.split("/")[1].partition("?")[0]
        if how == "landing":
            self.landed.append(dict(request.headers))
        self.met.add(how)
        said = f"the header was {self.heard(request)}"
        refusal = {"status": "error", "errorType": "bad_data", "error": said}
        vector = {"resultType": "vector", "result": [{"metric": {}, "value": [1e9, "0"]}]}
        success = {"status": "success", "data": vector, "warnings": [said]}
        host = self.url.removeprefix("http://")
        location = f"http://me:{self.canary}-pass@{host}/landing?token={self.canary}-query"
        status, kind, body, headers = {
            "bad_request": (400, "application/json", json.dumps(refusal), {}),
            "status_error": (200, "application/json", json.dumps(refusal), {}),
            "warnings": (200, "application/json", json.dumps(success), {}),
            "unauthorized": (401, "text/plain", said, {"WWW-Authenticate": said}),
            "redirect": (302, "text/plain", said, {"Location": location}),
            "odd_type": (200, self.heard(request), said, {}),
            "bad_page": (200, "text/plain", f"vllm:num_requests_waiting {said}\n", {}),
            "bad_vector": (200, "application/json", json.dumps({"status": said}), {}),
            "engine_401": (401, "application/json", json.dumps({"error": {"message": said}}), {}),
            "engine_500": (500, "application/json", json.dumps({"detail": said}), {}),
            "ray": (500, "text/plain", said, {}),
        }.get(how, (404, "text/plain", said, {}))
        request.send_response(status, "OK")
        for name, value in {"Content-Type": kind, **headers}.items():
            request.send_header(name, value)
        data = body.encode()
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    @staticmethod
    def heard(request):
        """The header, and what it means."""
        header = request.headers.get("Authorization", "none")
        scheme, _, coded = header.partition(" ")
        if scheme == "Basic":
            header += " that is " + base64.b64decode(coded).decode()
        return header
