"""Results have the same bits whatever way a call takes: one test for each way, with all calls."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.conformance.forward_examples import EXAMPLES
from tests.npu import running_npu_server
from tests.operators.calls import drawn
from tests.operators.defects import table_of

import npucall_client
from npucall.dtypes import FLOATS, AnyArray
from npucall.operators import CATALOGUE
from npucall_client import Client, SharedMemory
from npucall_client.testing import running_server
from npucall_conformance.cases.arrangements import TRANSPOSED
from npucall_conformance.cases.case import Case as Stated
from npucall_conformance.cases.case import Maker
from npucall_conformance.stating.parts import Setup

from . import wire

Arrays = Mapping[str, AnyArray]

NEVER = 2**62
"""More bytes than any call has: nothing travels in chunks."""
ROOM = 12 * 2**20


@dataclass
class Case:
    """A call."""

    operator: str
    inputs: Arrays
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Arrays = field(default_factory=dict)
    """Those that the call gives, for their dtype."""


OPERATORS = ("KlDivBackward", "SoftmaxBackward", "PreluBackward", "NLLLossBackward", "GluBackward")
"""Elementwise with an input that is not read; by rows; two outputs, one of them a sum over blocks;
labels, which the formula takes as they are; halves."""


def stated() -> Iterator[Stated]:
    """Each statement's shapes, without elements too, of one block and of many, in each dtype."""
    for name in OPERATORS:
        statement = table_of(CATALOGUE.find(f"aclnn{name}")).statement
        make, last = Maker(statement, "paths"), statement.inputs[-1].name
        bases = (*statement.base_shapes, *statement.empty_shapes)
        setups = [*(Setup(base=base) for base in bases), *statement.broadcast, *statement.large]
        for setup, dtype in product(setups, FLOATS):
            if not setup.products and (not setup.only or dtype in setup.only):
                yield make.case(dtype, setup, layouts={last: TRANSPOSED})


def quick() -> Iterator[Case]:
    return (Case(case.statement.operator, *drawn(case)) for case in islice(stated(), 3, None, 23))


def thorough() -> Iterator[Case]:
    return (Case(case.statement.operator, *drawn(case)) for case in islice(stated(), 0, None, 3))


class Clients:
    """Clients of a few servers, each of which is opened once."""

    def __init__(self, **targets: str) -> None:
        self.targets = targets
        self._opened: dict[Any, Client] = {}
        self._stack = ExitStack()

    def of(self, server: str = "parallel", **settings: Any) -> Client:
        key = (server, *settings.items())
        if key not in self._opened:
            client = npucall_client.connect(self.targets[server], **settings)
            self._opened[key] = self._stack.enter_context(client)
        return self._opened[key]

    def close(self) -> None:
        self._stack.close()


def memory_of(case: Case) -> dict[str, AnyArray]:
    """New memory for the outputs that a call gives."""
    return {name: np.full_like(array, 77) for name, array in case.outputs.items()}


def run(client: Client, case: Case, **outputs: AnyArray) -> Arrays:
    calling = client.options(outputs={**memory_of(case), **outputs})
    return calling.execute(case.operator, **case.inputs, **case.attributes).outputs


def submitted(client: Client, case: Case, **outputs: AnyArray) -> Arrays:
    outputs = {**memory_of(case), **outputs}
    with client.pipeline() as pipeline:
        call = pipeline.submit(case.operator, outputs=outputs, **case.inputs, **case.attributes)
        return call.answer(wire.PATIENCE).outputs


def copied(memory: SharedMemory, array: AnyArray) -> AnyArray:
    """The same elements in the same order of memory."""
    return memory.array(array) if array.flags.c_contiguous else memory.array(array.T).T


def in_memory(memory: SharedMemory, case: Case) -> Case:
    return replace(case, inputs={name: copied(memory, each) for name, each in case.inputs.items()})


def full(memory: SharedMemory, like: Arrays) -> dict[str, AnyArray]:
    """Outputs in shared memory, of something that no output is."""
    outputs = {name: memory.empty(array.shape, array.dtype) for name, array in like.items()}
    for array in outputs.values():
        array[...] = 77
    return outputs


def copies(outputs: Arrays) -> Arrays:
    return {name: array.copy() for name, array in outputs.items()}


def from_shared_memory(client: Client, case: Case, _: Arrays) -> Arrays:
    with client.shared(ROOM) as memory:
        outputs = run(client, in_memory(memory, case))
        assert memory.shared  # that is where inputs were read
        return outputs


def to_shared_memory(client: Client, case: Case, like: Arrays) -> Arrays:
    with client.shared(ROOM) as memory:
        return copies(run(client, case, **full(memory, like)))


def in_place(client: Client, case: Case, like: Arrays, by: Any = run) -> Arrays:
    with client.shared(ROOM) as memory:
        outputs = by(client, in_memory(memory, case), **full(memory, like))
        assert memory.shared
        return copies(outputs)


def in_place_by_pipeline(client: Client, case: Case, like: Arrays) -> Arrays:
    return in_place(client, case, like, submitted)


def in_a_session(client: Client, case: Case, _: Arrays) -> Arrays:
    with client.session() as session:
        held = {name: session.put(array) for name, array in case.inputs.items()}
        value = session.run(case.operator, **held, **case.attributes, outputs=memory_of(case))
        return arrays_of(case, value)


def in_a_program(client: Client, case: Case, _: Arrays) -> Arrays:
    """Twice, so that its memory is used again."""
    arguments = {**case.inputs, **case.attributes}
    with client.session() as session:
        with session.program() as program:
            program.run(case.operator, **arguments, outputs=memory_of(case))
            value = program.run(case.operator, **arguments, outputs=memory_of(case))
        return arrays_of(case, value)


def arrays_of(case: Case, value: Any) -> Arrays:
    """What a session answers, by output."""
    names = [output.name for output in CATALOGUE.find(case.operator).outputs]
    values = value if len(names) > 1 else (value,)
    return {
        name: each if isinstance(each, np.ndarray) else each.numpy()
        for name, each in zip(names, values, strict=True)
    }


class Way(NamedTuple):
    take: Callable[[Client, Case, Arrays], Arrays]
    server: str = "parallel"
    stream_from: int = NEVER
    linux: bool = False
    """Only Linux shares memory."""

    def __call__(self, clients: Clients, case: Case, like: Arrays) -> Arrays:
        return self.take(clients.of(self.server, stream_from=self.stream_from), case, like)


def over_forgotten_memory(clients: Clients, case: Case, like: Arrays) -> Arrays:
    """To the server that is called the id of the memory means nothing; its client trusts in it."""
    owner, other = clients.of("owner"), npucall_client.connect(clients.targets["other"])
    with owner.shared(ROOM) as memory, other, warnings.catch_warnings():
        other._transport.link.memories.regions = owner._transport.link.memories.regions
        warnings.simplefilter("ignore", RuntimeWarning)
        outputs = run(other, in_memory(memory, case), **full(memory, like))
        assert memory.shared == (not any(array.size for array in case.inputs.values()))
        return copies(outputs)


def plain(client: Client, case: Case, _: Arrays) -> Arrays:
    return run(client, case)


def by_pipeline(client: Client, case: Case, _: Arrays) -> Arrays:
    return submitted(client, case)


WAYS: dict[str, Any] = {
    "unary": Way(plain),
    "on one core": Way(plain, "single"),
    "in chunks": Way(plain, stream_from=0),
    "in short chunks": Way(plain, "short chunks", stream_from=0),
    "by pipeline": Way(by_pipeline),
    "from shared memory": Way(from_shared_memory, linux=True),
    "to shared memory": Way(to_shared_memory, linux=True),
    "in place": Way(in_place, linux=True),
    "in place on one core": Way(in_place, "single", linux=True),
    "in place by pipeline": Way(in_place_by_pipeline, linux=True),
    "over forgotten memory": over_forgotten_memory,
    "in a session": Way(in_a_session),
    "in a program": Way(in_a_program),
}
if sys.platform != "linux":
    WAYS = {name: way for name, way in WAYS.items() if isinstance(way, Way) and not way.linux}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    folder = tmp_path_factory.mktemp("sockets")
    with ExitStack() as stack:
        parallel = stack.enter_context(running_server(*sharing(folder / "parallel"))).target
        with one_core():
            flags = *sharing(folder / "single"), "--chunk-bytes=64KiB"
            single = stack.enter_context(running_server(*flags)).target
        targets = {"parallel": parallel, "owner": parallel, "single": single, "other": single}
        clients = Clients(**targets, **{"short chunks": single})
        stack.callback(clients.close)
        yield clients


@pytest.fixture(scope="module")
def clients_of_an_npu(
    clients: Clients, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clients]:
    flags = *sharing(tmp_path_factory.mktemp("sockets") / "npu"), "--chunk-bytes=64KiB"
    with running_npu_server(*flags) as server:
        there = dict.fromkeys(clients.targets, server.target)
        found = Clients(**{**there, "owner": clients.targets["owner"]})
        yield found
        found.close()


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


def bits(outputs: Arrays) -> dict[str, tuple[Any, ...]]:
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in outputs.items()}


def expected(case: Case) -> Arrays:
    with npucall_client.connect("local:") as client:
        return run(client, case)


@lru_cache(maxsize=1)
def answered(cases: Callable[[], Iterator[Case]]) -> list[tuple[Case, Arrays]]:
    return [(case, expected(case)) for case in cases()]


@pytest.mark.parametrize("cases", [quick, pytest.param(thorough, marks=pytest.mark.long)])
@pytest.mark.parametrize("way", WAYS)
def test_results_are_those_of_this_process_bit_by_bit(
    clients: Clients, way: str, cases: Callable[[], Iterator[Case]]
) -> None:
    wrong = []
    for case, like in answered(cases):
        if bits(WAYS[way](clients, case, like)) != bits(like):
            shapes = {name: (each.dtype, each.shape) for name, each in case.inputs.items()}
            wrong.append((case.operator, shapes))
    assert wrong == []


def test_an_unread_input_that_alone_reaches_the_output_leaves_nothing_unwritten(
    clients: Clients,
) -> None:
    """In chunks, of which those of ``self`` are read by nobody."""
    one, unread = np.full((1, 1), 2, np.float32), np.ones((1024, 1024), np.float32)
    before = {"grad_output": unread, "self": one, "target": unread}
    case = Case("aclnnKlDivBackward", {"grad_output": one, "self": unread, "target": one})
    client = clients.of(stream_from=0, send_unread=True)
    for _ in range(5):
        run(client, Case("aclnnKlDivBackward", before))  # leaves memory behind
        assert bits(run(client, case)) == bits(expected(case))


@pytest.mark.parametrize("device", ["clients", "clients_of_an_npu"])
@pytest.mark.parametrize("share", [len(WAYS), pytest.param(1, marks=pytest.mark.long)])
def test_worked_examples_are_the_same_on_every_way(
    request: pytest.FixtureRequest, device: str, share: int
) -> None:
    """Of ``share`` examples each way takes one."""
    there, wrong = request.getfixturevalue(device), []
    for number, way in enumerate(WAYS.values()):
        for example in EXAMPLES[number % share :: share]:
            inputs, attributes = example.inputs(), example.arguments()
            for name in inputs:
                del attributes[name]
            case = Case(example.operator_name, inputs, attributes, example.outputs())
            like = expected(case)
            found = way(there, case, like)
            wrong += example.differences(found, example.rounding)
            if bits(found) != bits(like):
                wrong.append(f"{example}: expected {like}, found {found}")
    assert not wrong
