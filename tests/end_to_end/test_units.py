"""The systemd units: read, judged by systemd, their commands run with a stub for Python."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from npucall_server.directory.settings import DirectorySettings
from npucall_server.exits import ExitCode
from npucall_server.settings.server import ServerSettings

from .pages import ROOT

DEPLOY = ROOT / "deploy"
NPU, CPU = "npucall-server@.service", "npucall-cpu@.service"
UNITS = [NPU, CPU, "npucall-directory.service"]
NEEDS_SYSTEMD = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd is not installed"
)

# What needs a mount namespace, by systemd.exec(5). The Ascend driver takes it for a container.
MOUNT_NAMESPACE = re.compile(
    r"Private(Tmp|Devices|Mounts|IPC)|Protect(System|Home|Proc|Kernel\w+|ControlGroups)|ProcSubset"
    r"|DynamicUser|Root(Directory|Image)|Bind(ReadOnly)?Paths|(ReadOnly|ReadWrite|Inaccessible|Exec"
    r"|NoExec)Paths|TemporaryFileSystem|MountAPIVFS|LoadCredential|SetCredential"
)


def lines(unit: str) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / unit).read_text())
    fields = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return [(key, value) for key, equals, value in fields if equals]


def every(unit: str, key: str) -> list[str]:
    return [value for name, value in lines(unit) if name == key]


def one(unit: str, key: str) -> str:
    (value,) = every(unit, key)
    return value


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@NEEDS_SYSTEMD
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_a_unit_and_finds_a_fault_in_it(unit: str, tmp_path: Path) -> None:
    """With a command that is there in place of one that only an installation has."""
    shown = tmp_path / unit
    text = (DEPLOY / unit).read_text().replace("/opt/npucall/bin/npucall-", "/bin/true ")
    shown.write_text(text)
    result = run("systemd-analyze", "verify", "--man=no", shown)
    assert (result.returncode, result.stderr) == (0, "")
    shown.write_text(text.replace("RestartSec=", "RestartSeconds="))
    assert "RestartSeconds" in run("systemd-analyze", "verify", "--man=no", shown).stderr


def test_a_unit_may_drain_and_is_started_again_after_the_exit_codes_that_are_worth_it() -> None:
    drain_timeout = ServerSettings.model_fields["drain_timeout"].default
    for unit in NPU, CPU:
        assert float(one(unit, "TimeoutStopSec").removesuffix("s")) > drain_timeout
    failures = {code for code in ExitCode if code != 0}  # on-failure leaves 0 alone by itself
    for unit in UNITS:
        assert one(unit, "Restart") == "on-failure"
        kept_down = {int(code) for code in one(unit, "RestartPreventExitStatus").split()}
        assert 69 in kept_down  # without libraries; the number stands in unit and Dockerfile
        assert kept_down == {int(code) for code in failures if not code.restart}


def test_a_start_waits_until_the_server_serves_and_tells_if_it_ends() -> None:
    assert {one(unit, "Type") for unit in UNITS} == {"notify"}


def test_eight_units_leave_something_of_the_machine_and_each_may_take_what_it_promises() -> None:
    percent = int(one(NPU, "MemoryMax").removesuffix("%"))
    variables = dict(line.split("=", 1) for line in every(NPU, "Environment"))
    servers = int(variables["NPUCALL_DEFAULT_SERVERS_PER_HOST"])
    for machine in 9, 64, 512:
        allowed = machine * 2**30 * percent // 100
        limit = min(machine * 2**30 // servers, allowed) // 2
        assert limit * 3 // 2 + 256 * 2**20 <= allowed
        assert servers * allowed < machine * 2**30
    assert one(NPU, "MemorySwapMax") == "0"
    assert int(one(NPU, "TasksMax")) >= 4 * (64 + 8 + 64 + 8)


def test_the_unit_allows_the_devices_that_compose_gives_and_makes_no_mount_namespace() -> None:
    services = YAML(typ="safe").load(DEPLOY / "compose.host8.yml")["services"]
    allowed = [device.replace("%i", "0") for device in every(NPU, "DeviceAllow")]
    assert allowed == [f"{device} rw" for device in services["npu0"]["devices"]]
    assert [key for key, _ in lines(NPU) if MOUNT_NAMESPACE.fullmatch(key)] == []


@pytest.fixture
def started(tmp_path: Path) -> Any:
    """Starts an instance of a unit, with these lines in its files; answers what it was told."""
    stub, cann = tmp_path / "python", tmp_path / "set_env.sh"
    names = "DEVICE", "LISTEN", "ANNOUNCE", "LABELS"
    told = " ".join(f"${{NPUCALL_{name}:-$NPUCALL_DEFAULT_{name}}}" for name in names)
    stub.write_text(f'#!/bin/sh\necho "{told} $CANN $*"\n')
    stub.chmod(0o755)
    cann.write_text("export CANN=found\n")

    def start(unit: str, instance: str = "0", **settings: str) -> list[str]:
        command = one(unit, "ExecStart").replace("%i", instance).replace("$$", "$")
        command = command.replace("/opt/npucall/bin/python", str(stub))
        ended = run(*shlex.split(command), env={"CANN_SET_ENV": str(cann), **settings})
        return ended.stdout.split() or [str(ended.returncode)]

    return start


def test_an_instance_serves_its_device_with_cann_s_variables_where_it_is_told(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = ["found", "-I", "-m", "npucall_server", "serve"]
    told = ["cann:3", "127.0.0.1:50054", "kind=npu", *serve]
    assert started(NPU, "3") == told
    assert started(NPU, "3", CANN_SET_ENV="/nowhere") == ["69"]
    for address, given in {
        "127.0.0.1:9": {"NPUCALL_LISTEN": "127.0.0.1:9"},
        "10.0.0.5:50054": {"NPUCALL_LISTEN_HOST": "10.0.0.5"},
        "[::1]:50054": {"NPUCALL_LISTEN_HOST": "::1"},
        "unix:/run/x": {"NPUCALL_LISTEN_HOST": "", "NPUCALL_LISTEN": "unix:/run/x"},
    }.items():
        listen = started(NPU, "3", **given)[1]
        with monkeypatch.context() as patch:
            for name, value in {**given, "NPUCALL_DEFAULT_LISTEN": listen}.items():
                patch.setenv(name, value)
            assert ServerSettings(insecure_bind=True).listen == address


def test_instances_of_a_host_are_told_one_directory_and_listen_by_one_name(started: Any) -> None:
    files = {
        "NPUCALL_LISTEN_HOST": "host1.lab",
        "NPUCALL_ANNOUNCE": "head.lab:50050",
        "NPUCALL_LABELS": "rack=7",
    }
    assert [
        started(NPU, "0", **files)[:4],
        started(NPU, "7", **files)[:4],
        started(CPU, "0", **files)[:4],
    ] == [
        ["cann:0", "host1.lab:50051", "head.lab:50050", "rack=7,kind=npu"],
        ["cann:7", "host1.lab:50058", "head.lab:50050", "rack=7,kind=npu"],
        ["cpu", "host1.lab:50151", "head.lab:50050", "rack=7,kind=cpu"],
    ]
    assert started(CPU)[2] == "kind=cpu"


def test_every_variable_of_the_recipes_and_images_is_a_setting() -> None:
    """A misspelt one would be ignored, or refused, at the first start on somebody's host."""
    files = [*UNITS, "README.md", "slurm/README.md", "slurm/npucall.sbatch", "helm/README.md"]
    text = "".join((DEPLOY / file).read_text() for file in files)
    text += re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    used = set(re.findall(r"NPUCALL_(?:DEFAULT_)?((?!DEFAULT_\*)[A-Z_]*[A-Z])\b", text))
    of_directories = {f"DIRECTORY_{name.upper()}" for name in DirectorySettings.model_fields}
    of_callers = {"TARGET", "SOC", "LABELS", "CA", "TOKEN_FILE"}
    known = {name.upper() for name in ServerSettings.model_fields}
    assert used - known - of_directories - of_callers == set()
