"""What people see: the real ``kubectl`` against the program's statuses."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.adapters.kubernetes.worlds import NAMESPACE
from tests.e2e.objects.worlds import Cluster, cluster

KUBECTL = Path(sys.executable).with_name("kubectl")  # the locked one, not the machine's


def kubectl(world: Cluster, *arguments: str) -> str:
    done = subprocess.run(
        [KUBECTL, f"--server={world.api.url}", "-n", NAMESPACE, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"HOME": str(world.files.folder), "PATH": "/usr/bin:/bin"},
    )
    return done.stdout + done.stderr


def squeezed(text: str) -> list[str]:
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines()]


def test_kubectl_shows_the_state(tmp_path: Path) -> None:
    with cluster(tmp_path) as world:
        world.api.tokens[""] = world.api.tokens["admin"]  # over plain HTTP kubectl sends no token
        process = world.run()
        manifest = {
            "apiVersion": "autoscaling.elastic-width.io/v1alpha1",
            "kind": "WidthAutoscaler",
            "metadata": {"name": "chat"},
            "spec": world.spec(),
        }
        file = tmp_path / "chat.yaml"
        file.write_text(yaml.safe_dump(manifest), encoding="utf-8")
        assert "chat created" in kubectl(world, "create", "--validate=false", "-f", str(file))
        world.wait(lambda: world.condition("chat", "Converged") == ("True", "WidthServes"))
        world.wait(lambda: world.status("chat")["width"].get("effective") == 3)
        header, row = squeezed(kubectl(world, "get", "wa"))
        assert header == "NAME PROPOSED DESIRED EFFECTIVE POLICY CONVERGED REASON AGE"
        assert re.fullmatch(r"chat 3 3 3 static:3 True \w+ \d+s", row), row
        described = squeezed(kubectl(world, "describe", "wa", "chat"))
        for line in ("Kind: WidthAutoscaler", "Type: Converged", "Effective: 3"):
            assert line in described
        assert process.end() == 0
