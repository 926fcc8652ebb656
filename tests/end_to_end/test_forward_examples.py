"""The worked examples of forward operators on every path, of the CPU device and of an NPU."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.conformance.forward_examples import EXAMPLES, Example
from tests.npu import running_npu_server

import npucall_client
from npucall.operators import CATALOGUE

from .test_every_path import PATHS, Case, Servers, bits, expected, memory_of, servers, sharing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.dtypes import AnyArray

__all__ = ["servers"]


@pytest.fixture(scope="module")
def npu_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("sockets")
    with ExitStack() as stack:
        flags = (sharing(folder / name) for name in ("one", "other"))
        yield Servers(*(stack.enter_context(running_npu_server(*each)) for each in flags))


def in_a_session(servers: Servers, case: Case, _: Any) -> dict[str, AnyArray]:
    with npucall_client.connect(servers.parallel.target) as client, client.session() as session:
        held = {name: session.put(array) for name, array in case.inputs.items()}
        value = session.run(case.operator, **held, **case.attributes, outputs=memory_of(case))
        return arrays_of(case, value)


def in_a_program(servers: Servers, case: Case, _: Any) -> dict[str, AnyArray]:
    """Twice, so that its memory is used again."""
    arguments = {**case.inputs, **case.attributes}
    with npucall_client.connect(servers.parallel.target) as client, client.session() as session:
        with session.program() as program:
            program.run(case.operator, **arguments, outputs=memory_of(case))
            value = program.run(case.operator, **arguments, outputs=memory_of(case))
        return arrays_of(case, value)


def arrays_of(case: Case, value: Any) -> dict[str, AnyArray]:
    """What a session answers, by output."""
    names = [output.name for output in CATALOGUE.find(case.operator).outputs]
    values = value if len(names) > 1 else (value,)
    return {
        name: each if isinstance(each, np.ndarray) else each.numpy()
        for name, each in zip(names, values, strict=True)
    }


EVERY_PATH = [*PATHS, in_a_session, in_a_program]
DEVICES = ("servers", "npu_servers")
QUICK = [
    pytest.param(DEVICES[n % 2], path, EXAMPLES[n :: len(EVERY_PATH)], id=f"{path.__name__}-some")
    for n, path in enumerate(EVERY_PATH)
]
REST = [
    pytest.param(device, path, EXAMPLES, id=f"{path.__name__}-{device}", marks=pytest.mark.long)
    for device in DEVICES
    for path in EVERY_PATH
]


@pytest.mark.parametrize(("device", "path", "examples"), [*QUICK, *REST])
def test_worked_examples_are_the_same_on_every_path(
    request: pytest.FixtureRequest, device: str, path: Any, examples: list[Example]
) -> None:
    there, wrong = request.getfixturevalue(device), []
    for example in examples:
        inputs, attributes = example.inputs(), example.arguments()
        for name in inputs:
            del attributes[name]
        case = Case(example.operator_name, inputs, attributes, example.outputs())
        like = expected(case)
        found = path(there, case, like)
        wrong += example.differences(found, example.rounding)
        if bits(found) != bits(like):
            wrong.append(f"{example}: expected {like}, found {found}")
    assert not wrong
