"""Calls with storages and outputs in shared memory: what fits, what is refused, what is copied."""

import os
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.server.fakes import INPUTS, ledger, opened

from npucall.compute.helpers import Unlimited
from npucall.declare.call import Call
from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Input, Output
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT, INT64, UINT8
from npucall.errors import (
    MessageError,
    NpucallError,
    SharedMemoryError,
    TensorLayoutError,
)
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.places import RegionPart
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode
from npucall.wire.messages import RequestParts
from npucall_server.calls.open_places import OpenPlaces
from npucall_server.devices.base import Step
from npucall_server.shared.regions import Regions

FREE: Any = Unlimited()
SIZE, MIB = 64, 2**20


class Shared:
    """A region of ``size`` bytes."""

    def __init__(self, size: int = SIZE) -> None:
        self.regions = Regions(1 << 30, ledger())
        self.id, self.descriptor = self.regions.create(size)
        weakref.finalize(self, os.close, self.descriptor)
        self.bytes = np.frombuffer(
            self.regions.view(RegionPart(self.id, 0, size), "test"), np.uint8
        )

    def at(self, offset: int, length: int = 8) -> RegionPart:
        return RegionPart(self.id, offset, length)

    def part(self, place: Any) -> RegionPart:
        """Of an offset, of offset and length, or as it is."""
        if isinstance(place, RegionPart):
            return place
        return self.at(*place) if isinstance(place, tuple) else self.at(place)


def prepared_by(operator: str, stored: tuple[str, ...], **arguments: Any) -> Prepared:
    data = encode(operator, "", arguments, stored)
    return PreparedCalls(CATALOGUE, A2, DEFAULT_VARIANT).of(data)


def l1(elements: int = 2, *more: str) -> Prepared:
    """Inputs, and outputs that are stored too, of 4 bytes an element."""
    names = (*INPUTS, *more)
    specs = dict.fromkeys(names, TensorSpec(FLOAT, (elements,)))
    return prepared_by("aclnnL1LossBackward", names, **specs)


def placed(
    call: Prepared, shared: Shared, storage: list[Any], places: dict[str, RegionPart] | None = None
) -> Step:
    (step,) = opened(call, shared.regions, storage, places or {}).steps({})
    return step


def test_only_a_request_that_names_a_region_is_placed() -> None:
    region = RegionPart(b"", 0, 0)
    assert not RequestParts(b"", [memoryview(b"x")]).is_placed
    assert not RequestParts(b"", []).is_placed
    assert RequestParts(b"", [memoryview(b"x"), region]).is_placed
    assert RequestParts(b"", [], {"out": region}).is_placed


def test_storages_are_views_of_the_memory_or_of_the_message() -> None:
    shared = Shared()
    sent = memoryview(b"12345678")
    storages = placed(l1(), shared, [shared.at(0), sent, shared.at(16)]).storages
    shared.bytes[:] = 7
    assert storages == {"grad_output": b"\7" * 8, "self": b"12345678", "target": b"\7" * 8}
    assert storages["self"] is sent


def test_the_response_names_places_and_has_the_bytes_of_other_outputs() -> None:
    shared = Shared()
    storage: list[Any] = [shared.at(0)] * 3
    assert opened(l1(), shared.regions, storage, {}).replied(0, [b"result"]) == [b"result"]
    place = shared.at(32)
    subject = opened(l1(), shared.regions, storage, {"grad_input": place})
    assert subject.replied(0, [b"result"]) == [place]


UNKNOWN = RegionPart(b"x" * 16, 0, 8)
REFUSED: list[tuple[list[Any], dict[str, Any], type[NpucallError], str, str]] = [
    # Storages as (offset, length), places, the error, the parameter that it blames, its words.
    ([], {}, TensorLayoutError, "", "storage: expected 3 "),
    ([0, 0], {"grad_input": 32}, TensorLayoutError, "", "storage: expected 3 "),
    ([0] * 4, {"grad_input": 32}, TensorLayoutError, "", "found 4"),
    ([0, (0, 9), 0], {}, TensorLayoutError, "self", "expected 8 bytes of storage, found 9"),
    ([0, 0, 57], {}, TensorLayoutError, "target", "part of 64 bytes"),
    ([0, 0, 64], {}, TensorLayoutError, "target", "part of 64 bytes"),
    ([0, 0, 2**64 - 8], {}, TensorLayoutError, "target", "part of 64 bytes"),
    ([0, UNKNOWN, 0], {}, SharedMemoryError, "self", ""),
    ([0] * 3, {"grad_input": UNKNOWN}, SharedMemoryError, "grad_input", ""),
    ([0] * 3, {"self": 32}, MessageError, "", "outputs of the call (grad_input), found 'self'"),
    *(
        ([0] * 3, {"grad_input": (32, length)}, TensorLayoutError, "grad_input",
         f"a place of 8 bytes, found {length}")
        for length in (0, 7, 9)
    ),
    ([0, 40, 16], {"grad_input": 9}, TensorLayoutError, "grad_input",
     "with the storage of target"),
]  # fmt: skip


def test_what_does_not_fit_into_the_call_or_the_memory_is_refused_by_name() -> None:
    shared, wrong = Shared(), []
    for storage, places, kind, parameter, words in REFUSED:
        there = {name: shared.part(place) for name, place in places.items()}
        with pytest.raises(NpucallError) as caught:
            placed(l1(), shared, [shared.part(each) for each in storage], there)
        found = type(caught.value), caught.value.parameter or ""
        if found != (kind, parameter) or words not in str(caught.value):
            wrong.append((storage, places, str(caught.value)))
    assert wrong == []


def test_a_region_does_not_pass_for_a_storage_of_three_bytes() -> None:
    """It is a tuple of three."""
    shared = Shared()
    with pytest.raises(TensorLayoutError, match="expected 0 bytes of storage, found 3"):
        placed(l1(0), shared, [shared.at(0, 3)] * 3)


def test_a_place_may_be_the_storage_that_was_sent_for_the_output_and_overlap_no_other() -> None:
    shared, call = Shared(), l1(2, "grad_input")
    place = {"grad_input": shared.at(8)}
    subject = placed(call, shared, [shared.at(0)] * 3 + [shared.at(8)], place)
    assert subject.targets["grad_input"] == subject.storages["grad_input"]
    for other, own, name in ((40, 7, "grad_input"), (40, 9, "grad_input"), (8, 8, "self")):
        storage = [shared.at(40), shared.at(other), shared.at(40), shared.at(own)]
        with pytest.raises(TensorLayoutError, match=f"with the storage of {name}"):
            placed(call, shared, storage, place)


SPANS = st.lists(st.tuples(st.booleans(), st.integers(0, 24), st.integers(0, 9)), max_size=5)


def shared_bytes(first: tuple[bool, int, int], second: tuple[bool, int, int]) -> set[int]:
    spans = (set(range(span[1], span[1] + span[2])) for span in (first, second))
    return set.intersection(*spans) if first[0] == second[0] else set()


@given(SPANS, SPANS)
@example([(False, 0, 9), (False, 10, 1), (False, 2, 1)], [(False, 5, 1)])
@example([(False, 0, 9)], [(False, 5, 0)])
@example([(False, 0, 8), (False, 16, 8)], [(False, 8, 8)])
def test_places_are_taken_where_they_share_no_byte_with_anything(
    inputs: list[tuple[bool, int, int]], outputs: list[tuple[bool, int, int]]
) -> None:
    """Against sets of bytes, in two memories."""
    memories = [Shared(), Shared()]
    regions = memories[0].regions
    memories[1].id, descriptor = regions.create(SIZE)
    os.close(descriptor)
    call = sized([span[2] for span in inputs], [span[2] for span in outputs])
    given = [memories[which].at(start, length) for which, start, length in [*inputs, *outputs]]
    names = [f"y{number}" for number in range(len(outputs))]
    places = dict(zip(names, given[len(inputs) :], strict=True))
    clash = any(
        shared_bytes(one, other)
        for number, one in enumerate(outputs)
        for other in [*inputs, *outputs[:number]]
    )
    if clash:
        with pytest.raises(TensorLayoutError):
            opened(call, regions, given[: len(inputs)], places)
    else:
        (step,) = opened(call, regions, given[: len(inputs)], places).steps({})
        assert list(step.targets) == names


def sized(inputs: list[int], outputs: list[int]) -> Prepared:
    """A call of tensors of so many bytes, of an operator that its prototype alone declares."""
    sizes = {f"x{n}": size for n, size in enumerate(inputs)}
    parameters = [Input(name, "") for name in sizes]
    sizes |= {f"y{n}": size for n, size in enumerate(outputs)}
    specs = {name: TensorSpec(UINT8, (size,)) for name, size in sizes.items()}
    results = [Output(f"y{n}", "") for n in range(len(outputs))]
    operator = prototype_only("aclnnSized", (*parameters, *results), "test")
    stored = tuple(each.name for each in parameters)
    return prepare(Call(operator, specs, stored), A2, CATALOGUE)


def labels(operator: str, rows: int = 2) -> tuple[Prepared, Shared, OpenPlaces]:
    """A call for rows of 3 classes, each tensor in a MiB of its own of shared memory."""
    shared = Shared(5 * MIB)
    row, one = TensorSpec(FLOAT, (rows, 3)), TensorSpec(FLOAT, (1,))
    target, weight = TensorSpec(INT64, (rows,)), TensorSpec(FLOAT, (3,))
    given = {
        "aclnnCrossEntropyLossGrad": {
            "grad_loss": one, "log_prob": row, "target": target, "weight": weight,
        },
        "aclnnNLLLossBackward": {
            "grad_output": one, "self": row, "target": target, "weight": weight,
            "total_weight": one,
        },
    }[operator]  # fmt: skip
    more = {"reduction": "mean"} if "Cross" in operator else {"reduction": 1, "ignore_index": -100}
    call = prepared_by(operator, tuple(given), **given, **more)
    regions = []
    for number, (name, size) in enumerate(zip(call.stored, call.stored_bytes, strict=True)):
        regions.append(shared.at(MIB * number, size))
        dtype = np.int64 if name == "target" else np.float32
        shared.bytes[MIB * number :][:size].view(dtype)[:] = 1
    return call, shared, opened(call, shared.regions, regions, {})


def changed_later(operator: str) -> set[str]:
    """The inputs in which a client's later writes are seen by a run that has begun."""
    call, shared, subject = labels(operator)
    storages = subject.steps({})[0].storages
    before = {name: bytes(storage) for name, storage in storages.items()}
    shared.bytes[:] = 0xA5
    return {name for name in call.inputs if storages[name] != before[name]}


def test_labels_do_not_change_once_a_run_has_begun() -> None:
    changed = changed_later("aclnnNLLLossBackward")
    assert changed == {"grad_output", "self", "weight", "total_weight"}


def test_no_input_of_an_operator_that_checks_values_changes_once_a_run_has_begun() -> None:
    assert changed_later("aclnnCrossEntropyLossGrad") == set()


def test_labels_that_were_sent_are_not_copied() -> None:
    call, shared, _ = labels("aclnnNLLLossBackward")
    sent = [memoryview(bytes(size)) for size in call.stored_bytes]
    subject = placed(call, shared, [shared.at(0, call.stored_bytes[0]), *sent[1:]])
    assert subject.storages["target"] is sent[2]
