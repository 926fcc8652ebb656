"""Results have the same bits whatever way a call takes: one test for each way and kind of call."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import npucall_client
from npucall_client.testing import running_server

from . import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from npucall.dtypes import AnyArray
    from npucall_client import Client, SharedMemory
    from npucall_client.testing import ServerProcess

NEVER = 2**62
"""More bytes than any call has: nothing travels in chunks."""
ROOM = 64 * 2**20
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


@dataclass
class Case:
    """A call."""

    operator: str
    inputs: Mapping[str, AnyArray]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, AnyArray] = field(default_factory=dict)
    """Those that the call gives, for their dtype."""


@dataclass
class Servers:
    """Where calls go."""

    parallel: ServerProcess
    """On all cores of the machine."""
    single: ServerProcess
    """On one core: one block is computed at a time."""


def numbers(shape: Any, dtype: Any, seed: int = 1) -> AnyArray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def elementwise(dtype: Any, rows: int, columns: int) -> Case:
    """Broadcast, one input transposed, one that is not read."""
    inputs = {
        "grad_output": numbers((rows, 1), dtype),
        "self": numbers((1, columns), dtype),
        "target": numbers((columns, rows), dtype, 2).T,
    }
    return Case("aclnnKlDivBackward", inputs, {"reduction": 3})


def by_rows(dtype: Any, rows: int, columns: int) -> Case:
    inputs = {
        n: numbers((rows, columns), dtype, i) for i, n in enumerate(("grad_output", "output"))
    }
    return Case("aclnnSoftmaxBackward", inputs, {"dim": 1})


def with_sums(dtype: Any, rows: int, columns: int) -> Case:
    """Two outputs; one is a sum over blocks."""
    inputs = {n: numbers((rows, columns), dtype, i) for i, n in enumerate(("grad_output", "self"))}
    return Case("aclnnPreluBackward", {**inputs, "weight": numbers(columns, dtype, 5)})


def with_labels(dtype: Any, rows: int, columns: int) -> Case:
    """Labels are integers, which the formula takes as they are."""
    inputs = {
        "grad_output": numbers(rows, dtype),
        "self": numbers((rows, columns), dtype),
        "target": np.random.default_rng(3).integers(0, columns, rows),
        "weight": numbers(columns, dtype, 4),
        "total_weight": np.ones(1, dtype),
    }
    return Case("aclnnNLLLossBackward", inputs, {"reduction": 0, "ignore_index": 1})


def halved(dtype: Any, rows: int, columns: int) -> Case:
    inputs = {
        "grad_out": numbers((rows, columns), dtype),
        "self": numbers((2 * rows, columns), dtype),
    }
    return Case("aclnnGluBackward", inputs, {"dim": 0})


KINDS = [elementwise, by_rows, with_sums, with_labels, halved]
SIZES = {"one number": (1, 1), "one block": (7, 33), "many blocks": (1000, 701)}
CASES = [
    pytest.param(
        kind,
        dtype,
        *size,
        id=f"{kind.__name__}-{np.dtype(dtype).name}-{name}",
        marks=pytest.mark.long if (place - row - 2) % 3 else (),  # each dtype with one size
    )
    for kind in KINDS
    for row, dtype in enumerate(DTYPES)
    for place, (name, size) in enumerate(SIZES.items())
]


def memory_of(case: Case) -> dict[str, AnyArray]:
    """New memory for the outputs that a call gives."""
    return {name: np.full_like(array, 77) for name, array in case.outputs.items()}


def run(client: Client, case: Case, **outputs: AnyArray) -> dict[str, AnyArray]:
    calling = client.options(outputs={**memory_of(case), **outputs})
    answer = calling.execute(case.operator, **case.inputs, **case.attributes)
    return dict(answer.outputs)


def submitted(client: Client, case: Case, **outputs: AnyArray) -> dict[str, AnyArray]:
    outputs = {**memory_of(case), **outputs}
    with client.pipeline() as pipeline:
        call = pipeline.submit(case.operator, outputs=outputs, **case.inputs, **case.attributes)
        return dict(call.answer(wire.PATIENCE).outputs)


def copied(memory: SharedMemory, array: AnyArray) -> AnyArray:
    """The same elements in the same order of memory."""
    return memory.array(array) if array.flags.c_contiguous else memory.array(array.T).T


@contextmanager
def shared(client: Client, case: Case) -> Iterator[tuple[SharedMemory, Case]]:
    """The same call with its inputs in shared memory; that is where they must have been read."""
    with client.shared(ROOM) as memory:
        inputs = {name: copied(memory, array) for name, array in case.inputs.items()}
        yield memory, replace(case, inputs=inputs)
        assert memory.shared


@cache
def outputs_of(kind: Any, dtype: Any, rows: int, columns: int) -> dict[str, AnyArray]:
    """Of ``local:``."""
    return expected(kind(dtype, rows, columns))


def expected(case: Case) -> dict[str, AnyArray]:
    with npucall_client.connect("local:") as client:
        return run(client, case)


def by_unary(servers: Servers, case: Case, _: Any) -> dict[str, AnyArray]:
    with npucall_client.connect(servers.parallel.target, stream_from=NEVER) as client:
        return run(client, case)


def on_one_core(servers: Servers, case: Case, _: Any) -> dict[str, AnyArray]:
    with npucall_client.connect(servers.single.target, stream_from=NEVER) as client:
        return run(client, case)


def in_chunks(servers: Servers, case: Case, _: Any) -> dict[str, AnyArray]:
    with npucall_client.connect(servers.parallel.target, stream_from=0) as client:
        return run(client, case)


def by_pipeline(servers: Servers, case: Case, _: Any) -> dict[str, AnyArray]:
    with npucall_client.connect(servers.parallel.target) as client:
        return submitted(client, case)


def from_shared_memory(servers: Servers, case: Case, _: Any) -> dict[str, AnyArray]:
    with (
        npucall_client.connect(servers.parallel.target) as client,
        shared(client, case) as (_, there),
    ):
        return run(client, there)


def in_place(servers: Servers, case: Case, like: Any) -> dict[str, AnyArray]:
    with (
        npucall_client.connect(servers.parallel.target) as client,
        shared(client, case) as (memory, there),
    ):
        return run(client, there, **full(memory, like))


def in_place_on_one_core(servers: Servers, case: Case, like: Any) -> dict[str, AnyArray]:
    with (
        npucall_client.connect(servers.single.target) as client,
        shared(client, case) as (memory, there),
    ):
        return run(client, there, **full(memory, like))


def to_shared_memory(servers: Servers, case: Case, like: Any) -> dict[str, AnyArray]:
    with (
        npucall_client.connect(servers.parallel.target, stream_from=NEVER) as client,
        client.shared(ROOM) as memory,
    ):
        return run(client, case, **full(memory, like))


def by_pipeline_in_place(servers: Servers, case: Case, like: Any) -> dict[str, AnyArray]:
    with (
        npucall_client.connect(servers.parallel.target) as client,
        shared(client, case) as (memory, there),
    ):
        return submitted(client, there, **full(memory, like))


def over_forgotten_memory(servers: Servers, case: Case, like: Any) -> dict[str, AnyArray]:
    """The server forgets the memory; the client does not know that yet."""
    with (
        npucall_client.connect(servers.parallel.target) as client,
        client.shared(ROOM) as memory,
        npucall_client.connect(servers.single.target) as other,
    ):
        there = replace(case, inputs={n: copied(memory, a) for n, a in case.inputs.items()})
        # To another server its id means nothing.
        other._transport._memories.regions = client._transport._memories.regions
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            outputs = run(other, there, **full(memory, like))
        assert memory.shared == (not any(array.size for array in case.inputs.values()))
        return outputs


def full(memory: SharedMemory, like: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Outputs in shared memory, of something that no output is."""
    outputs = {name: memory.empty(array.shape, array.dtype) for name, array in like.items()}
    for array in outputs.values():
        array[...] = 77
    return outputs


PATHS: list[Callable[[Servers, Case, Any], dict[str, AnyArray]]] = [
    by_unary,
    on_one_core,
    in_chunks,
    by_pipeline,
]
SHARED_PATHS = [
    from_shared_memory,
    to_shared_memory,
    in_place,
    in_place_on_one_core,
    by_pipeline_in_place,
    over_forgotten_memory,
]
if sys.platform == "linux":
    PATHS += SHARED_PATHS


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("sockets")
    with ExitStack() as stack:
        parallel = stack.enter_context(running_server(*sharing(folder / "parallel")))
        with one_core():
            single = stack.enter_context(running_server(*sharing(folder / "single")))
        yield Servers(parallel, single)


def sharing(path: Path) -> list[str]:
    return [f"--shared-memory={path}"] if sys.platform == "linux" else []


@contextmanager
def one_core() -> Iterator[None]:
    """What is started meanwhile has one core, where the platform lets us say so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def bits(outputs: Mapping[str, AnyArray]) -> dict[str, tuple[Any, ...]]:
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in outputs.items()}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
@pytest.mark.parametrize(("kind", "dtype", "rows", "columns"), CASES)
def test_results_are_those_of_this_process_bit_by_bit(
    servers: Servers, path: Any, kind: Any, dtype: Any, rows: int, columns: int
) -> None:
    like = outputs_of(kind, dtype, rows, columns)
    assert bits(path(servers, kind(dtype, rows, columns), like)) == bits(like)


def test_an_unread_input_that_alone_reaches_the_output_leaves_nothing_unwritten(
    servers: Servers,
) -> None:
    """In chunks, of which those of ``self`` are read by nobody."""
    one, unread = np.full((1, 1), 2, np.float32), numbers((1024, 1024), np.float32)
    case = Case("aclnnKlDivBackward", {"grad_output": one, "self": unread, "target": one})
    with npucall_client.connect(servers.parallel.target, stream_from=0, send_unread=True) as client:
        for _ in range(5):
            run(client, elementwise(np.float32, 1024, 1024))  # leaves memory behind
            assert bits(run(client, case)) == bits(expected(case))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_results_of_any_shape_are_those_of_this_process_bit_by_bit(
    servers: Servers, path: Any, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from([elementwise, by_rows, with_sums, halved]))
    sizes = st.integers(0, 40) | st.integers(200, 700)
    case = kind(data.draw(st.sampled_from(DTYPES)), data.draw(sizes), data.draw(sizes))
    like = expected(case)
    assert bits(path(servers, case, like)) == bits(like)
