"""Attention: worked numbers, masks that leave nothing, bands, layouts, and blocks."""

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.dtypes import FLOAT
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec

from .calls import LOCAL, Arrays, numbers, wide

FORWARD = CATALOGUE.find("aclnnFlashAttentionScore")
BACKWARD = CATALOGUE.find("aclnnFlashAttentionScoreGrad")
LOWEST = float(np.finfo(np.float32).min)
MASK = np.array([[0, 1], [0, 0]], np.uint8)


def matrix(*rows: list[float]) -> Any:
    """One head of one item."""
    return np.array([[rows]])


def both(query: Any, key: Any, value: Any, dy: Any, **more: Any) -> tuple[Any, ...]:
    """The maxima, sums and result of the forward operator, then the three gradients."""
    more = {"head_num": query.shape[1], "input_layout": "BNSD", "scale_value": 0.5, **more}
    bias = more.pop("real_shift", None)
    maxima, sums, _, out = compute(FORWARD, query, key, value, bias, **more)
    given = {"softmax_max": maxima, "softmax_sum": sums, "attention_in": out, "pse_shift": bias}
    dq, dk, dv, _ = compute(BACKWARD, query, key, value, dy, **given, **more)
    return maxima, sums, out, dq, dk, dv


def test_worked_numbers() -> None:
    # Computed with torch in float64, to eight decimals.
    query, key, value = matrix([1, 0], [0, 1]), matrix([1, 1], [0, 2]), matrix([1, 2], [3, 4])
    found = both(*wide(query, key, value, query), atten_mask=MASK)
    maxima, sums, out, dq, dk, dv = (each[0, 0] for each in found)
    assert np.array_equal(maxima, [[0.5] * 8, [1] * 8])
    assert np.allclose(sums, [[1] * 8, [1.60653066] * 8], atol=5e-9)
    assert np.allclose(out, [[1, 2], [2.24491866, 3.24491866]], atol=5e-9)
    assert np.allclose(dq, [[0, 0], [-0.23500371, 0.23500371]], atol=5e-9)
    assert np.allclose(dk, [[0, -0.23500371], [0, 0.23500371]], atol=5e-9)
    assert np.allclose(dv, [[1, 0.37754067], [0, 0.62245933]], atol=5e-9)


@pytest.mark.parametrize("number", [0, 2])
def test_a_row_of_which_the_mask_leaves_nothing_has_equal_shares_or_is_0(number: int) -> None:
    query, key, value, dy = numbers((1, 1, 2, 4), (1, 1, 3, 4), (1, 1, 3, 4), (1, 1, 2, 4))
    mask = np.array([[1, 1, 1], [0, 0, 0]], np.uint8)
    maxima, sums, out, dq, _, dv = both(
        query, key, value, dy, atten_mask=mask, inner_precise=number, sparse_mode=1
    )
    assert maxima[0, 0, 0, 0] == LOWEST
    assert sums[0, 0, 0, 0] == (-LOWEST if number else 3)
    assert np.allclose(out[0, 0, 0], 0 if number else value[0, 0].mean(0))
    assert dq[0, 0, 0].any() == (number == 0)
    alone = both(query[:, :, 1:], key, value, dy[:, :, 1:])[5]
    assert np.allclose(dv - alone, 0 if number else dy[:, :, :1] / 3)


def test_a_row_of_which_the_band_leaves_nothing_is_0_whatever_inner_precise_is() -> None:
    query, key, value, dy = numbers((1, 1, 4, 4), (1, 1, 2, 4), (1, 1, 2, 4), (1, 1, 4, 4))
    mask = np.zeros((2048, 2048), np.uint8)
    found = both(query, key, value, dy, atten_mask=mask, sparse_mode=3)
    expected = both(query[:, :, 2:], key, value, dy[:, :, 2:], atten_mask=mask, sparse_mode=2)
    for one, other in zip(found[2:4], expected[2:4], strict=True):
        assert not one[:, :, :2].any()
        assert np.allclose(one[:, :, 2:], other)
    assert np.allclose(found[4], expected[4])
    assert (found[1][0, 0, :2] == -LOWEST).all()


def test_compressed_masks_are_not_read() -> None:
    query, key, value = numbers((1, 1, 3, 4), (1, 1, 3, 4), (1, 1, 3, 4))
    attributes: Arrays = {"head_num": 1, "sparse_mode": 2}
    answers = [
        LOCAL.run(FORWARD, *np.float32([query, key, value]), atten_mask=mask, **attributes)
        for mask in (np.zeros((2048, 2048), np.uint8), np.ones((2048, 2048), bool))
    ]
    assert np.array_equal(answers[0].attention_out, answers[1].attention_out)
    assert answers[0].softmax_out_out is None


def test_many_blocks_give_what_one_matrix_of_scores_gives() -> None:
    query, key, value, dy = numbers(
        (1, 4, 300, 6), (1, 2, 2100, 6), (1, 2, 2100, 5), (1, 4, 300, 5)
    )
    mask = np.random.default_rng(4).random((1, 1, 300, 2100)) < 0.5
    *_, out, dq, dk, dv = both(query, key, value, dy, atten_mask=mask)
    keys, values = np.repeat(key, 2, 1), np.repeat(value, 2, 1)
    scores = np.where(mask, -np.inf, query @ keys.swapaxes(2, 3) / 2)
    power = np.exp(scores - scores.max(-1, keepdims=True))
    power /= power.sum(-1, keepdims=True)
    through = power * (dy @ values.swapaxes(2, 3) - (dy * (power @ values)).sum(-1, keepdims=True))
    pairs = [(out, power @ values), (dq, through @ keys / 2)]
    of_keys = through.swapaxes(2, 3) @ query / 2, power.swapaxes(2, 3) @ dy
    pairs += [
        (found, whole.reshape(1, 2, 2, *whole.shape[2:]).sum(2))
        for found, whole in zip((dk, dv), of_keys, strict=True)
    ]
    assert all(np.allclose(one, other, rtol=1e-12, atol=1e-13) for one, other in pairs)


def test_of_outputs_that_are_all_empty_nothing_else_is_checked() -> None:
    none = TensorSpec(FLOAT, (0,))
    names = [p.name for p in FORWARD.inputs[:3]]
    given = dict.fromkeys((*names, "softmax_max_out", "softmax_sum_out", "attention_out"), none)
    call = Call(FORWARD, {**given, "head_num": -1, "input_layout": "?"}, tuple(names))
    assert prepare(call, A2, CATALOGUE).done


@pytest.mark.parametrize(
    ("mode", "dx", "dsin"),
    [(0, [2.4, 3.6, 1.6, 1.6], [-2, -1, 3, -4]), (1, [2.2, 0.4, 4.8, 1.4], [1, 2, -1.5, 8])],
)
def test_worked_numbers_of_rotary_embedding(mode: int, dx: list[float], dsin: list[float]) -> None:
    # Computed with torch in float64, for halves and for neighbours.
    rows = [[1, -1, 2, 0.5], [0.6, 0.6, 0.8, 0.8], [0.8, 0.8, 0.6, 0.6], [1, 2, 3, 4]]
    x, cos, sin, dy = (np.reshape(row, (1, 1, 1, 4)).astype(np.float64) for row in rows)
    grad = CATALOGUE.find("aclnnRotaryPositionEmbeddingGrad")
    found = compute(grad, dy, cos, sin, x, mode=mode)
    assert np.allclose(np.ravel(found), [*dx, 1, -2, 6, 2, *dsin], atol=1e-12)
    assert compute(grad, dy, cos, sin, mode=mode)[1:] == (None, None)
