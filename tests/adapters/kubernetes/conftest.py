from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.testing import ManualClock
from autoscaler.testing_apiserver import ApiServer

from .worlds import CRD, World


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def api(clock: ManualClock) -> Iterator[ApiServer]:
    with ApiServer(clock) as server:
        server.install(CRD)
        yield server


@pytest.fixture
def make(api: ApiServer, clock: ManualClock, tmp_path: Path) -> Iterator[Callable[..., World]]:
    made = []

    def build(**given: Any) -> World:
        made.append(World(api, clock, tmp_path, **given))
        return made[-1]

    yield build
    for world in made:
        world.close()


@pytest.fixture
def world(make: Callable[..., World]) -> World:
    return make()
