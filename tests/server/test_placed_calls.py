"""Calls with storages and outputs in shared memory: what fits, what is refused, what is copied."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from npucall.compute.helpers import Unlimited
from npucall.declare.call import Call
from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Input, Output
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT, INT64, UINT8
from npucall.errors import ArgumentError, MessageError, SharedMemoryError, TensorLayoutError
from npucall.operators import CATALOGUE
from npucall.places import RegionPart
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode
from npucall.wire.messages import Request
from npucall_server.devices.cpu import CpuDevice
from npucall_server.shared.regions import Regions

from .scripted import ledger, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_server.devices.base import Step
    from npucall_server.execution.placed import Placed
FREE: Any = Unlimited()
SIZE, MIB = 64, 2**20
INPUTS = ("grad_output", "self", "target")


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    device = CpuDevice("Ascend910B1", "documented", 2)
    yield device
    device.close()


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


def prepared(operator: str, stored: tuple[str, ...], **arguments: Any) -> Prepared:
    data = encode(operator, "", arguments, stored)
    return PreparedCalls(
        CATALOGUE, CpuDevice("Ascend910B1", "documented", 1).product, "documented"
    ).of(data)


def l1(elements: int = 2, *, stored_output: bool = False) -> Prepared:
    """Three inputs and an output of 4 bytes an element."""
    names = (*INPUTS, "grad_input") if stored_output else INPUTS
    return prepared(
        "aclnnL1LossBackward", names, **dict.fromkeys(names, TensorSpec(FLOAT, (elements,)))
    )


def placed(
    call: Prepared, shared: Shared, storage: list[Any], places: dict[str, RegionPart] | None = None
) -> Step:
    (step,) = opened(call, shared.regions, storage, places or {}).steps({})
    return step


def test_only_a_request_that_names_a_region_is_placed() -> None:
    region = RegionPart(b"", 0, 0)
    assert not Request(b"", [memoryview(b"x")]).is_placed
    assert not Request(b"", []).is_placed
    assert Request(b"", [memoryview(b"x"), region]).is_placed
    assert Request(b"", [], {"out": region}).is_placed


def test_storages_are_views_of_the_memory_or_of_the_message() -> None:
    shared = Shared()
    sent = memoryview(b"12345678")
    storages = placed(l1(), shared, [shared.at(0), sent, shared.at(16)]).storages
    shared.bytes[:] = 7
    assert storages == {"grad_output": b"\7" * 8, "self": b"12345678", "target": b"\7" * 8}
    assert storages["self"] is sent


def test_inputs_may_share_memory() -> None:
    shared = Shared()
    storages = placed(l1(), shared, [shared.at(0), shared.at(0), shared.at(3)]).storages
    assert [len(storage) for storage in storages.values()] == [8, 8, 8]


def test_the_response_names_places_and_has_the_bytes_of_other_outputs() -> None:
    shared = Shared()
    storage: list[Any] = [shared.at(0)] * 3
    assert opened(l1(), shared.regions, storage, {}).replied(0, [b"result"]) == [b"result"]
    place = shared.at(32)
    subject = opened(l1(), shared.regions, storage, {"grad_input": place})
    assert subject.replied(0, [b"result"]) == [place]


@pytest.mark.parametrize("count", [0, 2, 4])
def test_another_number_of_storages_is_refused(count: int) -> None:
    shared = Shared()
    with pytest.raises(TensorLayoutError, match=f"storage: expected 3 .* found {count}"):
        placed(l1(), shared, [shared.at(0)] * count, {"grad_input": shared.at(32)})


def test_a_storage_of_another_length_is_refused_by_name() -> None:
    shared = Shared()
    with pytest.raises(TensorLayoutError, match="expected 8 bytes of storage, found 9") as caught:
        placed(l1(), shared, [shared.at(0), shared.at(0, 9), shared.at(0)])
    assert caught.value.parameter == "self"


def test_a_region_does_not_pass_for_a_storage_of_three_bytes() -> None:
    """It is a tuple of three."""
    shared = Shared()
    call = prepared("aclnnL1LossBackward", INPUTS, **dict.fromkeys(INPUTS, TensorSpec(FLOAT, (0,))))
    with pytest.raises(TensorLayoutError, match="expected 0 bytes of storage, found 3"):
        placed(call, shared, [shared.at(0, 3)] * 3)


@pytest.mark.parametrize("offset", [57, 64, 2**64 - 8])
def test_a_storage_outside_the_memory_is_refused_by_name(offset: int) -> None:
    shared = Shared()
    with pytest.raises(TensorLayoutError, match="part of 64 bytes") as caught:
        placed(l1(), shared, [shared.at(0), shared.at(0), shared.at(offset)])
    assert caught.value.parameter == "target"


def test_an_unknown_memory_is_refused_by_name() -> None:
    shared = Shared()
    with pytest.raises(SharedMemoryError) as caught:
        placed(l1(), shared, [shared.at(0), RegionPart(b"x" * 16, 0, 8), shared.at(0)])
    assert caught.value.parameter == "self"
    with pytest.raises(SharedMemoryError) as caught:
        placed(l1(), shared, [shared.at(0)] * 3, {"grad_input": RegionPart(b"x" * 16, 0, 8)})
    assert caught.value.parameter == "grad_input"


def test_a_place_for_what_is_no_output_is_refused() -> None:
    shared = Shared()
    with pytest.raises(MessageError, match=r"outputs of the call \(grad_input\), found 'self'"):
        placed(l1(), shared, [shared.at(0)] * 3, {"self": shared.at(32)})


@pytest.mark.parametrize("length", [0, 7, 9])
def test_a_place_of_another_length_is_refused(length: int) -> None:
    shared = Shared()
    with pytest.raises(TensorLayoutError, match=f"a place of 8 bytes, found {length}") as caught:
        placed(l1(), shared, [shared.at(0)] * 3, {"grad_input": shared.at(32, length)})
    assert caught.value.parameter == "grad_input"


@pytest.mark.parametrize("offset", [9, 15, 16, 17, 23])
def test_a_place_that_shares_bytes_with_an_input_is_refused(offset: int) -> None:
    shared = Shared()
    with pytest.raises(TensorLayoutError, match="with the storage of target") as caught:
        placed(
            l1(), shared, [shared.at(0, 8), shared.at(40), shared.at(16)],
            {"grad_input": shared.at(offset)},
        )  # fmt: skip
    assert caught.value.parameter == "grad_input"


@pytest.mark.parametrize("offset", [8, 24])
def test_a_place_right_beside_an_input_is_taken(offset: int) -> None:
    shared = Shared()
    storage: list[Any] = [shared.at(0), shared.at(16), shared.at(16)]
    subject = placed(l1(), shared, storage, {"grad_input": shared.at(offset)})
    assert [len(target) for target in subject.targets.values()] == [8]


def test_a_place_may_be_the_storage_that_was_sent_for_the_output() -> None:
    shared = Shared()
    storage: list[Any] = [shared.at(0), shared.at(0), shared.at(0), shared.at(8)]
    subject = placed(l1(stored_output=True), shared, storage, {"grad_input": shared.at(8)})
    assert subject.targets["grad_input"] == subject.storages["grad_input"]


@pytest.mark.parametrize("offset", [7, 9])
def test_a_place_that_overlaps_its_own_storage_otherwise_is_refused(offset: int) -> None:
    shared = Shared()
    storage: list[Any] = [shared.at(40), shared.at(40), shared.at(40), shared.at(8)]
    with pytest.raises(TensorLayoutError, match="with the storage of grad_input"):
        placed(l1(stored_output=True), shared, storage, {"grad_input": shared.at(offset)})


def test_a_place_that_is_its_own_storage_still_shares_no_byte_with_an_input() -> None:
    shared = Shared()
    storage: list[Any] = [shared.at(40), shared.at(8), shared.at(40), shared.at(8)]
    with pytest.raises(TensorLayoutError, match="with the storage of self"):
        placed(l1(stored_output=True), shared, storage, {"grad_input": shared.at(8)})


SPANS = st.lists(st.tuples(st.booleans(), st.integers(0, 24), st.integers(0, 9)), max_size=5)


def shared_bytes(first: tuple[bool, int, int], second: tuple[bool, int, int]) -> set[int]:
    spans = (set(range(span[1], span[1] + span[2])) for span in (first, second))
    return set.intersection(*spans) if first[0] == second[0] else set()


@given(SPANS, SPANS)
@example([(False, 0, 9), (False, 10, 1), (False, 2, 1)], [(False, 5, 1)])
@example([(False, 0, 9)], [(False, 5, 0)])
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


def labels(operator: str, rows: int = 2) -> tuple[Prepared, Shared, Placed]:
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
    call = prepared(operator, tuple(given), **given, **more)
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


FLIP = """
import mmap, sys
import numpy as np
descriptor, offset = map(int, sys.argv[1:])
numbers = np.frombuffer(mmap.mmap(descriptor, 0), np.int64, 1, offset)
sys.stdout.write("ready\\n")
sys.stdout.flush()
while True:
    numbers[0] = 2**40
    numbers[0] = 1
"""


@contextmanager
def flipped(shared: Shared, region: RegionPart) -> Iterator[None]:
    """A client that changes a label all the time, from a class to what is none."""
    place = (str(number) for number in (shared.descriptor, region.offset))
    command = [sys.executable, "-c", FLIP, *place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[shared.descriptor]) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == b"ready\n"
            yield
        finally:
            client.kill()


def test_a_label_that_a_client_flips_is_refused_or_computed_with_as_it_was_checked(
    device: CpuDevice,
) -> None:
    call, shared, subject = labels("aclnnCrossEntropyLossGrad", rows=512)
    (expected,) = device.run(call, subject.steps({})[0].storages, FREE).outputs
    found = set()
    with flipped(shared, shared.at(MIB * call.stored.index("target"))):
        for _ in range(2000):
            with suppress(ArgumentError):  # labels that are no class
                found.update(
                    map(bytes, device.run(call, subject.steps({})[0].storages, FREE).outputs)
                )
    assert found <= {bytes(expected)}
