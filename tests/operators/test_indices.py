"""What statements of look-ups cannot say: numbers written out, and many rows of one index."""

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.errors import ArgumentError
from npucall.operators.embedding import embedding
from npucall.operators.embedding_dense_backward import embedding_dense_backward
from npucall.operators.index_put_impl import index_put_impl

from .calls import LOCAL


def test_the_gradient_of_four_rows_by_frequency_with_a_padding() -> None:
    grad = np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]])
    found = compute(embedding_dense_backward, grad, np.array([2, 0, 2, 1]), 3, 1, True)
    assert found.tolist() == [[3, 4], [0, 0], [3, 4]]


def test_rows_of_one_index_are_summed_as_if_in_float64() -> None:
    grad = np.random.default_rng(1).uniform(0, 1, (50_000, 3)).astype(np.float32)
    found = LOCAL.run(embedding_dense_backward, grad, np.ones(50_000, np.int32), num_weights=2)
    assert found[1].tolist() == grad.sum(0, np.float64).astype(np.float32).tolist()
    assert found[0].tolist() == [0, 0, 0]


def test_of_wide_rows_columns_are_computed_piece_by_piece() -> None:
    random = np.random.default_rng(2)
    weight, places = random.normal(size=(3, 200_000)).astype(np.float32), np.array([[2, 0], [2, 1]])
    assert (LOCAL.run(embedding, weight, places) == weight[places]).all()
    found = LOCAL.run(embedding_dense_backward, weight[places], places, num_weights=3)
    assert (found == weight * [[1], [1], [2]]).all()


@pytest.mark.parametrize("index", [3, -1])
def test_an_index_that_is_no_row_is_refused_by_both(index: int) -> None:
    rows = np.ones((3, 2), np.float32)
    with pytest.raises(ArgumentError, match=f"indices: expected labels from 0 to 2, found {index}"):
        LOCAL.run(embedding, rows, np.array([0, index]))
    with pytest.raises(ArgumentError, match=f"indices: expected labels from 0 to 2, found {index}"):
        LOCAL.run(embedding_dense_backward, rows[:2], np.array([0, index]), num_weights=3)


def test_places_of_a_mask_and_of_an_index_apart_from_it_stand_in_front() -> None:
    mask, places = np.array([True, False, True]), np.array([1, -2])
    none = np.zeros(0, np.int64)
    put = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
    found = LOCAL.run(index_put_impl, np.zeros((3, 4, 2), np.float32), [mask, none, places], put)
    assert found[0, :, 1].tolist() == [1, 2, 3, 4]
    assert found[2, :, 0].tolist() == [5, 6, 7, 8]
    assert found.sum() == put.sum()


def test_how_many_places_a_mask_has_is_found_when_the_call_runs() -> None:
    mask, ones = np.array([True, False, True]), np.ones((3, 4), np.float32)
    with pytest.raises(
        ArgumentError, match=r"values: expected a shape that .* to \(2, 4\), .* \(3,"
    ):
        LOCAL.run(index_put_impl, ones, [mask], ones)
    with pytest.raises(ArgumentError, match="indices: expected as many places as masks have"):
        LOCAL.run(index_put_impl, ones, [mask, np.array([0, 1, 2])], ones[0, 0])
