"""The suite's own promotion, broadcasting and layouts, against the contract's."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from npucall.dtypes import DTYPES, FLOAT, FLOAT16, promote
from npucall.tensors import TensorSpec, broadcast, row_major, view
from npucall_client.conformance.cases import arrangements
from npucall_client.conformance.cases.arrangements import Arrangement
from npucall_client.conformance.stating.broadcasting import common_shape
from npucall_client.conformance.stating.promotion import common_type

SHAPES = ((), (1,), (0,), (3,), (4, 1), (1, 3), (4, 3), (2, 1, 3), (5, 4, 1), (2, 0, 3), (1, 1, 0))


def test_every_pair_of_types_promotes_to_what_the_contract_says() -> None:
    pairs = list(product(DTYPES, DTYPES))
    assert [common_type(a, b) for a, b in pairs] == [promote(a, b) for a, b in pairs]


def test_every_pair_and_triple_of_shapes_stretches_to_what_the_contract_says() -> None:
    groups = [*product(SHAPES, SHAPES), *product(SHAPES, SHAPES, SHAPES)]
    assert [common_shape(*each) for each in groups] == [broadcast(*each) for each in groups]


@pytest.mark.parametrize("shape", SHAPES)
def test_strides_of_a_tensor_without_gaps_are_the_contracts(shape: tuple[int, ...]) -> None:
    assert arrangements.row_major(shape) == row_major(shape)


@pytest.mark.parametrize("layout", list(Arrangement))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_view_has_the_elements_that_the_contract_sees(
    layout: Arrangement, shape: tuple[int, ...]
) -> None:
    if not layout.fits(shape, output=False):
        return
    spec = layout.spec(FLOAT16, shape)
    storage = np.arange(spec.storage_elements).astype(np.float16).tobytes()
    np.testing.assert_array_equal(arrangements.view(spec, storage), view(spec, storage))


def test_a_view_that_leaves_its_storage_is_refused() -> None:
    with pytest.raises((TypeError, ValueError)):
        arrangements.view(TensorSpec(FLOAT, (3,)), b"\0" * 8)
