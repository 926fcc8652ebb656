"""Outputs that come while inputs are still sent have the bits of ``local:``, for every operator."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.more import parts
from tests.operators.defects import table_of

import npucall_client
from npucall.compute import pieces
from npucall.declare import Operator
from npucall.declare.call import Call
from npucall.declare.domain import Elementwise
from npucall.declare.prepare import prepare
from npucall.dtypes import BY_NUMPY, FLOAT, AnyArray
from npucall.errors import NpucallError
from npucall.exchange import ReplyFrame, Resolved
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.wire.frames import split_response_frame
from npucall_client import Client
from npucall_client.sending import large_call
from npucall_conformance.cases import made_call
from npucall_conformance.cases.case import Maker

from . import wire

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

ELEMENTS = 2**18 * 5 // 2 + 7
"""Of which any dtype has more bytes than stand in a reply, and no whole number of chunks."""
CHUNK_BYTES = 64 * 2**10


def attributes_of(operator: Operator[..., Any]) -> dict[str, Any]:
    """The first ones of its statement."""
    return Maker(table_of(operator).statement, "early").combinations[0]


def is_computed_as_it_comes(operator: Operator[..., Any]) -> bool:
    """Whether a server on ``cpu`` may answer while a call of equal shapes comes."""
    names = [parameter.name for parameter in operator.inputs]
    specs = {name: TensorSpec(FLOAT, (64, 128)) for name in names}
    attributes = made_call.attributes_of(table_of(operator).statement, attributes_of(operator))
    try:
        call = prepare(Call(operator, {**specs, **attributes}, tuple(names)), A2, CATALOGUE)
        return pieces.takes_pieces(call)
    except NpucallError:
        return False


OPERATORS = [
    operator
    for operator in CATALOGUE
    if isinstance(operator.over, Elementwise) and is_computed_as_it_comes(operator)
]
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)
CASES = [
    (operator, dtype)
    for dtype in DTYPES
    for operator in OPERATORS
    if BY_NUMPY[np.dtype(dtype)] in operator.dtypes_on(A2)
]
"""In an order in which every third one is of almost each operator, and of each dtype alike."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        wire.server_here(chunk_bytes=CHUNK_BYTES) as server,
        npucall_client.connect(server.address, stream_from=0) as client,
    ):
        yield client


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Counter[type]:
    """How many frames of each kind have come."""
    found: Counter[type] = Counter()

    def split(message: bytes) -> Any:
        call_id, frame = split_response_frame(message)
        found[type(frame)] += 1
        return call_id, frame

    monkeypatch.setattr(large_call, "split_response_frame", split)
    return found


@parts(few=slice(None, None, 14), more=slice(1, None, 3))
def test_outputs_that_came_early_are_those_of_this_process_bit_by_bit(
    client: Client, frames: Counter[type], part: slice
) -> None:
    assert len(OPERATORS) >= 25
    wrong = []
    for operator, dtype in CASES[part]:
        frames.clear()
        found, expected = early_and_here(client, operator, dtype)
        early = (frames[Resolved], frames[ReplyFrame]) == (1, 1)
        if not early or found.tobytes() != expected.tobytes():
            wrong.append((operator.title, dtype, early))
    assert wrong == []


def early_and_here(
    client: Client, operator: Operator[..., Any], dtype: Any
) -> tuple[AnyArray, AnyArray]:
    """What the server answered into memory of the caller's, and what this process computes."""
    chance = np.random.default_rng(5)
    arguments = attributes_of(operator) | {
        parameter.name: chance.uniform(0.05, 0.95, ELEMENTS).astype(dtype)
        for parameter in operator.inputs
    }
    with npucall_client.connect("local:") as local:
        expected = local.options(variant=operator.variant).run(operator.name, **arguments)
    target = np.full_like(expected, 77)
    (name,) = (parameter.name for parameter in operator.outputs)
    there = client.options(variant=operator.variant, outputs={name: target})
    assert there.run(operator.name, **arguments) is target
    return target, expected
