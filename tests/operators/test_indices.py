"""What statements of look-ups cannot say: numbers written out, and many rows of one index."""

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.errors import ArgumentError
from npucall.operators.embedding import embedding
from npucall.operators.embedding_dense_backward import embedding_dense_backward

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
