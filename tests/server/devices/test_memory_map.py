"""Where tensors lie: no two share bytes, and each copy covers what it has to and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npucall.declare.declaration import Operator
from npucall.dtypes import FLOAT, INT8
from npucall.tensors import TensorSpec
from npucall_server.devices.memory_map import Span, memory_map_of

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


def taken(length: int) -> int:
    """What a tensor takes on a device that keeps 512 bytes between tensors free."""
    return -(-length // 512) * 512 + 512


def inside(spans: list[Span], reach: tuple[int, int]) -> set[str]:
    """The tensors of which a copy takes any byte."""
    first, length = reach
    end = first + length
    return {p.name for p in spans if p.start < end and first < p.start + p.length}


@given(calls())
def test_every_tensor_has_a_place_and_each_copy_takes_what_it_should(call: Call) -> None:
    memory_map = memory_map_of(call, taken)
    sizes = {n: spec.storage_bytes for n, spec in {**call.inputs, **call.outputs}.items()}
    with_bytes = {name for name, size in sizes.items() if size}
    unread = with_bytes & {*call.inputs} - {*call.stored}
    # Each tensor with bytes has a place of its own.
    places = (Span(name, start, sizes[name]) for name, start in memory_map.starts.items())
    spans = sorted(places, key=lambda span: span.start)
    assert set(memory_map.starts) == with_bytes - unread
    end = 0
    for span in spans:
        assert span.start == end
        assert span.start % 512 == 0
        end += taken(span.length)
    assert memory_map.size == end
    # Outputs that begin as anything but zeros are sent too.
    begun = {name for name, left in call.unwritten.items() if left}
    sent, outputs = with_bytes & {*call.stored, *begun}, with_bytes & {*call.outputs}
    for copied, reach, expected in (
        (memory_map.sent, memory_map.copied_in, sent),
        (memory_map.outputs, memory_map.copied_out, outputs),
    ):
        assert {span.name for span in copied} == expected == inside(spans, reach)
        assert_ends(copied, reach)
    # Inputs that nobody reads lie in as many zeros as the longest has.
    assert set(memory_map.unread) == unread
    assert memory_map.zeros == max((sizes[name] for name in unread), default=0)
    # Outputs that are neither sent nor certainly written are cleared.
    unproven = {*(call.unwritten if call.operator.reference else call.outputs)}
    assert {span.name for span in memory_map.cleared} == with_bytes & unproven - sent
    assert {*memory_map.sent, *memory_map.outputs, *memory_map.cleared} <= {*spans}


def assert_ends(spans: tuple[Span, ...], reach: tuple[int, int]) -> None:
    """A copy starts with its first span and ends with its last."""
    if not spans:
        assert reach == (0, 0)
        return
    starts, ends = zip(*((p.start, p.start + p.length) for p in spans), strict=True)
    assert reach == (min(starts), max(ends) - min(starts))


def test_outputs_come_in_the_order_of_the_operator() -> None:
    spec = TensorSpec(FLOAT, (2,))
    call = Call({}, {"first": spec, "second": spec}, ("second",))
    assert [span.name for span in memory_map_of(call, taken).outputs] == ["first", "second"]
