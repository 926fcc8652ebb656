"""What needs a process of its own: its end, its environment, CANN 8.1."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., subprocess.CompletedProcess[str]]


def printed(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines that a program printed; it must have ended well."""
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_report_is_written_when_the_process_ends(process: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    printed(process("cann.device(32); cann.aclrtFree(7)", NPUCALL_SIM_REPORT=str(path)))
    report = json.loads(path.read_text())
    assert report["violations"] == ["aclrtFree: 0x7 is no allocation"]
    assert report["live_objects"] == {"aclrtMalloc": 1, "aclrtSetDevice": 1}
    assert report["counters"]["device_bytes_peak"] == 64


def test_a_report_is_written_at_finalize(process: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    program = "cann.aclrtResetDevice(0); cann.aclFinalize(); os._exit(0)"
    printed(process(program, NPUCALL_SIM_REPORT=str(path)))
    assert json.loads(path.read_text())["live_objects"] == {}


def test_a_process_may_end_while_work_runs(process: Run, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    program = "cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, cann.stream())"
    variables = {
        "NPUCALL_SIM_REPORT": str(path),
        "NPUCALL_SIM_FAULTS": "aclrtMemsetAsync:1:stall:507015",
    }
    printed(process(program, **variables))
    assert json.loads(path.read_text())["live_objects"]["aclrtStream"] == 1


def test_a_violation_ends_the_process_where_that_is_wanted(process: Run) -> None:
    ended = process("cann.aclrtFree(7)", NPUCALL_SIM_ABORT="1")
    assert ended.returncode == -signal.SIGABRT
    assert "simulator: violation: aclrtFree: 0x7 is no allocation" in ended.stderr


def test_faults_can_stand_in_the_environment(process: Run) -> None:
    program = "print(cann.aclrtSynchronizeStream(None), cann.aclrtSynchronizeStream(None))"
    faults = "aclrtSynchronizeStream:2:return:507899;aclrtMalloc:1:return:207001"
    assert printed(process(program, NPUCALL_SIM_FAULTS=faults)) == ["0 507899"]


def test_a_function_can_be_told_to_crash(process: Run) -> None:
    program = "simulator.fail('aclrtMalloc', status=1, what='crash'); cann.device(4)"
    ended = process(program)
    assert ended.returncode == -signal.SIGSEGV or "AddressSanitizer: SEGV" in ended.stderr


def test_a_forked_child_may_not_call_anything(process: Run) -> None:
    program = """
if os.fork() == 0:
    os._exit(cann.aclrtSynchronizeStream(None) == 500000)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    ended = process(program)
    assert printed(ended) == ["1"]
    assert "violation: aclrtSynchronizeStream: called in a forked child" in ended.stderr


def test_settings_are_those_of_the_environment(process: Run) -> None:
    program = """
free, total = ctypes.c_size_t(), ctypes.c_size_t()
cann.ok(cann.aclrtGetMemInfo(1, byref(free), byref(total)))
name = cann.libraries[0].aclrtGetSocName
name.restype = c_char_p
print(total.value, name().decode(), cann.aclrtSetDevice(2), cann.aclrtSetDevice(3))
"""
    variables = {
        "NPUCALL_SIM_MEMORY": "5000",
        "NPUCALL_SIM_SOC": "Ascend310P3",
        "NPUCALL_SIM_DEVICES": "3",
    }
    assert printed(process(program, **variables)) == ["5000 Ascend310P3 0 107001"]


def test_8_1_lacks_the_functions_that_are_new(process: Run) -> None:
    program = """
names = "aclFinalizeReference aclsysGetVersionStr aclrtLaunchHostFunc aclrtSetDevice".split()
print([hasattr(cann.libraries[0], name) for name in names], simulator.generation)
"""
    assert printed(process(program, generation="8.1")) == ["[False, False, False, True] 81"]


def test_8_1_initialises_once_in_a_process(process: Run) -> None:
    program = """
cann.aclrtResetDevice(0)
print(cann.aclInit(None), cann.aclFinalize(), cann.aclInit(None))
"""
    assert printed(process(program, generation="8.1")) == ["100002 0 100002"]


def test_8_1_takes_a_timeout_of_0_for_a_look(process: Run) -> None:
    program = "print(cann.aclrtSynchronizeStreamWithTimeout(None, 0))"
    assert printed(process(program, generation="8.1")) == ["0"]


def test_8_1_computes(process: Run) -> None:
    program = """
import struct
source, target = cann.upload(struct.pack("2f", -1, 3)), cann.device(8)
executor = cann.planned("aclnnRelu", cann.tensor(source, [2]), cann.tensor(target, [2])).executor
cann.ok(cann.aclnnRelu(None, 0, executor, None))
cann.ok(cann.aclrtSynchronizeStream(None))
print(struct.unpack("2f", cann.download(target, 8)), simulator.violations())
"""
    ended = process(program, generation="8.1", NPUCALL_SIM_KERNELS="python")
    assert printed(ended) == ["(0.0, 3.0) []"]
