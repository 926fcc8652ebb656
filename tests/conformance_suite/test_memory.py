"""No answer depends on what was in memory before: the suite's calls, over poisoned memory."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from npucall import memory
from npucall.compute import evaluate, pieces
from npucall.declare.call import Call
from npucall.declare.domain import Elementwise
from npucall.declare.prepare import Prepared, prepare
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.products import A2, product_of
from npucall.tensors import Buffer, TensorSpec
from npucall.wire.calls import PreparedCalls
from npucall_conformance.cases.made_call import call_of
from npucall_conformance.cases.select import Selection, select
from npucall_server.calls.arrivals import Arrivals

from .servers import PARTS, STATEMENTS, TITLES, soc_with

POISONS = (0xA5, 0x5A)
NEW = np.empty


def calls(title: str) -> Iterator[tuple[Prepared, dict[str, Buffer]]]:
    """A sample of an operator's calls of every kind that the rules let through."""
    product = product_of(soc_with(title))
    prepared = PreparedCalls(CATALOGUE, product, "documented")
    for case in select([STATEMENTS[title]], Selection(quick=True)):
        if case.block in ("large", "paths", "listing"):  # as the others, larger; no call
            continue
        call = call_of(case, 0, product.soc)
        data = call.request().call
        try:
            ready = prepared.of(data)
            yield ready, ready.storages(list(call.storages.values()))
        except NpucallError:
            continue


def answer_of(call: Prepared, storages: dict[str, Buffer], **more: Any) -> Any:
    try:
        return [bytes(storage) for storage in evaluate.run(call, storages, **more)]
    except NpucallError as error:  # of values
        return str(error)


def poison(byte: int) -> Any:
    """``np.empty`` whose memory held something else."""

    def new(*args: Any, **kwargs: Any) -> Any:
        array = NEW(*args, **kwargs)
        array.view(np.uint8).fill(byte) if array.ndim else array.fill(byte)
        return array

    return new


def over_poison(found: Callable[[], Any]) -> Iterator[Any]:
    """What is found if new memory is full of each poison."""
    for byte in POISONS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np, "empty", poison(byte))
            patch.setattr(memory, "PATTERN", byte)
            yield found()


@PARTS
def test_what_was_in_new_memory_does_not_show(part: slice, subtests: pytest.Subtests) -> None:
    for title in TITLES[part]:
        with subtests.test(title):
            seen = 0
            for call, storages in calls(title):
                expected = answer_of(call, storages)
                for found in over_poison(lambda: answer_of(call, storages)):  # noqa: B023
                    assert found == expected
                seen += 1
            assert seen > 20


def with_small_inputs(
    call: Prepared, storages: dict[str, Buffer]
) -> Iterator[tuple[Prepared, dict[str, Buffer]]]:
    """The same call with all inputs sent, read or not, and one element of any of them alone.

    As far as the rules let such a call through.
    """
    names = tuple(call.inputs)
    for count in range(len(names) + 1):
        for small in combinations(names, count):
            specs = {
                name: TensorSpec(
                    spec.dtype, (1,) * len(spec.shape) if name in small else spec.shape
                )
                for name, spec in call.inputs.items()
            }
            given = {n: v for n, v in call.values.items() if v is not None}
            asked = Call(call.operator, {**specs, **given}, names)
            try:
                ready = prepare(asked, call.operator.product_near(A2), CATALOGUE)
            except NpucallError:
                continue
            yield ready, {n: sent(storages.get(n, b""), s.bytes) for n, s in specs.items()}


def sent(data: Buffer, size: int) -> bytes:
    """As many bytes, of what a storage has, over and over again."""
    return (bytes(data) * (size // max(len(data), 1) + 1))[:size] if data else bytes(size)


def answer_in_chunks(call: Prepared, storages: dict[str, Buffer], length: int) -> Any:
    """What a server answers when the bytes come in chunks of that length."""
    arrivals = Arrivals(call)
    for index, name in enumerate(call.stored):
        data = bytes(storages[name])
        for start in range(0, len(data), length):
            arrivals.put(index, data[start : start + length])
    arrivals.end()
    try:
        return [bytes(storage) for storage in pieces.run(call, arrivals)]
    except NpucallError as error:  # of values
        return str(error)


ELEMENTWISE = [
    title
    for title, statement in STATEMENTS.items()
    if isinstance(CATALOGUE.find(statement.operator, statement.variant).over, Elementwise)
]


@PARTS
def test_what_was_in_memory_does_not_show_in_what_is_computed_chunk_by_chunk(
    part: slice, subtests: pytest.Subtests
) -> None:
    """Whatever inputs are single numbers, and whether the largest of them is read."""
    for title in ELEMENTWISE[part]:
        with subtests.test(title):
            some = [c for c in calls(title) if c[0].operator.formula and not c[0].done]
            in_pieces = [call for call in some if pieces.takes_pieces(call[0])]  # sums never are
            seen = sum(starts_alike(*sample) for sample in (in_pieces or some)[:12])
            assert seen > 10 or not in_pieces


def starts_alike(call: Prepared, storages: dict[str, Buffer]) -> int:
    """How many answers in chunks were compared, of a call and of it with single numbers."""
    seen = 0
    for each, sent_ in with_small_inputs(call, storages):
        expected = answer_of(each, sent_)
        assert list(over_poison(lambda: answer_of(each, sent_))) == [expected] * 2  # noqa: B023
        if pieces.takes_pieces(each):
            found = list(over_poison(lambda: answer_in_chunks(each, sent_, 24)))  # noqa: B023
            assert found == [expected] * 2
            seen += 2
    return seen
