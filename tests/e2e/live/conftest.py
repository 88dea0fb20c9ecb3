"""A real Prometheus for these tests, too."""

from tests.adapters.prometheus.conftest import start_prometheus  # noqa: F401  # a fixture
