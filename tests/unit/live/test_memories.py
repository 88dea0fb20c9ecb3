"""Where memories are kept: which place for which target, and the file."""

import json
import threading

import pytest

from autoscaler.cluster.memory_map import MemoryMap
from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.settings import MemorySection, SettingsError, load
from autoscaler.testing import FakeTarget, ManualClock
from autoscaler.testing_apiserver import ApiServer
from autoscaler.wiring.memories import Memories, MemoryFile

CONFIG = """
targets:
  - name: chat
    source: {{kind: scrape, urls: ["http://localhost:8000/metrics"]}}
    target: {{kind: vllm, url: "http://localhost:8000", max_width: 4, gpus_per_width: 2}}
    policy: hold
memory: {memory}
"""


class Noting(FakeTarget):
    """A target that takes a note."""

    text = "a note"

    def recall(self):
        return self.text

    def remember(self, text):
        self.text = text


def test_entries_of_a_file_are_independent_and_survive(tmp_path):
    file = MemoryFile(tmp_path / "memory.json")
    one, two = file.place("one"), file.place("two")
    assert one.recall() is None
    one.remember("1")
    two.remember("2")
    one.remember("3")
    again = MemoryFile(tmp_path / "memory.json")
    assert (again.place("one").recall(), again.place("two").recall()) == ("3", "2")
    assert json.loads((tmp_path / "memory.json").read_text()) == {"one": "3", "two": "2"}
    assert [path.name for path in tmp_path.iterdir()] == ["memory.json"]


def test_several_threads_lose_nothing(tmp_path):
    file = MemoryFile(tmp_path / "memory.json")
    places = [file.place(str(n)) for n in range(4)]
    work = [
        threading.Thread(target=lambda p=p: [p.remember(str(i)) for i in range(9)]) for p in places
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(20)
    assert [place.recall() for place in places] == ["8"] * 4


@pytest.mark.parametrize("text", ["{torn", "[]", "7"])
def test_a_file_that_is_none_of_ours_is_a_text_for_the_reader_to_refuse(tmp_path, text):
    path = tmp_path / "memory.json"
    path.write_text(text)
    place = MemoryFile(path).place("one")
    assert place.recall() == text
    place.remember("1")
    assert place.recall() == "1"


def test_a_file_that_cannot_be_used_is_a_target_error(tmp_path):
    with pytest.raises(TargetError, match=r"memory: .*nowhere"):
        MemoryFile(tmp_path / "nowhere" / "memory.json").place("one").remember("1")
    with pytest.raises(TargetError, match="Is a directory") as caught:
        MemoryFile(tmp_path).place("one").recall()
    assert not isinstance(caught.value, TargetForbidden)


def test_a_target_that_takes_notes_is_its_own_place_whatever_is_configured(tmp_path):
    memories = Memories(MemorySection(path=str(tmp_path / "m")), 5.0)
    keeper = memories.keeper("chat", Noting(ManualClock()), ManualClock())
    assert keeper.recall(0.0).finding.startswith("memory ignored")
    assert not (tmp_path / "m").exists()


def test_without_a_place_there_is_no_keeper():
    assert (
        Memories(MemorySection(), 5.0).keeper("a", FakeTarget(ManualClock()), ManualClock()) is None
    )


def test_a_namespace_means_the_config_map_and_a_declared_target_has_a_key_too(tmp_path):
    with ApiServer() as api:
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        section = MemorySection(namespace="mine", kubeconfig=kubeconfig)
        place = Memories(section, 5.0)._place("bench/chat", FakeTarget(ManualClock()))
        assert isinstance(place, MemoryMap)
        place.remember("1")
        maps = api.store.resource("v1", "configmaps")
        assert api.store.get(maps, "mine", "autoscaler-memory")["data"] == {"bench__chat": "1"}
        place._api.close()


def test_the_path_is_beside_the_configuration_and_excludes_a_namespace(tmp_path):
    config = tmp_path / "autoscaler.yaml"
    config.write_text(CONFIG.format(memory="{path: memory.json}"))
    assert load(config, {}).memory.path == str(tmp_path / "memory.json")
    config.write_text(CONFIG.format(memory="{path: m, namespace: n}"))
    with pytest.raises(
        SettingsError, match=r"memory.path: must not be given together with .*got 'm'"
    ):
        load(config, {})
    config.write_text(CONFIG.format(memory="{namespace: Not/One}"))
    with pytest.raises(SettingsError, match=r"memory.namespace: must"):
        load(config, {})


@pytest.mark.parametrize(("key", "value"), [("pause", "sometimes"), ("dry_run", "maybe")])
def test_switches_of_the_configuration_know_their_values(tmp_path, key, value):
    config = tmp_path / "autoscaler.yaml"
    text = CONFIG.format(memory="{}")
    config.write_text(text.replace("policy: hold", f"policy: hold\n    {key}: {value}"))
    with pytest.raises(SettingsError, match=rf"targets\[0\].{key}: must be"):
        load(config, {})
    config.write_text(
        text.replace("policy: hold", "policy: hold\n    pause: up\n    dry_run: true")
    )
    target = load(config, {}).targets[0]
    assert (target.steering.pause, target.dry_run) == ("up", True)
