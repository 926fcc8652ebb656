"""Where tensors lie: no two share bytes, and each copy covers what it has to and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npucall.declare.declaration import Operator
from npucall.dtypes import FLOAT, INT8
from npucall.tensors import TensorSpec
from npucall_server.devices.memory_map import MemoryMap, Span, memory_map_of

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCE = Operator("aclnnX", "", (), {}, {}, (), None, None, "", None)
HEADER_ALONE = Operator("aclnnX", "", (), {}, {}, (), None, None, "", None, reference=False)


@dataclass(frozen=True, eq=False)
class Call:
    """What a memory map needs of a prepared call."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    stored: tuple[str, ...]
    operator: Operator[..., object] = REFERENCE
    unwritten: Mapping[str, float] = field(default_factory=dict)
    followed: dict[object, object] = field(default_factory=dict)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    lengths = st.one_of(st.integers(0, 100), st.integers(0, 10_000))
    specs = lengths.map(lambda length: TensorSpec(INT8, (length,)))
    inputs = {f"in{i}": spec for i, spec in enumerate(draw(st.lists(specs, max_size=5)))}
    outputs = {f"out{i}": spec for i, spec in enumerate(draw(st.lists(specs, max_size=4)))}
    names = [*inputs, *outputs]
    stored = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    operator = draw(st.sampled_from([REFERENCE, HEADER_ALONE]))
    left = {name: draw(st.sampled_from([0.0, -np.inf])) for name in outputs if draw(st.booleans())}
    return Call(inputs, outputs, tuple(stored), operator, left)


def going_in(call: Call) -> set[str]:
    """What the call sends, and outputs that begin as anything but zeros."""
    return with_bytes(
        call, {*call.stored, *(name for name, left in call.unwritten.items() if left)}
    )


def taken(length: int) -> int:
    """What a tensor takes on a device that keeps 512 bytes between tensors free."""
    return -(-length // 512) * 512 + 512


def specs_of(call: Call) -> dict[str, TensorSpec]:
    return {**call.inputs, **call.outputs}


def with_bytes(call: Call, names: object) -> set[str]:
    return {name for name in names if specs_of(call)[name].storage_bytes}


def spans_of(call: Call, memory_map: MemoryMap) -> list[Span]:
    specs = specs_of(call)
    spans = (Span(n, start, specs[n].storage_bytes) for n, start in memory_map.starts.items())
    return sorted(spans, key=lambda span: span.start)


def inside(spans: list[Span], reach: tuple[int, int]) -> set[str]:
    """The tensors of which a copy takes any byte."""
    first, length = reach
    end = first + length
    return {p.name for p in spans if p.start < end and first < p.start + p.length}


@given(calls())
def test_every_tensor_with_bytes_has_a_place_of_its_own(call: Call) -> None:
    memory_map = memory_map_of(call, taken)
    spans = spans_of(call, memory_map)
    unread = with_bytes(call, call.inputs) - set(call.stored)
    assert set(memory_map.starts) == with_bytes(call, specs_of(call)) - unread
    end = 0
    for span in spans:
        assert span.start == end
        assert span.start % 512 == 0
        end += taken(span.length)
    assert memory_map.size == end


@given(calls())
def test_one_copy_takes_all_that_is_sent_and_nothing_else(call: Call) -> None:
    memory_map = memory_map_of(call, taken)
    sent = going_in(call)
    assert {span.name for span in memory_map.sent} == sent
    assert inside(spans_of(call, memory_map), memory_map.copied_in) == sent
    assert_ends(memory_map.sent, memory_map.copied_in)


@given(calls())
def test_one_copy_takes_all_outputs_and_nothing_else(call: Call) -> None:
    memory_map = memory_map_of(call, taken)
    outputs = with_bytes(call, call.outputs)
    assert {span.name for span in memory_map.outputs} == outputs
    assert inside(spans_of(call, memory_map), memory_map.copied_out) == outputs
    assert_ends(memory_map.outputs, memory_map.copied_out)


@given(calls())
def test_spans_say_where_their_tensors_are(call: Call) -> None:
    memory_map = memory_map_of(call, taken)
    known = {span.name: span for span in spans_of(call, memory_map)}
    for span in (*memory_map.sent, *memory_map.outputs, *memory_map.cleared):
        assert span == known[span.name]


@given(calls())
def test_inputs_that_nobody_reads_lie_in_as_many_zeros_as_the_longest_has(call: Call) -> None:
    memory_map = memory_map_of(call, taken)
    assert set(memory_map.unread) == with_bytes(call, call.inputs) - set(call.stored)
    lengths = [call.inputs[name].storage_bytes for name in memory_map.unread]
    assert memory_map.zeros == max(lengths, default=0)


@given(calls())
def test_outputs_that_are_neither_sent_nor_certainly_written_are_cleared(call: Call) -> None:
    memory_map = memory_map_of(call, taken)
    unproven = call.unwritten if call.operator.reference else call.outputs
    assert {span.name for span in memory_map.cleared} == with_bytes(call, unproven) - going_in(call)


def test_outputs_come_in_the_order_of_the_operator() -> None:
    spec = TensorSpec(FLOAT, (2,))
    call = Call({}, {"first": spec, "second": spec}, ("second",))
    assert [span.name for span in memory_map_of(call, taken).outputs] == ["first", "second"]


def assert_ends(spans: tuple[Span, ...], reach: tuple[int, int]) -> None:
    """A copy starts with its first span and ends with its last."""
    if not spans:
        assert reach == (0, 0)
        return
    starts, ends = zip(*((p.start, p.start + p.length) for p in spans), strict=True)
    assert reach == (min(starts), max(ends) - min(starts))
