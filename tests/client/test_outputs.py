"""``outputs=``: results written to arrays of the caller's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.more import every_third

from npucall.errors import ArgumentMissingError, ArgumentUnknownError, ShapeError, TensorLayoutError
from npucall.operators.kl_div_backward import kl_div_backward

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray
    from npucall_client import Client

ONES = np.ones((2, 3), np.float32)
TARGET = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
EXPECTED = -TARGET  # reduction 0 scales nothing: - grad_output * target
GAP = np.float32(99)

VIEWS = {
    "row-major": lambda base: base[0, :6].reshape(2, 3),
    "column-major": lambda base: base[:3, :2].T,
    "every other column": lambda base: base[2:4, :6:2],
    "rows with gaps": lambda base: base[1:3, 2:5],
    "rows backwards": lambda base: base[3:1:-1, :3],
    "all backwards": lambda base: base[3:1:-1, 4::-2],
}
FORWARD = [name for name in VIEWS if "backwards" not in name]


def run(client: Client, out: Any, *, keep_layout: bool = False) -> Any:
    options = client.options(outputs={"out": out}, keep_layout=keep_layout)
    return options.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)


def written(client: Client, name: str, *, keep_layout: bool) -> tuple[AnyArray, AnyArray]:
    """Runs into a view of an array of gaps; answers that array, and what it should hold."""
    base, expected = np.full((4, 6), GAP), np.full((4, 6), GAP)
    target = VIEWS[name](base)
    assert run(client, target, keep_layout=keep_layout) is target
    VIEWS[name](expected)[...] = EXPECTED
    return base, expected


@pytest.mark.parametrize("name", every_third(VIEWS))
def test_an_output_is_written_in_place_and_its_gaps_stay(client: Client, name: str) -> None:
    base, expected = written(client, name, keep_layout=False)
    np.testing.assert_array_equal(base, expected)


@pytest.mark.parametrize("name", every_third(FORWARD))
def test_the_device_writes_through_the_strides_and_gaps_stay(client: Client, name: str) -> None:
    base, expected = written(client, name, keep_layout=True)
    np.testing.assert_array_equal(base, expected)


def test_an_output_of_rank_0_is_written(client: Client) -> None:
    out, one = np.zeros((), np.float32), np.ones((), np.float32)
    client.options(outputs={"out": out}).run(kl_div_backward, one, self=one, target=one)
    assert out == -1


@pytest.mark.parametrize("keep_layout", [False, True])
def test_an_output_without_elements_is_answered(client: Client, keep_layout: bool) -> None:
    empty = np.zeros((0, 3), np.float32)
    out = empty.copy()
    options = client.options(outputs={"out": out}, keep_layout=keep_layout)
    assert options.run(kl_div_backward, empty, self=empty, target=empty) is out


def test_the_output_chooses_its_type(client: Client) -> None:
    out = np.zeros((2, 3), np.float16)
    np.testing.assert_array_equal(run(client, out), EXPECTED.astype(np.float16), strict=True)


def test_an_output_is_never_resized(client: Client) -> None:
    with pytest.raises(ShapeError, match=r"out: expected shape \(2, 3\)"):
        run(client, np.zeros((3, 2), np.float32))


def test_none_is_a_null_pointer(client: Client) -> None:
    with pytest.raises(ArgumentMissingError) as caught:
        run(client, None)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("out", 161001)


def test_an_output_that_the_operator_has_not_is_refused(client: Client) -> None:
    with pytest.raises(ArgumentUnknownError, match="'y': expected a parameter of"):
        client.options(outputs={"y": ONES.copy()}).run(kl_div_backward, ONES, ONES, ONES)


def test_an_output_that_cannot_be_written_is_refused(client: Client) -> None:
    out = np.zeros((2, 3), np.float32)
    out.flags.writeable = False
    with pytest.raises(TypeError, match="out: expected a NumPy array of native byte order"):
        run(client, out)


@pytest.mark.parametrize("out", [np.zeros((2, 3), ">f4"), [[0.0] * 3] * 2, 0.0, np.float32(0)])
def test_what_cannot_be_written_in_place_is_refused(client: Client, out: object) -> None:
    with pytest.raises(TypeError, match="out: expected a NumPy array of native byte order"):
        run(client, out)


@pytest.mark.parametrize("keep_layout", [False, True])
def test_an_output_whose_elements_share_memory_is_refused(
    client: Client, keep_layout: bool
) -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (2, 3), (4, 4))
    with pytest.raises(TensorLayoutError, match="out: expected an output whose elements do not"):
        run(client, out, keep_layout=keep_layout)


def test_an_output_may_be_an_input_too(client: Client) -> None:
    out = TARGET.copy()
    client.options(outputs={"out": out}).run(kl_div_backward, ONES, ONES, out, reduction=0)
    np.testing.assert_array_equal(out, EXPECTED)


def test_results_own_writable_memory(client: Client) -> None:
    first = client.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)
    second = client.run(kl_div_backward, ONES, self=ONES, target=TARGET, reduction=0)
    first[...] = 0
    np.testing.assert_array_equal(second, EXPECTED)
