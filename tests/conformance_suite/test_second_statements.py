"""The suite takes nothing from the contract that could be wrong in both; its own fits it."""

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.rows import each

import npucall_conformance
from npucall import dtypes, errors
from npucall.dtypes import BF16, DTYPES, FLOAT, FLOAT16, DType, promote
from npucall.errors import NpucallError
from npucall.tensors import TensorSpec, broadcast, row_major, view
from npucall_conformance.cases import arrangements
from npucall_conformance.cases.arrangements import (
    ARRANGEMENTS,
    EXPANDED,
    GAPS,
    OFFSET,
    SENTINEL,
    STEP,
    TRANSPOSED,
    Arrangement,
    gaps,
    put,
)
from npucall_conformance.stating.promotion import common_shape, common_type

SHAPES = ((), (1,), (0,), (3,), (4, 1), (1, 3), (4, 3), (2, 1, 3), (5, 4, 1), (2, 0, 3), (1, 1, 0))
STRIDED = [TRANSPOSED, STEP, OFFSET, GAPS]
FITTING = [
    (layout, shape)
    for layout, shape in product(STRIDED, [(), (5,), (3, 4), (2, 3, 4)])
    if layout.fits(shape, output=True)
]


def test_every_pair_of_types_promotes_to_what_the_contract_says() -> None:
    pairs = list(product(DTYPES, DTYPES))
    assert [common_type(a, b) for a, b in pairs] == [promote(a, b) for a, b in pairs]


def test_every_pair_and_triple_of_shapes_stretches_to_what_the_contract_says() -> None:
    groups = [*product(SHAPES, SHAPES), *product(SHAPES, SHAPES, SHAPES)]
    assert [common_shape(*each) for each in groups] == [broadcast(*each) for each in groups]


def test_strides_of_a_tensor_without_gaps_are_the_contracts() -> None:
    assert list(map(arrangements.row_major, SHAPES)) == list(map(row_major, SHAPES))


@each(
    ("layout", "shape"),
    [(a, s) for a, s in product(ARRANGEMENTS, SHAPES) if a.fits(s, output=False)],
)
def test_a_view_has_the_contracts_elements(layout: Arrangement, shape: tuple[int, ...]) -> None:
    spec = layout.spec(FLOAT16, shape)
    storage = np.arange(spec.storage_elements).astype(np.float16).tobytes()
    np.testing.assert_array_equal(arrangements.view(spec, storage), view(spec, storage))


def test_a_view_that_leaves_its_storage_is_refused() -> None:
    with pytest.raises((TypeError, ValueError)):
        arrangements.view(TensorSpec(FLOAT, (3,)), b"\0" * 8)


@each("dtype", [FLOAT, BF16])
@each(("layout", "shape"), FITTING)
def test_what_is_put_is_seen(layout: Arrangement, shape: tuple[int, ...], dtype: DType) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype.numpy)
    _, seen = put(array, layout.spec(dtype, shape))
    np.testing.assert_array_equal(seen, array)


@each(("layout", "shape"), FITTING)
def test_the_gaps_are_all_that_is_no_element(layout: Arrangement, shape: tuple[int, ...]) -> None:
    spec = layout.spec(FLOAT, shape)
    assert not spec.row_major
    storage, _ = put(np.ones(shape, np.float32), spec)
    free = gaps(spec, storage)
    assert len(free) == spec.storage_elements - spec.elements
    assert len(free) >= 5  # behind the view, of whatever layout
    assert (free == SENTINEL[0]).all()


def test_an_expanded_tensor_has_equal_rows_and_is_no_output() -> None:
    _, seen = put(np.arange(12.0).reshape(3, 4), EXPANDED.spec(FLOAT, (3, 4)))
    np.testing.assert_array_equal(seen, [[8, 9, 10, 11]] * 3)
    assert EXPANDED.fits((3, 4), output=False)
    assert not EXPANDED.fits((3, 4), output=True)


ROOT = Path(npucall_conformance.__file__).parent
MAKES_AND_JUDGES = ("stating", "statements", "cases", "judging")
CONSTANTS = {name for name, value in vars(dtypes).items() if isinstance(value, DType)}
REASONS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, NpucallError)
}
ALLOWED = {
    "npucall.dtypes": {*CONSTANTS, "AnyArray", "DTYPES", "BY_WIRE", "DType", "FLOATS"},
    "npucall.errors": {*REASONS, "AclnnStatus", "PARAM_INVALID", "PARAM_NULLPTR", "TILING_ERROR"},
    "npucall.tensors": {"Buffer", "Format", "Shape", "TensorSpec"},
    "npucall.declare.parameters": {"Scalar"},
    "npucall.declare.call": {"Argument"},
    "npucall.v1": {"operator_service_pb2"},
    "npucall.texts": {"plain"},  # names that people type
    "npucall.wire.calls": {"encode"},  # a call as bytes
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
