"""``outputs=``: results written to arrays of the caller's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.client.conftest import EVERY_DEVICE
from tests.rows import each

from npucall.errors import ArgumentMissingError, ShapeError, TensorLayoutError
from npucall.operators.kl_div_backward import kl_div_backward

if TYPE_CHECKING:
    from npucall_client import Client

ONES = np.ones((2, 3), np.float32)
TARGET = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
EXPECTED = -TARGET  # reduction 0 scales nothing: - grad_output * target
GAP = np.float32(99)

VIEWS: dict[str, Any] = {
    "row-major": lambda base: base[0, :6].reshape(2, 3),
    "column-major": lambda base: base[:3, :2].T,
    "every other column": lambda base: base[2:4, :6:2],
    "rows with gaps": lambda base: base[1:3, 2:5],
    "rows backwards": lambda base: base[3:1:-1, :3],
    "all backwards": lambda base: base[3:1:-1, 4::-2],
}


def run(client: Client, out: Any, *, keep_layout: bool = False) -> Any:
    options = client.options(outputs={"out": out}, keep_layout=keep_layout)
    return options.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)


@EVERY_DEVICE
@each("name", VIEWS)
@each("keep_layout", [False, True])
def test_an_output_is_written_in_place_through_its_strides_and_its_gaps_stay(
    client: Client, name: str, keep_layout: bool
) -> None:
    if keep_layout and "backwards" in name:
        return  # a layout that does not travel
    base, expected = np.full((4, 6), GAP), np.full((4, 6), GAP)
    target = VIEWS[name](base)
    assert run(client, target, keep_layout=keep_layout) is target
    VIEWS[name](expected)[...] = EXPECTED
    np.testing.assert_array_equal(base, expected)


@EVERY_DEVICE
@each("keep_layout", [False, True])
def test_an_output_of_rank_0_or_without_elements_is_written(
    client: Client, keep_layout: bool
) -> None:
    for given in np.ones((), np.float32), np.zeros((0, 3), np.float32):
        out = np.zeros_like(given)
        options = client.options(outputs={"out": out}, keep_layout=keep_layout)
        assert options.run(kl_div_backward, given, self=given, target=given) is out
        assert (out == -1).all()


@EVERY_DEVICE
def test_the_output_chooses_its_type_and_may_be_an_input_too(client: Client) -> None:
    short = np.zeros((2, 3), np.float16)
    np.testing.assert_array_equal(run(client, short), EXPECTED.astype(np.float16), strict=True)
    out = TARGET.copy()
    client.options(outputs={"out": out}).run(kl_div_backward, ONES, ONES, out, reduction=0)
    np.testing.assert_array_equal(out, EXPECTED)


READ_ONLY = np.zeros((2, 3), np.float32)
READ_ONLY.flags.writeable = False
OVERLAPPING = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (2, 3), (4, 4))
NO_ARRAY = "out: expected a NumPy array of native byte order"


@each("keep_layout", [False, True])
@each(
    ("out", "kind", "said"),
    [
        (np.zeros((3, 2), np.float32), ShapeError, r"out: expected shape \(2, 3\)"),
        (READ_ONLY, TypeError, NO_ARRAY),
        *((out, TypeError, NO_ARRAY) for out in (np.zeros((2, 3), ">f4"), [[0.0] * 3] * 2, 0.0)),
        (np.float32(0), TypeError, NO_ARRAY),
        (OVERLAPPING, TensorLayoutError, "out: expected an output whose elements do not"),
        (None, ArgumentMissingError, "out"),
    ],
)
def test_an_output_is_never_resized_and_what_cannot_be_written_is_refused(
    client: Client, keep_layout: bool, out: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        run(client, out, keep_layout=keep_layout)
    if isinstance(caught.value, ArgumentMissingError):  # None is a null pointer
        assert (caught.value.parameter, caught.value.aclnn_status) == ("out", 161001)


@EVERY_DEVICE
def test_results_own_writable_memory(client: Client) -> None:
    first = client.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)
    second = client.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)
    first[...] = 0
    np.testing.assert_array_equal(second, EXPECTED)
