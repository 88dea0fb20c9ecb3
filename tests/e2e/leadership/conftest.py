import pytest

from .worlds import Cluster, Replica


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path, lease_duration_s=4)
    yield made
    made.close()


@pytest.fixture
def start(cluster):
    running = []

    def begin(name, *arguments, **changes):
        running.append(Replica(cluster, name, *arguments, **changes))
        return running[-1]

    yield begin
    for replica in running:
        replica.close()


@pytest.fixture
def pair(start):
    """One that leads and one that stands by."""
    first = start("one")
    first.leading()
    second = start("two")
    second.await_event("standby")
    return first, second
