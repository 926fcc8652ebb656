"""Handles: dead ones, those of another kind, and those that belong to somebody else."""

from ctypes import c_bool

import pytest

from .raw import DOUBLE, Cann, integers


def violation(cann: Cann) -> str:
    """The only violation, without addresses."""
    (line,) = cann.violations()
    return line.split(" (0x")[0]


def test_what_is_destroyed_must_be_a_live_handle_of_the_kind(cann: Cann) -> None:
    expected = "aclDestroyTensor: a live aclTensor is expected, this is a"
    tensor = cann.tensor(None, [2])
    cann.ok(cann.aclDestroyTensor(tensor))
    assert cann.aclDestroyTensor(tensor) == 561103
    assert violation(cann) == f"{expected} destroyed aclTensor"
    assert cann.tensor(None, [2]) != tensor  # a handle is never given out again
    cann.aclDestroyTensor(cann.tensor(None, [2]) & 0xFFFFFFFF)  # cut to 32 bits
    assert violation(cann) == f"{expected} pointer that is no handle"
    cann.aclDestroyTensor(cann.double(1))
    assert violation(cann) == f"{expected} live aclScalar"
    assert [cann.aclDestroyTensor(None), cann.aclDestroyIntArray(None)] == [0, 0]


@pytest.mark.parametrize("kind", ["Stream", "Event"])
def test_a_stream_or_an_event_destroyed_twice_is_a_violation(cann: Cann, kind: str) -> None:
    made = cann.stream() if kind == "Stream" else cann.event()
    destroy = getattr(cann, f"aclrtDestroy{kind}")
    cann.ok(destroy(made))
    assert destroy(made) == 107017
    name = f"aclrt{kind}"
    said = f"aclrtDestroy{kind}: a live {name} is expected, this is a destroyed {name}"
    assert violation(cann) == said
    assert cann.aclrtDestroyStream(None) == 100000


def test_a_list_destroys_its_elements_which_belong_to_it_alone(cann: Cann) -> None:
    elements = cann.tensor(None, [2]), cann.tensor(None, [2])
    cann.ok(cann.aclDestroyTensorList(cann.list_of(*elements)))
    assert (cann.live_objects(), cann.violations()) == ({"aclrtSetDevice": 1}, [])
    cann.aclDestroyTensor(elements[0])
    said = "aclDestroyTensor: a live aclTensor is expected, this is a destroyed aclTensor"
    assert violation(cann) == said
    element = cann.tensor(None, [2])
    for _ in range(2):
        cann.list_of(element)
    assert cann.violations() == ["aclCreateTensorList: element 0 belongs to a list"]
    cann.aclDestroyTensor(element)
    said = "aclDestroyTensor: the element belongs to a list, which destroys it"
    assert cann.violations() == [said]


def test_a_count_or_a_content_that_cannot_be_makes_nothing(cann: Cann) -> None:
    numbers = integers([1])
    assert cann.aclCreateTensor(numbers, 2**40, 0, None, 0, 2, numbers, 1, None) is None
    assert cann.aclCreateIntArray(numbers, 2**40) is None
    assert cann.violations() == [
        "aclCreateTensor: 1099511627776 dimensions: arguments of a wrong type",
        "aclCreateIntArray: 1099511627776 elements: arguments of a wrong type",
    ]
    assert cann.aclCreateTensor(None, 2, 0, None, 0, 2, integers([2]), 1, None) is None
    assert cann.aclCreateScalar(None, DOUBLE) is None
    assert cann.aclCreateIntArray(None, 0) is not None
    assert cann.aclGetDataType(None, None) == 161001
    elements = (c_bool * 2)()
    memoryview(elements).cast("B")[1] = 7
    cann.aclCreateBoolArray(elements, 2)
    said = "aclCreateBoolArray: an element is 7: elements are bytes of 0 and 1"
    assert cann.violations() == [said]
