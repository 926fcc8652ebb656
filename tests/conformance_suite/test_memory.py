"""No answer depends on what was in memory before: the suite's calls, over poisoned memory."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.more import TURNS, every_twelfth

from npucall import buffers
from npucall.compute import blocks, evaluate, pieces
from npucall.compute.blocks import _SummedWork
from npucall.compute.helpers import Helpers
from npucall.compute.work import Work
from npucall.declare.call import Call
from npucall.declare.over import Elementwise
from npucall.declare.prepare import prepare
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.products import product_of
from npucall.tensors import TensorSpec
from npucall.wire.calls import PreparedCalls, encode
from npucall_client.conformance.cases.calls import call_of
from npucall_client.conformance.cases.select import Selection, select
from npucall_client.conformance.statements import statements
from npucall_server.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer

PRODUCT = product_of("Ascend910B1")
STATEMENTS = {statement.title: statement for statement in statements()}
POISONS = (0xA5, 0x5A)
NEW = np.empty


def calls(title: str) -> Iterator[tuple[Prepared, dict[str, Buffer]]]:
    """A sample of an operator's calls of every kind that the rules let through."""
    prepared = PreparedCalls(CATALOGUE, PRODUCT, "documented")
    for case in select([STATEMENTS[title]], Selection(quick=True)):
        if case.block in ("large", "paths", "listing"):  # as the others, larger; no call
            continue
        call = call_of(case, 0, PRODUCT.soc)
        data = encode(call.operator, call.variant, call.arguments, tuple(call.storages))
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


def without_nan(call: Prepared, answer: Any) -> Any:
    """Every NaN of an answer made the same one."""
    if isinstance(answer, str):
        return answer
    dtypes = [spec.dtype.numpy for spec in call.outputs.values()]
    arrays = [np.frombuffer(data, d).copy() for data, d in zip(answer, dtypes, strict=True)]
    for array in arrays:
        with np.errstate(invalid="ignore"):  # of NaNs that signal
            nan = array != array  # noqa: PLR0124  # what NaN is, in every dtype
        if nan.any():
            array[nan] = np.nan
    return [array.tobytes() for array in arrays]


def poison(byte: int) -> Any:
    """``np.empty`` whose memory held something else."""

    def new(*args: Any, **kwargs: Any) -> Any:
        array = NEW(*args, **kwargs)
        array.view(np.uint8).fill(byte) if array.ndim else array.fill(byte)
        return array

    return new


@pytest.mark.parametrize("title", every_twelfth(STATEMENTS))
def test_what_was_in_new_memory_does_not_show(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for call, storages in calls(title):
        expected = answer_of(call, storages)
        for byte in POISONS:
            with monkeypatch.context() as patch:
                patch.setattr(np, "empty", poison(byte))
                patch.setattr(buffers, "PATTERN", byte)
                assert answer_of(call, storages) == expected
        seen += 1
    assert seen > 20


@pytest.mark.parametrize(
    ("edges", "title"),
    [
        pytest.param(edges, title, marks=TURNS[min((2 * row + place) % 6, 2)])
        for row, edges in enumerate([1, 37, 64])
        for place, title in enumerate(STATEMENTS)
    ],
)
def test_where_blocks_are_cut_does_not_show(
    title: str, edges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are not tried, since their edges are the same on every path.

    The sign and payload of NaN are not compared, since NumPy's loops choose them by the element's
    position in the loop and in memory.
    """
    helpers = Helpers(2)
    for call, storages in calls(title):
        call.followed.clear()
        whole = answer_of(call, storages)
        call.followed.clear()
        with monkeypatch.context() as patched:
            patched.setattr(Work, "block", edges)
            patched.setattr(blocks, "_WORTH_IT", 1)
            cut = answer_of(call, storages, helpers=helpers)
        assert without_nan(call, cut) == without_nan(call, whole)
    helpers.close()


@pytest.mark.parametrize("title", every_twelfth(STATEMENTS, first=1))
def test_what_was_in_given_memory_does_not_show_nor_how_blocks_are_shared(
    title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for work in Work, _SummedWork:
        monkeypatch.setattr(work, "block", 37)
    monkeypatch.setattr(blocks, "_WORTH_IT", 1)
    helpers = Helpers(2)
    for call, storages in calls(title):
        expected = answer_of(call, storages)
        for byte in POISONS:
            targets = {n: bytearray([byte]) * s.storage_bytes for n, s in call.outputs.items()}
            assert answer_of(call, storages, targets=targets, helpers=helpers) == expected
    helpers.close()


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
                ready = prepare(asked, PRODUCT, CATALOGUE)
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


@pytest.mark.parametrize("title", every_twelfth(ELEMENTWISE, first=2))
def test_what_was_in_memory_does_not_show_in_what_is_computed_chunk_by_chunk(
    title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever inputs are single numbers, and whether the largest of them is read."""
    seen = 0
    some = [call for call in calls(title) if call[0].operator.formula and not call[0].done]
    in_pieces = [call for call in some if pieces.takes_pieces(call[0])]  # sums never are
    for sample in (in_pieces or some)[:12]:
        for call, storages in with_small_inputs(*sample):
            expected = answer_of(call, storages)
            for byte in POISONS:
                with monkeypatch.context() as patch:
                    patch.setattr(np, "empty", poison(byte))
                    patch.setattr(buffers, "PATTERN", byte)
                    assert answer_of(call, storages) == expected
                    if pieces.takes_pieces(call):
                        seen += 1
                        assert answer_in_chunks(call, storages, 24) == expected
    assert seen > 10 or not in_pieces
