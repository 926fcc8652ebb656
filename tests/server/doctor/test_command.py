"""``npucall-server doctor`` as an administrator types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from npucall_server import doctor
from npucall_server.devices.cann.unverified import UNVERIFIED

if TYPE_CHECKING:
    from .hosts import Host


def test_json_says_the_same(simulated_host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    (simulated_host.root / "dev/hisi_hdc").unlink()
    assert doctor.run(["--json", "--device", "cann:1"], simulated_host.root) == 69
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (said["device"], said["faults"], said["warnings"]) == ("cann:1", 1, 0)
    faulty = [found for found in said["findings"] if found["verdict"] == "FAULT"]
    assert [found["found"] for found in faulty] == ["/dev does not have hisi_hdc"]
    assert len(said["claims"]) == len(UNVERIFIED)


def test_a_crash_of_cann_is_a_fault_and_not_the_end(
    simulated_host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_FAULTS", "aclnnKlDivBackward:1:crash:0")
    file = simulated_host.root / "report"
    assert doctor.run(["--report", str(file)], simulated_host.root) == 69
    for text in (capsys.readouterr().out, file.read_text()):
        said = " ".join(text.split())
        assert "FAULT SIGSEGV ended the process while " in said
        assert "1 fault, 0 warnings" in said


@pytest.mark.more
def test_a_hang_of_cann_is_a_fault_and_not_the_end(
    simulated_host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_FAULTS", "aclrtMallocHost:1:hang:0")
    file = simulated_host.root / "report"
    assert doctor.run(["--report", str(file)], simulated_host.root, seconds=3) == 69
    assert "FAULT   no answer for 3 s while " in capsys.readouterr().out
    assert "FAULT   no answer for 3 s while " in file.read_text()


def test_the_command_ends_with_69_where_no_npu_is() -> None:
    environment = {name: v for name, v in os.environ.items() if not name.startswith("ASCEND_")}
    done = subprocess.run(
        [sys.executable, "-m", "npucall_server", "doctor"],
        capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (69, "")
    assert "FAULT   ASCEND_HOME_PATH and ASCEND_OPP_PATH are not set\n" in done.stdout


@pytest.mark.parametrize("device", ["cpu", "cann", "cann:x", "0"])
def test_another_device_than_an_npu_is_refused(
    device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        doctor.run(["--device", device])
    assert f"expected cann:N, found '{device}'" in capsys.readouterr().err


def test_a_reader_that_has_enough_ends_it_without_a_traceback() -> None:
    command = f"{sys.executable} -m npucall_server doctor | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("\n", "")
