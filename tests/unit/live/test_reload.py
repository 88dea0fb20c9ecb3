"""Noticing that a configuration has changed."""

import os

import pytest

from autoscaler.settings import SettingsError
from autoscaler.wiring.reload import Reloader

CONFIG = """
targets:
  - name: chat
    source: {kind: prometheus, url: "http://prometheus:9090"}
    target: {kind: gpustack, namespace: bench, name: elastic}
    policy: mine.yaml
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "autoscaler.yaml").write_text(CONFIG, "utf-8")
    (tmp_path / "mine.yaml").write_text("kind: static\nwidth: 3\n", "utf-8")
    return tmp_path


def width(settings):
    return settings.targets[0].steering.policy.params.width


def test_changes_of_the_file_and_of_its_policies_are_noticed_once(folder):
    reloader = Reloader(folder / "autoscaler.yaml", {})
    assert reloader.poll() is None
    (folder / "mine.yaml").write_text("kind: static\nwidth: 4\n", "utf-8")
    assert width(reloader.poll()) == 4
    assert reloader.poll() is None
    (folder / "other.yaml").write_text("kind: static\nwidth: 6\n", "utf-8")
    changed = CONFIG.replace("mine.yaml", "other.yaml")
    (folder / "autoscaler.yaml").write_text(changed, "utf-8")
    assert width(reloader.poll()) == 6
    (folder / "mine.yaml").write_text("kind: static\nwidth: 9\n", "utf-8")
    assert reloader.poll() is None  # not its policy any more


def test_a_touched_file_has_not_changed(folder):
    reloader = Reloader(folder / "autoscaler.yaml", {})
    os.utime(folder / "autoscaler.yaml", (1, 1))
    assert reloader.poll() is None


def test_R26_an_unusable_change_is_told_once_and_its_cure_is_noticed(folder):
    reloader = Reloader(folder / "autoscaler.yaml", {})
    changed = CONFIG.replace("mine.yaml", "new.yaml")
    (folder / "autoscaler.yaml").write_text(changed, "utf-8")
    with pytest.raises(SettingsError, match=r"new\.yaml"):
        reloader.poll()
    assert reloader.poll() is None
    assert width(reloader.settings) == 3
    (folder / "new.yaml").write_text("kind: static\nwidth: 5\n", "utf-8")
    assert width(reloader.poll()) == 5


def test_a_file_that_is_gone_is_told_and_its_return_is_no_change(folder):
    reloader = Reloader(folder / "autoscaler.yaml", {})
    (folder / "autoscaler.yaml").rename(folder / "away")
    with pytest.raises(SettingsError, match="must be a readable text file"):
        reloader.poll()
    (folder / "away").rename(folder / "autoscaler.yaml")
    assert width(reloader.poll()) == 3


def test_the_environment_keeps_its_precedence_after_a_change(folder):
    reloader = Reloader(folder / "autoscaler.yaml", {"AUTOSCALER_TICK_S": "7"})
    (folder / "autoscaler.yaml").write_text("tick_s: 9\n" + CONFIG, "utf-8")
    assert reloader.poll().tick_s == 7.0


def test_a_kubernetes_style_swap_of_a_link_is_noticed(folder):
    for name, wide in (("one", 4), ("two", 5)):
        (folder / name).mkdir()
        (folder / name / "mine.yaml").write_text(f"kind: static\nwidth: {wide}\n", "utf-8")
    (folder / "mine.yaml").unlink()
    (folder / "data").symlink_to("one")
    (folder / "mine.yaml").symlink_to("data/mine.yaml")
    reloader = Reloader(folder / "autoscaler.yaml", {})
    (folder / "data.new").symlink_to("two")
    (folder / "data.new").rename(folder / "data")
    assert width(reloader.poll()) == 5
