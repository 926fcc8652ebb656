"""What statements of norms cannot say: numbers written out, and what torch does otherwise."""

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.operators.batch_norm import batch_norm
from npucall.operators.batch_norm_backward import batch_norm_backward
from npucall.operators.layer_norm import layer_norm
from npucall.operators.layer_norm_backward import layer_norm_backward
from npucall.operators.rms_norm import rms_norm
from npucall.operators.rms_norm_grad import rms_norm_grad
from npucall.operators.sync_batch_norm import batch_norm_elemt, batch_norm_gather_stats_with_counts
from npucall.operators.sync_batch_norm_backward import (
    batch_norm_elemt_backward,
    batch_norm_reduce_backward,
)

from .calls import LOCAL, numbers

X = np.array([[1.0, 2, 4], [0, -1, 3]])
WEIGHT = np.array([1, 2, 0.5])
UPSTREAM = np.array([[1.0, 0, 2], [-1, 1, 0.5]])


def near(found: Any, *expected: Any, within: float = 1e-8) -> None:
    """The outputs are these numbers, which torch gave in float64, with eight decimals."""
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one - np.array(other)).max() < within


def test_layer_norm_of_two_rows() -> None:
    _, mean, rstd = compute(layer_norm, X, (3,), WEIGHT, np.zeros(3), 1e-5)
    near((mean[:, 0], rstd[:, 0]), [2.33333333, 0.66666667], [0.80178115, 0.58834739])
    near(
        compute(layer_norm_backward, UPSTREAM, X, (3,), mean, rstd, WEIGHT),
        [[0.34362000, -0.51543086, 0.17181086], [-0.92777825, 0.69583474, 0.23194350]],
        [-0.67680994, -0.98057898, 3.35900911],
        [0, 1, 2.5],
    )


def test_rms_norm_of_two_rows() -> None:
    _, rstd = compute(rms_norm, X, WEIGHT, 1e-6)
    near((rstd[:, 0],), [0.37796445, 0.54772248])
    near(
        compute(rms_norm_grad, UPSTREAM, X, rstd, WEIGHT),
        [[0.28797292, -0.17998304, 0.01799836], [-0.54772248, 1.02697966, 0.34232649]],
        [0.37796445, -0.54772248, 3.84529928],
    )


ITEMS = np.array([[1.0, 5], [3, -1], [2, 2]])
OF_ITEMS = np.array([[1.0, 0], [0, 1], [2, -1]])


def test_batch_norm_of_three_items_saves_the_variance() -> None:
    w = np.array([2, 0.5])
    _, _, _, mean, var = compute(batch_norm, ITEMS, w, training=True)
    near((mean, var), [2, 2], [0.66666667, 6])
    near(
        compute(
            batch_norm_backward, OF_ITEMS, ITEMS, w, save_mean=mean, save_invstd=var, training=True
        ),
        [[-1.22471732, 0.10206182], [-1.22475406, 0.10206216], [2.44947137, -0.20412398]],
        [-1.22473569, -1.22474385],
        [3, 0],
    )


def test_running_statistics_are_updated_with_the_unbiased_variance() -> None:
    running = np.zeros(2, np.float32), np.ones(2, np.float32)
    found = LOCAL.run(batch_norm, ITEMS.astype(np.float32), None, None, *running, training=True)
    near((found.running_mean, found.running_var), [0.2, 0.2], [1.0, 1.8], within=1e-6)
    assert (running[0].tolist(), running[1].tolist()) == ([0, 0], [1, 1])
    kept = LOCAL.run(batch_norm, ITEMS.astype(np.float32), None, None, *running)
    assert (kept.save_mean, kept.running_var.tolist()) == (None, [1, 1])
    nothing = LOCAL.run(batch_norm, np.zeros((0, 2), np.float32), None, None, *running)
    assert nothing.running_var.tolist() == [1, 1]


def test_two_processes_normalise_as_one_does_and_so_do_their_gradients() -> None:
    items, upstream = numbers((5, 2, 3), (5, 2, 3))
    w, b, running = np.array([2.0, 0.5]), np.array([1.0, -1]), (np.zeros(2), np.ones(2))
    *whole, var = compute(batch_norm, items, w, b, *running, training=True)
    parts = [(items[:2], upstream[:2]), (items[2:], upstream[2:])]
    means, deviations = (
        np.array([f(x, (0, 2)) for x, _ in parts])
        for f in (np.mean, lambda *x: 1 / np.sqrt(np.var(*x) + 1e-5))
    )
    counts = np.array([6.0, 9.0])
    found = compute(
        batch_norm_gather_stats_with_counts, items, means, deviations, *running, counts=counts
    )
    mean, invstd = found[2:]
    for mine, one in zip(found, (*whole[:2], whole[3], 1 / np.sqrt(var + 1e-5)), strict=True):
        np.testing.assert_allclose(mine, one, rtol=1e-12)
    forms = [compute(batch_norm_elemt, x, w, b, mean=mean, invstd=invstd) for x, _ in parts]
    np.testing.assert_allclose(np.concatenate(forms), whole[2], rtol=1e-9, atol=1e-12)
    sums = [compute(batch_norm_reduce_backward, g, x, mean, invstd) for x, g in parts]
    total = dict(zip(("sum_dy", "sum_dy_xmu"), np.sum([each[:2] for each in sums], 0), strict=True))
    gradients = [
        compute(batch_norm_elemt_backward, g, x, mean, invstd, w, **total, counter=counts)
        for x, g in parts
    ]
    expected = compute(
        batch_norm_backward, upstream, items, w, save_mean=mean, save_invstd=var, training=True
    )
    np.testing.assert_allclose(np.concatenate(gradients), expected[0], rtol=1e-9, atol=1e-12)
    for number in (1, 2):
        of_parts = np.sum([each[number + 1] for each in sums], 0)
        np.testing.assert_allclose(of_parts, expected[number], rtol=1e-9)


@pytest.mark.parametrize("half", [False, True])
def test_a_client_gets_none_for_what_nobody_asks_for(half: bool) -> None:
    x = X.astype(np.float16 if half else np.float32)
    forward = LOCAL.options(outputs={"mean_out": None}).run(layer_norm, x, [3])
    assert forward.mean_out is None
    assert forward.rstd_out.dtype == np.float32
    mean = np.zeros(2, np.float32)  # one for each row, in any shape
    found = LOCAL.run(layer_norm_backward, x, x, [3], mean, forward.rstd_out[:, 0],
                      output_mask=[False, True, False])  # fmt: skip
    assert (found.grad_input_out, found.grad_bias_out) == (None, None)
    assert found.grad_weight_out.dtype == x.dtype
    nothing = LOCAL.run(layer_norm_backward, x, x, [3], mean, mean, output_mask=[False] * 3)
    assert nothing == (None, None, None)


@pytest.mark.parametrize("shape", [(6,), (3, 2), (2, 3, 1), (1, 6, 1)])
def test_what_there_is_of_each_row_may_be_of_any_shape(shape: tuple[int, ...]) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    own = {name: np.zeros(shape, np.float32) for name in ("mean_out", "rstd_out")}
    found = LOCAL.options(outputs=own).run(layer_norm, x, [4])
    expected = LOCAL.run(layer_norm, x, [4])
    for name in own:
        got = getattr(found, name)
        assert got.shape == shape
        assert got.ravel().tolist() == getattr(expected, name).ravel().tolist()


def test_a_row_of_equal_numbers_has_no_normal_form_with_eps_0() -> None:
    out, mean, rstd = LOCAL.run(layer_norm, np.full((1, 4), 2, np.float32), [4], eps=0.0)
    assert np.isnan(out).all()
    assert (mean.item(), rstd.item()) == (2, np.inf)
