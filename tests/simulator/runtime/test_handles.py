"""Handles: dead ones, those of another kind, and those that belong to somebody else."""

from __future__ import annotations

from ctypes import byref, c_bool, c_double, c_void_p
from typing import TYPE_CHECKING

import pytest

from .raw import DOUBLE, integers

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann


def violation(simulator: Simulator) -> str:
    """The only violation, without addresses."""
    (line,) = simulator.violations()
    return line.split(" (0x")[0]


def test_a_tensor_destroyed_twice_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    tensor = cann.tensor(None, [2])
    cann.ok(cann.aclDestroyTensor(tensor))
    assert cann.aclDestroyTensor(tensor) == 561103
    assert violation(simulator) == (
        "aclDestroyTensor: a live aclTensor is expected, this is a destroyed aclTensor"
    )


def test_a_pointer_cut_to_32_bits_is_no_handle(cann: Cann, simulator: Simulator) -> None:
    cann.aclDestroyTensor(cann.tensor(None, [2]) & 0xFFFFFFFF)
    assert violation(simulator) == (
        "aclDestroyTensor: a live aclTensor is expected, this is a pointer that is no handle"
    )


def test_a_handle_of_another_kind_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    value = c_double(1)
    scalar = cann.aclCreateScalar(byref(value), DOUBLE)
    cann.aclDestroyTensor(scalar)
    assert violation(simulator) == (
        "aclDestroyTensor: a live aclTensor is expected, this is a live aclScalar"
    )


def test_a_handle_is_never_given_out_again(cann: Cann) -> None:
    first = cann.tensor(None, [2])
    cann.aclDestroyTensor(first)
    assert cann.tensor(None, [2]) != first


@pytest.mark.parametrize("function", ["aclDestroyTensor", "aclDestroyIntArray"])
def test_destroying_no_descriptor_is_allowed(cann: Cann, function: str) -> None:
    assert getattr(cann, function)(None) == 0


def test_a_list_destroys_its_elements(cann: Cann, simulator: Simulator) -> None:
    elements = (c_void_p * 2)(cann.tensor(None, [2]), cann.tensor(None, [2]))
    cann.ok(cann.aclDestroyTensorList(cann.aclCreateTensorList(elements, 2)))
    assert (simulator.live_objects(), simulator.violations()) == ({"aclrtSetDevice": 1}, [])


def test_an_element_destroyed_besides_its_list_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    elements = (c_void_p * 1)(cann.tensor(None, [2]))
    cann.aclCreateTensorList(elements, 1)
    cann.aclDestroyTensor(elements[0])
    assert simulator.violations() == [
        "aclDestroyTensor: the element belongs to a list, which destroys it"
    ]


def test_an_element_destroyed_after_its_list_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    elements = (c_void_p * 1)(cann.tensor(None, [2]))
    cann.aclDestroyTensorList(cann.aclCreateTensorList(elements, 1))
    cann.aclDestroyTensor(elements[0])
    assert violation(simulator) == (
        "aclDestroyTensor: a live aclTensor is expected, this is a destroyed aclTensor"
    )


def test_an_element_of_two_lists_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    elements = (c_void_p * 1)(cann.tensor(None, [2]))
    cann.aclCreateTensorList(elements, 1)
    cann.aclCreateTensorList(elements, 1)
    assert simulator.violations() == ["aclCreateTensorList: element 0 belongs to a list"]


def test_a_count_that_cannot_be_meant_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    numbers = integers([1])
    assert cann.aclCreateTensor(numbers, 2**40, 0, None, 0, 2, numbers, 1, None) is None
    assert cann.aclCreateIntArray(numbers, 2**40) is None
    assert simulator.violations() == [
        "aclCreateTensor: 1099511627776 dimensions: arguments of a wrong type",
        "aclCreateIntArray: 1099511627776 elements: arguments of a wrong type",
    ]


def test_a_tensor_without_dims_but_a_rank_is_null(cann: Cann) -> None:
    assert cann.aclCreateTensor(None, 2, 0, None, 0, 2, integers([2]), 1, None) is None


def test_a_scalar_of_no_value_is_null(cann: Cann) -> None:
    assert cann.aclCreateScalar(None, DOUBLE) is None


def test_an_array_of_nothing_is_an_empty_array(cann: Cann) -> None:
    assert cann.aclCreateIntArray(None, 0) is not None


def test_a_bool_array_of_other_bytes_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    elements = (c_bool * 2)()
    memoryview(elements).cast("B")[1] = 7
    cann.aclCreateBoolArray(elements, 2)
    assert simulator.violations() == [
        "aclCreateBoolArray: an element is 7: elements are bytes of 0 and 1"
    ]


def test_a_getter_without_tensor_answers_161001(cann: Cann) -> None:
    assert cann.aclGetDataType(None, None) == 161001


def test_a_stream_destroyed_twice_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    stream = cann.stream()
    cann.ok(cann.aclrtDestroyStream(stream))
    assert cann.aclrtDestroyStream(stream) == 107017
    assert violation(simulator) == (
        "aclrtDestroyStream: a live aclrtStream is expected, this is a destroyed aclrtStream"
    )


def test_an_event_destroyed_twice_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    event = cann.event()
    cann.ok(cann.aclrtDestroyEvent(event))
    assert cann.aclrtDestroyEvent(event) == 107017
    assert violation(simulator) == (
        "aclrtDestroyEvent: a live aclrtEvent is expected, this is a destroyed aclrtEvent"
    )


def test_no_stream_cannot_be_destroyed(cann: Cann) -> None:
    assert cann.aclrtDestroyStream(None) == 100000


def test_a_default_context_is_not_the_callers_to_destroy(cann: Cann, simulator: Simulator) -> None:
    assert cann.aclrtDestroyContext(cann.made("aclrtGetCurrentContext")) == 100000
    assert simulator.violations() == [
        "aclrtDestroyContext: the default context is released by aclrtResetDevice"
    ]


def test_a_stream_of_another_context_answers_107003(cann: Cann) -> None:
    stream = cann.stream()
    cann.made("aclrtCreateContext", 0)
    assert [
        cann.aclrtRecordEvent(cann.event(), stream),
        cann.aclrtDestroyStream(stream),
    ] == [107003, 107003]


def test_a_synchronise_may_name_a_stream_of_another_context(cann: Cann) -> None:
    stream = cann.stream()
    cann.made("aclrtCreateContext", 0)
    assert cann.aclrtSynchronizeStream(stream) == 0
