"""The chart as helm renders it."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/npucall"
_HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def helm(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if _HELM is None:
        if os.environ.get("CI"):
            pytest.fail("expected helm, found none: make .venv/.chart")
        pytest.skip("expected helm, found none: make .venv/.chart")
    return subprocess.run([_HELM, command, *arguments], capture_output=True, text=True, check=False)


@cache
def render(values: str, *options: str) -> list[dict[str, Any]]:
    """The resources of a release ``pool`` in the namespace ``lab``; nobody changes them."""
    done = helm(
        "template", "pool", str(CHART), "--namespace=lab", f"--values={CHART / values}", *options
    )
    assert done.returncode == 0, done.stderr
    return [one for one in YAML(typ="safe").load_all(done.stdout) if one]


def of_kind(resources: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in resources if one["kind"] == kind]


def pods(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    workloads = of_kind(resources, "StatefulSet") + of_kind(resources, "Deployment")
    return [one["spec"]["template"] for one in workloads]


def servers(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one["spec"]["template"] for one in of_kind(resources, "StatefulSet")]


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return only


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container(pod)["env"]}
