"""Where the tensors of a call lie: no two share bytes, and what is sent lies together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npucall.declare.declaration import Operator
from npucall.dtypes import FLOAT, INT8
from npucall.tensors import TensorSpec
from npucall_server.devices.base import Step
from npucall_server.devices.program_map import program_map_of

REFERENCE = Operator("aclnnX", "", (), {}, {}, (), None, None, "", None)
HEADER_ALONE = Operator("aclnnX", "", (), {}, {}, (), None, None, "", None, reference=False)


@dataclass(frozen=True, eq=False)
class Call:
    """What a map needs of a prepared call."""

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


def fits(_: object) -> bool:
    """No call here has handles."""
    return False


@given(calls())
def test_every_tensor_has_a_place_and_what_travels_lies_together(call: Call) -> None:
    found = program_map_of([Step(cast("Any", call), {})], taken, fits)
    (step,) = found.steps
    sizes = {n: spec.storage_bytes for n, spec in {**call.inputs, **call.outputs}.items()}
    with_bytes = {name for name, size in sizes.items() if size}
    unread = with_bytes & {*call.inputs} - {*call.stored}
    # Each tensor with bytes has a place of its own.
    assert set(step.places) == with_bytes - unread
    end = 0
    for name, start in sorted(step.places.items(), key=itemgetter(1)):
        assert start == end
        assert start % 512 == 0
        end += taken(sizes[name])
    assert found.size == found.staged == end
    # Outputs that begin as anything but zeros are sent too; what is sent comes before all else.
    begun = {name for name, left in call.unwritten.items() if left}
    sent, outputs = with_bytes & {*call.stored, *begun}, with_bytes & {*call.outputs}
    assert {each.name for each in found.sent} == sent
    assert {each.place for each in found.sent} == {*sorted(step.places.values())[: len(sent)]}
    assert {each.name for each in found.answered} == outputs
    assert all(each.start == step.places[each.name] for each in found.answered)
    # Inputs that nobody reads lie in as many zeros as the longest has.
    assert set(step.unread) == unread
    assert found.zeros == max((sizes[name] for name in unread), default=0)
    # Outputs that are neither sent nor certainly written are cleared.
    unproven = {*(call.unwritten if call.operator.reference else call.outputs)}
    cleared = with_bytes & unproven - sent
    assert {*step.cleared} == {(step.places[name], sizes[name]) for name in cleared}


def test_outputs_come_in_the_order_of_the_operator() -> None:
    spec = TensorSpec(FLOAT, (2,))
    call = Call({}, {"first": spec, "second": spec}, ("second",))
    answered = program_map_of([Step(cast("Any", call), {})], taken, fits).answered
    assert [each.name for each in answered] == ["first", "second"]
