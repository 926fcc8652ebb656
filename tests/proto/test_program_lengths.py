"""Programs as bytes: steps of many lengths, at whose edges a header is longer or shorter."""

from __future__ import annotations

import pytest

from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.programs import StepRequest, join_program

DATA = b"\x01\x02\x03\x04"


@pytest.mark.parametrize("edge", [128, 16_384])
def test_a_program_with_steps_of_any_length_is_what_the_generated_class_reads(edge: int) -> None:
    """A step of so many bytes takes one more for its length; padding depends on what is before."""
    for length in range(edge - 40, edge):
        for before in range(16):
            calls = [pb.Call(operator="a" * before), pb.Call(operator="b" * length)]
            first, second = (call.SerializeToString() for call in calls)
            steps = [StepRequest(first, [], {}), StepRequest(second, [DATA], {})]
            read = pb.ExecuteProgramRequest.FromString(join_program(steps))
            assert [step.call for step in read.steps] == calls
            assert [storage.data for step in read.steps for storage in step.storage] == [DATA]
