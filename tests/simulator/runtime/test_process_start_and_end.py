"""aclInit and its counterparts, versions, threads and error texts."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_uint64
from typing import TYPE_CHECKING

from .helpers import in_thread

if TYPE_CHECKING:
    import pytest
    from tests.simulator.control import Simulator

    from .raw import Cann


def test_a_second_init_answers_100002(bare: Cann) -> None:
    assert [bare.aclInit(None), bare.aclInit(None)] == [0, 100002]


def test_every_init_of_9_needs_its_own_finalize_reference(bare: Cann) -> None:
    bare.aclInit(None)
    bare.aclInit(None)
    left = c_uint64(9)
    assert [bare.aclFinalizeReference(byref(left)), left.value] == [0, 1]
    assert [bare.aclFinalizeReference(byref(left)), left.value] == [0, 0]
    assert bare.aclFinalizeReference(byref(left)) == 100037


def test_a_second_finalize_answers_100037(bare: Cann) -> None:
    bare.aclInit(None)
    assert [bare.aclFinalize(), bare.aclFinalize()] == [0, 100037]


def test_a_missing_configuration_answers_100003(bare: Cann) -> None:
    assert bare.aclInit(b"/nowhere/acl.json") == 100003


def test_finalize_before_everything_is_released_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    cann.stream()
    cann.aclFinalize()
    assert simulator.violations() == [
        "aclFinalize: 1 aclrtSetDevice not released",
        "aclFinalize: 1 aclrtStream not released",
    ]


def test_a_call_after_finalize_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    cann.aclrtResetDevice(0)
    cann.aclFinalize()
    cann.aclrtSetDevice(0)
    cann.aclrtSynchronizeDevice()
    assert simulator.violations() == ["aclrtSynchronizeDevice: called after aclFinalize"]


def test_a_process_that_gives_everything_back_leaves_nothing(
    cann: Cann, simulator: Simulator
) -> None:
    stream = cann.stream()
    cann.ok(cann.aclrtDestroyStream(stream))
    cann.ok(cann.aclrtResetDevice(0))
    cann.ok(cann.aclFinalize())
    assert (simulator.live_objects(), simulator.violations()) == ({}, [])


def test_what_was_not_given_back_is_counted_by_kind(cann: Cann, simulator: Simulator) -> None:
    cann.stream()
    cann.tensor(cann.device(32), [8])
    assert simulator.live_objects() == {
        "aclTensor": 1,
        "aclrtMalloc": 1,
        "aclrtSetDevice": 1,
        "aclrtStream": 1,
    }


def test_9_has_acl_version_1_17(bare: Cann) -> None:
    numbers = [c_int(), c_int(), c_int()]
    bare.ok(bare.aclrtGetVersion(*map(byref, numbers)))
    assert [number.value for number in numbers] == [1, 17, 0]


def test_a_null_out_parameter_answers_100000(cann: Cann) -> None:
    assert cann.aclrtCreateStream(None) == 100000


def test_the_error_text_names_function_and_reason(cann: Cann) -> None:
    cann.aclrtSetDevice(7)
    assert cann.text() == "EE1001: [aclrtSetDevice] device 7 does not exist; there are 2\n"


def test_the_error_text_is_cleared_when_it_is_read(cann: Cann) -> None:
    cann.aclrtSetDevice(7)
    cann.text()
    assert cann.aclGetRecentErrMsg() is None


def test_the_newest_failure_stands_first_in_the_error_text(cann: Cann) -> None:
    cann.aclrtSetDevice(7)
    cann.aclrtFree(None)
    assert [line.split("]")[0] for line in cann.text().splitlines()] == [
        "EE1001: [aclrtFree",
        "EE1001: [aclrtSetDevice",
    ]


def test_the_error_text_of_one_thread_is_not_seen_by_another(cann: Cann) -> None:
    cann.aclrtSetDevice(7)
    assert in_thread(cann.aclGetRecentErrMsg) is None


def test_a_kept_error_text_is_overwritten_by_the_next(cann: Cann, simulator: Simulator) -> None:
    function = cann.libraries[0]["aclGetRecentErrMsg"]
    raw = ctypes.CFUNCTYPE(ctypes.c_void_p)(ctypes.cast(function, ctypes.c_void_p).value)
    cann.aclrtSetDevice(7)
    kept = raw()
    before = ctypes.string_at(kept)
    cann.aclrtSetDevice(7)
    raw()
    assert ctypes.string_at(kept) != before


def test_the_last_error_is_cleared_by_get_and_not_by_peek(cann: Cann) -> None:
    cann.aclrtSetDevice(7)
    answers = [cann.aclrtPeekAtLastError(0), cann.aclrtGetLastError(0), cann.aclrtGetLastError(0)]
    assert answers == [107001, 107001, 0]


def test_asking_for_the_text_overwrites_the_last_error(cann: Cann) -> None:
    cann.aclrtSetDevice(7)
    cann.text()
    assert cann.aclrtGetLastError(0) == 207000


def test_a_thread_without_context_answers_107002(cann: Cann) -> None:
    assert in_thread(lambda: cann.aclrtSynchronizeStream(None)) == 107002


def test_a_thread_takes_the_context_that_it_is_given(cann: Cann) -> None:
    context = cann.made("aclrtGetCurrentContext")

    def run() -> int:
        cann.ok(cann.aclrtSetCurrentContext(context))
        return cann.aclrtSynchronizeStream(None)

    assert in_thread(run) == 0


def test_a_context_that_was_released_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    def run() -> None:
        cann.aclrtSetCurrentContext(context)
        in_thread(lambda: cann.aclrtResetDevice(0))
        cann.aclrtSynchronizeStream(None)

    context = cann.made("aclrtGetCurrentContext")
    in_thread(run)
    assert simulator.violations() == [
        "aclrtSynchronizeStream: the thread's current context was released"
    ]


def test_a_device_lives_until_the_last_reset(cann: Cann) -> None:
    cann.aclrtSetDevice(0)
    cann.ok(cann.aclrtResetDevice(0))
    cann.ok(cann.aclrtSynchronizeStream(None))
    cann.ok(cann.aclrtResetDevice(0))
    assert cann.aclrtSynchronizeStream(None) == 107002


def test_a_reset_too_many_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    cann.ok(cann.aclrtResetDevice(0))
    assert cann.aclrtResetDevice(0) == 107001
    assert simulator.violations() == ["aclrtResetDevice: device 0 was reset more often than set"]


def test_visible_devices_are_those_of_the_variable(
    cann: Cann, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    assert [cann.aclrtSetDevice(0), cann.aclrtSetDevice(1)] == [0, 107001]


def test_a_library_opened_with_pydll_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    name = cann.libraries[0]._name
    ctypes.PyDLL(name).aclrtSynchronizeDevice()
    assert simulator.violations() == [
        "aclrtSynchronizeDevice: called with Python's interpreter lock held (PyDLL instead of CDLL)"
    ]
