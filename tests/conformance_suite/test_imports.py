"""The suite takes nothing from the contract that could be wrong in both."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rows import each

import npucall_client.conformance
from npucall import dtypes, errors
from npucall.dtypes import DType
from npucall.errors import NpucallError

ROOT = Path(npucall_client.conformance.__file__).parent
MAKES_AND_JUDGES = ("stating", "statements", "cases", "judging")
CONSTANTS = {name for name, value in vars(dtypes).items() if isinstance(value, DType)}
REASONS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, NpucallError)
}
ALLOWED = {
    "npucall.dtypes": {*CONSTANTS, "AnyArray", "DTYPES", "BY_WIRE", "DType", "FLOATS"},
    "npucall.errors": {*REASONS, "AclnnStatus", "PARAM_INVALID", "PARAM_NULLPTR"},
    "npucall.tensors": {"Buffer", "Format", "Shape", "TensorSpec"},
    "npucall.declare.parameters": {"Scalar"},
    "npucall.declare.call": {"Argument"},
    "npucall.v1": {"operator_service_pb2"},
    "npucall.wire.replies": {"Reply"},
}
"""Types, codes and tables of names. Nothing that promotes, broadcasts, finds or computes."""


def files() -> list[Path]:
    rooms = (each for room in MAKES_AND_JUDGES for each in sorted((ROOT / room).glob("*.py")))
    return [*rooms, ROOT / "running" / "listing.py"]


def names_taken(path: Path) -> Iterator[tuple[str, str]]:
    """What a module takes from the contract: modules and names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)


@each("path", files())
def test_a_module_that_states_or_judges_takes_types_and_codes_alone(path: Path) -> None:
    taken = [(m, n) for m, n in names_taken(path) if m.split(".")[0] == "npucall"]
    assert [(m, n) for m, n in taken if n not in ALLOWED.get(m, set())] == []
