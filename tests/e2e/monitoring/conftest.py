"""A real Prometheus and the fixtures of the stories, for these tests, too."""

from tests.adapters.prometheus.conftest import start_prometheus  # noqa: F401  # a fixture
