"""TLS of the sources: trust and client certificates come from files, and from nowhere else."""

import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trustme

from autoscaler.clock import SystemClock
from autoscaler.errors import ObservationError
from autoscaler.model import Slo
from autoscaler.ports import SourceContext
from autoscaler.sources import scrape
from tests.adapters.prometheus.pages import Engine, page


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = page([Engine(0, running=1)]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients that refuse the certificate are what is tested."""


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def mutual_url(authority: trustme.CA) -> Iterator[str]:
    """A server that wants a client certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    server = _Quiet(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}/metrics"
    server.shutdown()
    thread.join(5)
    server.server_close()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> dict[str, str]:
    client = authority.issue_cert("client@example.org")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca_file", "cert_file", "key_file")}
    authority.cert_pem.write_to_path(paths["ca_file"])
    client.cert_chain_pems[0].write_to_path(paths["cert_file"])
    client.private_key_pem.write_to_path(paths["key_file"])
    return {name: str(path) for name, path in paths.items()}


def source(url: str, **access: object) -> scrape.ScrapeSource:
    params = scrape.Params(urls=(url,), **access)
    return scrape.build(params, SourceContext(Slo(), SystemClock(), lambda: 1))


def test_a_client_certificate_and_an_authority_of_ones_own_are_used(
    mutual_url: str, files: dict[str, str]
):
    assert source(mutual_url, **files).read().running.value == 1


def test_an_unknown_authority_is_an_error_unless_skipping_was_asked_for_by_name(
    mutual_url: str, files: dict[str, str]
):
    client = {name: files[name] for name in ("cert_file", "key_file")}
    with pytest.raises(ObservationError, match=r"127\.0\.0\.1"):
        source(mutual_url, **client).read()
    with pytest.warns(match="Unverified HTTPS request"):
        read = source(mutual_url, **client, tls_insecure_skip_verify=True).read()
    assert read.running.value == 1


def test_a_bundle_in_the_environment_does_not_replace_the_configured_authority(
    mutual_url: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(other))
    assert source(mutual_url, **files).read().running.value == 1
    # Nor does one that would fit make up for an authority that does not.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, files["ca_file"])
    with pytest.raises(ObservationError):
        source(mutual_url, **{**files, "ca_file": str(other)}).read()


def test_rotated_files_are_taken_up(
    mutual_url: str, files: dict[str, str], authority: trustme.CA, tmp_path: Path
):
    stranger = trustme.CA().issue_cert("client@example.org")
    good = Path(files["cert_file"]).read_bytes(), Path(files["key_file"]).read_bytes()
    stranger.cert_chain_pems[0].write_to_path(files["cert_file"])
    stranger.private_key_pem.write_to_path(files["key_file"])
    reader = source(mutual_url, **files)
    with pytest.raises(ObservationError):
        reader.read()
    Path(files["cert_file"]).write_bytes(good[0])
    Path(files["key_file"]).write_bytes(good[1])
    assert reader.read().running.value == 1
    Path(files["ca_file"]).unlink()
    with pytest.raises(ObservationError, match="ca_file"):
        reader.read()
