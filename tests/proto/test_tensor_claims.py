"""npucall.tensors: what a spec may claim, and that claims cost nothing."""

from __future__ import annotations

import pytest
from tests.rows import each

from npucall.dtypes import COMPLEX128, DOUBLE, FLOAT, INT8
from npucall.errors import TensorLayoutError
from npucall.tensors import TensorSpec, broadcast, view


def test_what_a_spec_claims_takes_no_memory() -> None:
    """The claims are 2^60 bytes and more, which no process has."""
    spec = TensorSpec(FLOAT, (2**30, 2**30))
    assert (spec.elements, spec.bytes, spec.storage_bytes) == (2**60, 2**62, 2**62)
    assert spec.row_major
    assert not spec.overlaps_itself()
    nothing = TensorSpec(FLOAT, (2**30, 0, 2**30))
    assert nothing.storage_bytes == 0
    assert view(nothing, b"").shape == (2**30, 0, 2**30)
    repeated = TensorSpec(FLOAT, (2**60,), (0,))
    assert repeated.storage_bytes == 4
    assert view(repeated, bytes(4)).shape == (2**60,)
    assert broadcast((2**60, 1), (1, 2**60)) == (2**60, 2**60)


def test_32_dimensions_travel() -> None:
    assert view(TensorSpec(FLOAT, (1,) * 32), bytes(4)).ndim == 32


@each(
    ("dtype", "spec", "message"),
    [
        (DOUBLE, {"shape": (2**60,)}, "x: .*less than 2\\^63 bytes"),
        (COMPLEX128, {"shape": (2**59,)}, "x: .*less than 2\\^63 bytes"),
        (INT8, {"shape": (2**32, 2**31)}, "x: .*less than 2\\^63 bytes"),
        (FLOAT, {"shape": (2**40, 0, 2**40)}, "x: .*less than 2\\^63 bytes"),
        (FLOAT, {"shape": (1,) * 33}, "x: .*at most 32 dimensions, found 33"),
        (
            FLOAT,
            {"shape": (1,), "storage_shape": (1,) * 33},
            "x: .*storage shape of at most 32 dimensions",
        ),
        (FLOAT, {"shape": (2, -1)}, "x: expected a shape of extents of 0 or more"),
        (FLOAT, {"shape": (2,), "storage_shape": (-2,)}, "x: expected a storage shape of extents"),
        (FLOAT, {"shape": (2,), "strides": (-1,)}, "x: expected strides and offset of 0 or more"),
        (FLOAT, {"shape": (2,), "offset": -1}, "x: expected strides and offset of 0 or more"),
        (FLOAT, {"shape": (2, 2), "strides": (1,)}, "x: expected 2 strides for shape"),
        (
            FLOAT,
            {"shape": (2,), "strides": (2**62,)},
            "x: expected a storage of less than 2\\^63 bytes",
        ),
        (FLOAT, {"shape": (), "offset": 2**62}, "x: expected a storage of less than 2\\^63 bytes"),
        (FLOAT, {"shape": (2,), "storage_shape": (1,)}, "x: expected a view inside its storage"),
        (FLOAT, {"shape": (0,), "offset": 2, "storage_shape": (1,)}, "x: expected a view inside"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_by_the_name_of_the_tensor(
    dtype: object, spec: dict[str, object], message: str
) -> None:
    with pytest.raises(TensorLayoutError, match=message) as caught:
        TensorSpec(dtype, **spec, name="x")  # type: ignore[arg-type]
    assert caught.value.parameter == "x"
    assert caught.value.aclnn_status is None
