"""Where tensors lie: no two share bytes, and each copy covers what it has to and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from npucall.declare.declaration import Operator
from npucall.dtypes import FLOAT, INT8
from npucall.tensors import TensorSpec
from npucall_server.devices.cann.layout import Layout, Piece, layout_of
from npucall_server.devices.cann.memory import piece_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCE = Operator("aclnnX", "", (), {}, {}, (), None, None, "", None)
HEADER_ALONE = Operator("aclnnX", "", (), {}, {}, (), None, None, "", None, reference=False)


@dataclass(frozen=True, eq=False)
class Call:
    """What a layout needs of a prepared call."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    stored: tuple[str, ...]
    done: bool = False
    operator: Operator[..., object] = REFERENCE


@st.composite
def calls(draw: st.DrawFn) -> Call:
    lengths = st.one_of(st.integers(0, 100), st.integers(0, 10_000))
    specs = lengths.map(lambda length: TensorSpec(INT8, (length,)))
    inputs = {f"in{i}": spec for i, spec in enumerate(draw(st.lists(specs, max_size=5)))}
    outputs = {f"out{i}": spec for i, spec in enumerate(draw(st.lists(specs, max_size=4)))}
    names = [*inputs, *outputs]
    stored = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    operator = draw(st.sampled_from([REFERENCE, HEADER_ALONE]))
    return Call(inputs, outputs, tuple(stored), draw(st.booleans()), operator)


def specs_of(call: Call) -> dict[str, TensorSpec]:
    return {**call.inputs, **call.outputs}


def with_bytes(call: Call, names: object) -> set[str]:
    return {name for name in names if specs_of(call)[name].storage_bytes}


def pieces_of(call: Call, layout: Layout) -> list[Piece]:
    specs = specs_of(call)
    pieces = (Piece(n, start, specs[n].storage_bytes) for n, start in layout.starts.items())
    return sorted(pieces, key=lambda piece: piece.start)


def inside(pieces: list[Piece], reach: tuple[int, int]) -> set[str]:
    """The tensors of which a copy takes any byte."""
    first, length = reach
    end = first + length
    return {p.name for p in pieces if p.start < end and first < p.start + p.length}


@given(calls())
def test_every_tensor_with_bytes_has_a_place_of_its_own(call: Call) -> None:
    layout = layout_of(call)
    pieces = pieces_of(call, layout)
    assert set(layout.starts) == with_bytes(call, specs_of(call))
    end = 0
    for piece in pieces:
        assert piece.start == end
        assert piece.start % 512 == 0
        end += piece_bytes(piece.length)
    assert layout.size == end


@given(calls())
def test_one_copy_takes_all_that_is_sent_and_nothing_else(call: Call) -> None:
    layout = layout_of(call)
    sent = with_bytes(call, call.stored)
    assert {piece.name for piece in layout.sent} == sent
    assert inside(pieces_of(call, layout), layout.copied_in) == sent
    assert_ends(layout.sent, layout.copied_in)


@given(calls())
def test_one_copy_takes_all_outputs_and_nothing_else(call: Call) -> None:
    layout = layout_of(call)
    outputs = with_bytes(call, call.outputs)
    assert {piece.name for piece in layout.outputs} == outputs
    assert inside(pieces_of(call, layout), layout.copied_out) == outputs
    assert_ends(layout.outputs, layout.copied_out)


@given(calls())
def test_pieces_say_where_their_tensors_are(call: Call) -> None:
    layout = layout_of(call)
    known = {piece.name: piece for piece in pieces_of(call, layout)}
    for piece in (*layout.sent, *layout.outputs, *layout.cleared):
        assert piece == known[piece.name]


@given(calls())
def test_what_is_neither_sent_nor_certainly_written_is_cleared(call: Call) -> None:
    layout = layout_of(call)
    proven = call.operator.reference and not call.done
    unsent = with_bytes(call, call.inputs if proven else specs_of(call)) - set(call.stored)
    assert {piece.name for piece in layout.cleared} == unsent


def test_outputs_come_in_the_order_of_the_operator() -> None:
    spec = TensorSpec(FLOAT, (2,))
    call = Call({}, {"first": spec, "second": spec}, ("second",))
    assert [piece.name for piece in layout_of(call).outputs] == ["first", "second"]


def assert_ends(pieces: tuple[Piece, ...], reach: tuple[int, int]) -> None:
    """A copy starts with its first piece and ends with its last."""
    if not pieces:
        assert reach == (0, 0)
        return
    starts, ends = zip(*((p.start, p.start + p.length) for p in pieces), strict=True)
    assert reach == (min(starts), max(ends) - min(starts))
