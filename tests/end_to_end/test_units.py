"""The systemd units of a pool: read, judged by systemd, their commands run with a stub."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from npucall_server.directory.settings import DirectorySettings
from npucall_server.exits import ExitCode
from npucall_server.settings import ServerSettings

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = ["npucall-server@.service", "npucall-cpu@.service", "npucall-directory.service"]


def lines(unit: str) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / unit).read_text())
    fields = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return [(key, value) for key, equals, value in fields if equals]


def one(unit: str, key: str) -> str:
    (value,) = (value for name, value in lines(unit) if name == key)
    return value


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_a_unit(unit: str, tmp_path: Path) -> None:
    """With a command that is there in place of one that only an installation has."""
    shown = tmp_path / unit
    shown.write_text((DEPLOY / unit).read_text().replace("/opt/npucall/bin/npucall-", "/bin/true "))
    result = run("systemd-analyze", "verify", "--man=no", shown)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_a_fault_in_a_unit(unit: str, tmp_path: Path) -> None:
    shown = tmp_path / unit
    text = (DEPLOY / unit).read_text().replace("/opt/npucall/bin/npucall-", "/bin/true ")
    shown.write_text(text.replace("RestartSec=", "RestartSeconds="))
    assert "RestartSeconds" in run("systemd-analyze", "verify", "--man=no", shown).stderr


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_started_again_after_the_exit_codes_that_are_worth_it(unit: str) -> None:
    failures = {code for code in ExitCode if code != 0}  # on-failure leaves 0 alone by itself
    assert one(unit, "Restart") == "on-failure"
    kept_down = {int(code) for code in one(unit, "RestartPreventExitStatus").split()}
    assert kept_down == {int(code) for code in failures if not code.restart}


def test_a_server_on_the_cpu_has_more_time_to_stop_than_draining_takes() -> None:
    drain_timeout = ServerSettings.model_fields["drain_timeout"].default
    assert float(one("npucall-cpu@.service", "TimeoutStopSec")) > drain_timeout


def told(unit: str, instance: str, tmp_path: Path, **settings: str) -> str:
    """What a server that a unit starts is told, with these lines in its files."""
    stub = tmp_path / "python"
    stub.write_text(
        '#!/bin/sh\necho "$NPUCALL_DEVICE $NPUCALL_LISTEN $NPUCALL_ANNOUNCE $NPUCALL_LABELS"\n'
    )
    stub.chmod(0o755)
    (tmp_path / "set_env.sh").touch()
    command = one(unit, "ExecStart").replace("%i", instance).replace("$$", "$")
    command = command.replace("/opt/npucall/bin/python", str(stub))
    environment = {"CANN_SET_ENV": str(tmp_path / "set_env.sh"), **settings}
    return run(*shlex.split(command), env=environment).stdout.strip()


def test_instances_of_a_host_are_told_one_directory_and_listen_by_one_name(tmp_path: Path) -> None:
    files = {
        "NPUCALL_LISTEN_HOST": "host1.lab",
        "NPUCALL_ANNOUNCE": "head.lab:50050",
        "NPUCALL_LABELS": "rack=7",
    }
    assert [
        told("npucall-server@.service", "0", tmp_path, **files),
        told("npucall-server@.service", "7", tmp_path, **files),
        told("npucall-cpu@.service", "0", tmp_path, **files),
    ] == [
        "cann:0 host1.lab:50051 head.lab:50050 rack=7,kind=npu",
        "cann:7 host1.lab:50058 head.lab:50050 rack=7,kind=npu",
        "cpu host1.lab:50151 head.lab:50050 rack=7,kind=cpu",
    ]


def test_a_server_without_labels_says_its_kind(tmp_path: Path) -> None:
    assert told("npucall-server@.service", "0", tmp_path).endswith(" kind=npu")
    assert told("npucall-cpu@.service", "0", tmp_path).endswith(" kind=cpu")


def test_every_variable_of_the_recipes_is_a_setting() -> None:
    """A misspelt one would be ignored, or refused, at the first start on somebody's host."""
    files = [*UNITS, "README.md", "slurm/README.md", "slurm/npucall.sbatch", "helm/README.md"]
    text = "".join((DEPLOY / file).read_text() for file in files)
    used = set(re.findall(r"NPUCALL_([A-Z_]*[A-Z])\b", text))
    of_directories = {f"DIRECTORY_{name.upper()}" for name in DirectorySettings.model_fields}
    of_callers = {"TARGET", "SOC", "LABELS", "CA", "TOKEN_FILE"}
    known = {name.upper() for name in ServerSettings.model_fields}
    assert used - known - of_directories - of_callers == set()
