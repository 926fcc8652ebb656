"""aclInit and its counterparts, versions, error texts; what needs a process of its own."""

import ctypes
import json
import signal
import subprocess
from collections.abc import Callable
from ctypes import byref, c_int, c_uint64
from pathlib import Path

import pytest

from .helpers import in_thread, native_end
from .raw import Cann

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_every_init_of_9_needs_its_own_finalize_reference(bare: Cann) -> None:
    assert [bare.aclInit(None), bare.aclInit(None)] == [0, 100002]
    left = c_uint64(9)
    assert [bare.aclFinalizeReference(byref(left)), left.value] == [0, 1]
    assert [bare.aclFinalizeReference(byref(left)), left.value] == [0, 0]
    assert bare.aclFinalizeReference(byref(left)) == 100037


def test_a_configuration_must_be_there_and_the_same(bare: Cann, tmp_path: Path) -> None:
    assert bare.aclInit(b"/nowhere/acl.json") == 100003
    path = tmp_path / "acl.json"
    path.write_text("{}")
    assert [bare.aclInit(None), bare.aclInit(str(path).encode())] == [0, 100000]


def test_no_device_answers_500000_at_init(bare: Cann, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUCALL_SIM_DEVICES", "0")
    bare.reset()
    assert bare.aclInit(None) == 500000


def test_finalize_comes_behind_everything_else(cann: Cann) -> None:
    cann.stream()
    tensor = cann.tensor(cann.device(32), [8])
    assert cann.live_objects() == dict.fromkeys(
        ("aclTensor", "aclrtMalloc", "aclrtSetDevice", "aclrtStream"), 1
    )
    cann.ok(cann.aclDestroyTensor(tensor))
    cann.aclFinalize()
    kinds = ("aclrtMalloc", "aclrtSetDevice", "aclrtStream")
    assert cann.violations() == [f"aclFinalize: 1 {kind} not released" for kind in kinds]


def test_a_process_that_gives_everything_back_leaves_nothing(cann: Cann) -> None:
    cann.ok(cann.aclrtDestroyStream(cann.stream()))
    cann.ok(cann.aclrtResetDevice(0))
    cann.ok(cann.aclFinalize())
    assert (cann.live_objects(), cann.violations()) == ({}, [])
    cann.aclrtSetDevice(0)
    cann.aclrtSynchronizeDevice()
    assert cann.violations() == ["aclrtSynchronizeDevice: called after aclFinalize"]


def test_9_has_acl_version_1_17(bare: Cann) -> None:
    numbers = [c_int(), c_int(), c_int()]
    bare.ok(bare.aclrtGetVersion(*map(byref, numbers)))
    assert [number.value for number in numbers] == [1, 17, 0]


def test_a_library_opened_with_pydll_is_a_violation(cann: Cann) -> None:
    ctypes.PyDLL(cann.libraries[0]._name).aclrtSynchronizeDevice()
    said = "called with Python's interpreter lock held (PyDLL instead of CDLL)"
    assert cann.violations() == [f"aclrtSynchronizeDevice: {said}"]


# --- The device and its context -------------------------------------------------------------------


def test_a_device_lives_until_the_last_reset(cann: Cann) -> None:
    cann.aclrtSetDevice(0)
    for status in (0, 107002):
        cann.ok(cann.aclrtResetDevice(0))
        assert cann.aclrtSynchronizeStream(None) == status
    assert cann.aclrtResetDevice(0) == 107001
    assert cann.violations() == ["aclrtResetDevice: device 0 was reset more often than set"]


def test_a_thread_takes_the_context_that_it_is_given_until_that_is_released(cann: Cann) -> None:
    context = cann.made("aclrtGetCurrentContext")
    assert in_thread(lambda: cann.aclrtSynchronizeStream(None)) == 107002

    def run() -> int:
        cann.ok(cann.aclrtSetCurrentContext(context))
        status: int = cann.aclrtSynchronizeStream(None)
        return status

    assert in_thread(run) == 0
    context = cann.made("aclrtGetCurrentContext")

    def run() -> None:
        cann.aclrtSetCurrentContext(context)
        in_thread(lambda: cann.aclrtResetDevice(0))
        cann.aclrtSynchronizeStream(None)

    in_thread(run)
    said = "aclrtSynchronizeStream: the thread's current context was released"
    assert cann.violations() == [said]


def test_visible_devices_are_those_of_the_variable(
    cann: Cann, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    assert [cann.aclrtSetDevice(0), cann.aclrtSetDevice(1)] == [0, 107001]


# --- Error texts and the last error ---------------------------------------------------------------


def test_the_error_text_and_the_last_error_are_the_newest_until_they_are_read(cann: Cann) -> None:
    cann.aclrtSetDevice(7)
    cann.aclrtFree(None)
    assert in_thread(cann.aclGetRecentErrMsg) is None
    newest, first = cann.text().splitlines()
    assert newest.startswith("EE1001: [aclrtFree]")
    assert first == "EE1001: [aclrtSetDevice] device 7 does not exist; there are 2"
    assert cann.aclGetRecentErrMsg() is None
    function = cann.libraries[0]["aclGetRecentErrMsg"]
    raw = ctypes.CFUNCTYPE(ctypes.c_void_p)(ctypes.cast(function, ctypes.c_void_p).value)
    cann.aclrtSetDevice(7)
    kept = raw()
    before = ctypes.string_at(kept)
    cann.aclrtSetDevice(7)
    raw()
    assert ctypes.string_at(kept) != before
    cann.aclrtSetDevice(7)
    answers = [cann.aclrtPeekAtLastError(0), cann.aclrtGetLastError(0), cann.aclrtGetLastError(0)]
    assert answers == [107001, 107001, 0]
    cann.aclrtSetDevice(7)
    cann.text()
    assert cann.aclrtGetLastError(0) == 207000


# --- The end of a thread that made a first phase, which comes later than Python says --------------


def used(cann: Cann) -> None:
    """What a thread does that runs a call."""
    cann.ok(cann.aclrtSetDevice(0))
    cann.relu_once()
    cann.ok(cann.aclrtResetDevice(0))


def unused(cann: Cann) -> None:
    cann.ok(cann.aclrtSetDevice(0))
    cann.ok(cann.aclrtResetDevice(0))


def reset(cann: Cann) -> None:
    cann.ok(cann.aclrtResetDevice(0))
    cann.violations()  # memory and descriptors are the test's own business


def finalise(cann: Cann) -> None:
    reset(cann)
    cann.ok(cann.aclFinalize())
    cann.violations()


def violations_at_the_end(
    cann: Cann,
    again: Callable[[], None],
    work: Callable[[Cann], None],
    behind: Callable[[Cann], None] | None = None,
) -> list[str]:
    """Those of a thread that ends behind something, or before the device is reset.

    What is done behind it may come too late beside other processes, and is tried again.
    """
    for _ in range(20 if behind else 1):
        again()
        native_end(lambda: work(cann), lambda: behind and behind(cann))
        if found := cann.violations():
            return found
    reset(cann)
    return cann.violations()


def test_a_device_reset_or_cann_finalised_while_a_thread_ends_is_a_violation(
    cann: Cann, again: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_THREAD_END_MS", "100")
    assert violations_at_the_end(cann, again, used) == []
    assert violations_at_the_end(cann, again, unused) == []
    said = "end of a thread: the context of its phase ones was released before"
    assert violations_at_the_end(cann, again, used, reset) == [said]
    said = "end of a thread: CANN was finalised before"
    assert violations_at_the_end(cann, again, used, finalise) == [said]


def printed(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines that a program printed; it must have ended well."""
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("program", "faults", "violations", "live"),
    [("cann.device(32); cann.aclrtFree(7)", "", ["aclrtFree: 0x7 is no allocation"],
      {"aclrtMalloc": 1, "aclrtSetDevice": 1}),
     ("cann.aclrtResetDevice(0); cann.aclFinalize(); os._exit(0)", "", [], {}),
     ("cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, cann.stream())",
      "aclrtMemsetAsync:1:stall:507015", [],
      {"aclrtMalloc": 1, "aclrtSetDevice": 1, "aclrtStream": 1})],
    ids=["at the end", "at finalize", "while work runs"],
)  # fmt: skip
def test_a_report_is_written_at_finalize_or_when_the_process_ends(
    process: Run, tmp_path: Path, program: str, faults: str, violations: list[str],
    live: dict[str, int],
) -> None:  # fmt: skip
    path = tmp_path / "report.json"
    printed(process(program, NPUCALL_SIM_REPORT=str(path), NPUCALL_SIM_FAULTS=faults))
    report = json.loads(path.read_text())
    assert (report["violations"], report["live_objects"]) == (violations, live)
    assert report["counters"]["device_bytes_peak"] == 64 * live.get("aclrtMalloc", 0)


def test_a_violation_ends_the_process_where_that_is_wanted(process: Run) -> None:
    ended = process("cann.aclrtFree(7)", NPUCALL_SIM_ABORT="1")
    assert ended.returncode == -signal.SIGABRT
    assert "simulator: violation: aclrtFree: 0x7 is no allocation" in ended.stderr


def test_a_forked_child_may_not_call_anything(process: Run) -> None:
    program = """
if os.fork() == 0:
    os._exit(cann.aclrtSynchronizeStream(None) == 500000)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    ended = process(program)
    assert printed(ended) == ["1"]
    assert "violation: aclrtSynchronizeStream: called in a forked child" in ended.stderr
