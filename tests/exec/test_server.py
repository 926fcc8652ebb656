"""``npucall-server`` takes these libraries for CANN: two ends of one interface judge each other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from npucall.operators import CATALOGUE
from npucall.products import DEFAULT_SOC, product_of

from .conftest import MAIN, Run


@pytest.mark.long
def test_the_doctor_finds_no_fault_but_that_there_is_no_npu(run_under: Run) -> None:
    doctor = ("npucall_server", "doctor", "--device", "cann:0")
    said = run_under("--quiet", "--", sys.executable, "-m", *doctor).stdout
    faults = [line.split()[1:] for line in said.splitlines() if "FAULT" in line]
    assert [words[:3] for words in faults] == [["/dev", "does", "not"], ["there", "is", "no"]]
    assert "driver" in faults[1]
    here = len({each.name for each in CATALOGUE if each.dtypes_on(product_of(DEFAULT_SOC))})
    assert f"{here} of {here} declared operators are accepted" in said


@pytest.mark.long
def test_a_server_on_these_libraries_conforms(tree: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    flags = ["--device", "cann:0", "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
    server = [sys.executable, "-m", "npucall_server", *flags]
    command = [sys.executable, "-c", MAIN, "exec", "--target", "local:", "--", *server]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stderr=output)
    try:
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        judge = [sys.executable, "-c", MAIN, "conform", ready.read_text(), "--quick"]
        environment = {**os.environ, "NPUCALL_TIMEOUT": "300"}
        done = subprocess.run(
            judge, env=environment, capture_output=True, text=True, check=False, timeout=3600
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        process.terminate()
        assert process.wait(120) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()
