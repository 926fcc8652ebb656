"""The jobs of examples/ci, whose commands run here as on the machines of GitHub and GitLab.

What needs an engine of containers, tests/containers does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from .pages import ROOT, files

EXAMPLES = ROOT / "examples" / "ci"


def read(name: str) -> Any:
    return YAML(typ="safe").load(EXAMPLES / name)


def commands(name: str, which: str) -> list[str]:
    """What a job runs, without what its machine needs first."""
    job = read(name)["jobs"][which] if name == "github.yml" else read(name)[which]
    if name == "gitlab.yml":
        script: list[str] = job["script"]
        return script
    checkout = "git clone --quiet --branch $NPUCALL_REF $NPUCALL_REPOSITORY npucall"  # its action
    return [checkout, *(step["run"] for step in job["steps"] if "run" in step)]


def write_users_project(folder: Path) -> None:
    """The two files of docs/ci.md that a user writes, and those of a program of docs/exec.md."""
    shutil.copytree(ROOT / "examples/exec", folder, dirs_exist_ok=True)
    (folder / "tests").mkdir()
    for block in files((ROOT / "docs/ci.md").read_text(encoding="utf-8")):
        (folder / "tests" / block.name).write_text(block.text, encoding="utf-8")
    assert len(list((folder / "tests").iterdir())) == 2


@pytest.mark.long
@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
@pytest.mark.parametrize(
    ("which", "said_last"), [("installed", "1 passed"), ("programs", "100% tests passed")]
)
def test_a_job_that_installs_npucall_tests_a_users_project(
    name: str, which: str, said_last: str, repository: Path, tmp_path: Path
) -> None:
    write_users_project(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NPUCALL_")}
    environment = {
        **kept,
        "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}",
        "NPUCALL_REPOSITORY": str(repository),
        "NPUCALL_REF": "main",
    }
    for command in commands(name, which):
        said = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert said.returncode == 0, f"{command}\n{said.stdout}\n{said.stderr}"
    assert said_last in said.stdout
