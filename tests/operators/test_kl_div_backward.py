"""aclnnKlDivBackward: what it refuses, values against torch, sums, reductions, empties."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.dtypes import BOOL, COMPLEX64, DOUBLE, INT32
from npucall.errors import DTypeError
from npucall.products import ASCEND_310P, ASCEND_910
from npucall_client import CallWarning

from .faults import NINE, Fault, Table, dtype, null, shape
from .founding import (
    APART,
    APART_PAIR,
    INPUTS,
    KL,
    NOT_EXPANDABLE,
    UNKNOWN_CODES,
    assert_a_reduced_loss_has_torchs_gradient,
    assert_any_mix_of_floats_is_computed_in_float,
    full,
    kl_factor,
    kl_gradient,
    of_kl,
    ones,
    run,
    space_of,
    summed_to,
)
from .gradients import BF16, FLOATS, INF, LOCAL, NAN
from .subject import (
    BATCHMEAN,
    MEAN,
    NONE,
    SUM,
    WITH_BF16,
    Cells,
    Subject,
    Tensors,
    between,
)
from .ulp import SINGLE_NOISE, assert_within, ulp

TENSORS = (*INPUTS, "out")
# The checks, in order [src:kl-div-backward]
TABLE = Table(
    KL,
    {"reduction": 1},
    [
        *null(*TENSORS),
        *dtype(INT32, "out"),
        *dtype(BOOL, "out"),
        Fault({"self": {"dtype": COMPLEX64}}, DTypeError, ("out",)),
        *dtype(DOUBLE, *TENSORS),
        *shape(NINE, *TENSORS),
        *APART_PAIR,
        *NOT_EXPANDABLE,
        *shape(APART, "grad_output"),
        *shape((3, 2), "out"),
        *shape((1, 2, 3), "out"),
    ],
)
# [src:kl-div-backward]: target, log_target, grad_output, result before scaling
CELLS = [
    (0.0, False, 2.0, 0.0),
    (-0.0, False, 2.0, 0.0),
    (0.0, False, INF, NAN),
    (0.0, False, -INF, NAN),
    (0.0, False, NAN, NAN),
    (-0.0, False, INF, NAN),
    (-1.5, False, 2.0, 3.0),
    (INF, False, 2.0, -INF),
    (INF, False, -2.0, INF),
    (-INF, False, 2.0, INF),
    (-INF, False, -2.0, -INF),
    (INF, False, 0.0, NAN),
    (-INF, False, 0.0, NAN),
    (NAN, False, 2.0, NAN),
    (NAN, False, 0.0, NAN),
    (-INF, True, 2.0, 0.0),
    (-INF, True, INF, NAN),
    (-INF, True, -INF, NAN),
    (INF, True, 2.0, -INF),
    (INF, True, -2.0, INF),
    (INF, True, 0.0, NAN),
    (89.0, True, 2.0, -INF),  # e^88.7228 is FLOAT's largest number
    (89.0, True, -2.0, INF),
    (NAN, True, 2.0, NAN),
    (0.0, True, 2.0, -2.0),
]
# torch warns that its "mean" will change some day.
pytestmark = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")


def torch_gradient(tensors: Tensors, reduction: int, log_target: bool = False) -> Any:
    """torch's, scaled by the shape that self and target broadcast to."""
    space = space_of(tensors, "self", "target")
    scaled = np.broadcast_to(tensors["grad_output"] * kl_factor(space, reduction), space)
    return kl_gradient("self", {**tensors, "grad_output": scaled.copy()}, NONE, log_target)


def terms(tensors: Tensors, _: Any, reduction: int, log_target: bool = False) -> Any:
    """The size of what is summed."""
    g, s, t = (np.abs(array) for array in full(tensors).values())
    parts = g * (np.exp(full(tensors)["target"]) if log_target else t)
    return summed_to(tensors["self"].shape, parts * kl_factor(s.shape, reduction))


SUBJECT = Subject(
    TABLE,
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, bool logTarget, aclTensor* out"
    ),
    documented=WITH_BF16,
    legacy=(ASCEND_910, ASCEND_310P),
    attributes={"reduction": MEAN},
    values={"self": between(-3, 0.5), "target": between(0.05, 1.5)},
    cells=Cells("target log_target grad_output", CELLS),
    torch=torch_gradient,
    calls=of_kl(),
    noise=terms,
    half_noise=2.0**-11,  # elements are rounded before they are summed
    casts=FLOATS,
)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_the_values_of_self_do_not_matter(value: float) -> None:
    tensors = SUBJECT.draw(np.float32)
    expected = SUBJECT.run(tensors)
    found = SUBJECT.run(tensors | {"self": np.full_like(tensors["self"], value)})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.torch
def test_any_mix_of_the_three_floats_is_computed_in_float() -> None:
    assert_any_mix_of_floats_is_computed_in_float(SUBJECT, "self")


@pytest.mark.torch
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("reduction", [MEAN, SUM, BATCHMEAN])
@pytest.mark.parametrize("target", [(4, 6), (6,), (4, 1), ()], ids=str)
def test_reduced_losses_have_torchs_gradient_where_self_has_the_whole_batch(
    target: tuple[int, ...], reduction: int, log_target: bool
) -> None:
    assert_a_reduced_loss_has_torchs_gradient(KL, "self", target, reduction, log_target)


@pytest.mark.torch
def test_batchmean_divides_by_the_broadcast_extent_where_torch_takes_that_of_self() -> None:
    pytest.importorskip("torch")
    tensors: dict[str, Any] = {
        "grad_output": np.array(1.0),
        "self": np.zeros((1, 2)),
        "target": np.array([[1.0, 2], [3, 4], [5, 6]]),
    }
    found = compute(KL, **tensors, reduction=BATCHMEAN)
    np.testing.assert_allclose(found, [[-3, -4]])  # by 3; E7
    np.testing.assert_allclose(kl_gradient("self", tensors, BATCHMEAN, False), [[-9, -12]])  # by 1


@pytest.mark.torch
def test_the_float16_mean_multiplies_before_it_divides_where_torch_divides_first() -> None:
    pytest.importorskip("torch")
    g, t, count = 2.0**-20, 1024.0, 64
    tensors: dict[str, Any] = {
        "grad_output": np.array(g, np.float16),
        "self": np.zeros(count, np.float16),
        "target": np.full(count, t, np.float16),
    }
    # g / 64 = 2^-26 is 0 in FLOAT16, whose least number is 2^-24; t g / 64 = 2^-16 is not.
    np.testing.assert_array_equal(compute(KL, **tensors), np.full(count, -(2.0**-16)))
    np.testing.assert_array_equal(kl_gradient("self", tensors, MEAN, False), np.zeros(count))


def test_an_empty_target_leaves_zeros_for_self_as_in_torch() -> None:
    for reduction in (NONE, MEAN, SUM, BATCHMEAN):
        found = run(KL, ones((), (2, 1), (2, 0)), reduction=reduction)
        np.testing.assert_array_equal(found, [[0], [0]])


@pytest.mark.parametrize("code", UNKNOWN_CODES)
def test_an_unknown_reduction_acts_as_none_and_is_warned_about(code: int) -> None:
    tensors = SUBJECT.draw(np.float32)
    (message,) = LOCAL.plan(KL, **tensors, reduction=code).warnings
    assert message.startswith(f"reduction: {code} is not one of")
    with pytest.warns(CallWarning, match=f"reduction: {code} is not one of"):
        found = SUBJECT.run(tensors, reduction=code)
    np.testing.assert_array_equal(found, SUBJECT.run(tensors, reduction=NONE))


def test_a_known_reduction_is_not_warned_about_and_a_sum_scales_like_none() -> None:
    tensors = SUBJECT.draw(np.float32)
    for reduction in (NONE, MEAN, SUM, BATCHMEAN):
        assert not LOCAL.plan(KL, **tensors, reduction=reduction).warnings
    np.testing.assert_array_equal(
        SUBJECT.run(tensors, reduction=SUM), SUBJECT.run(tensors, reduction=NONE)
    )


@pytest.mark.parametrize("rows", [65_537, 1_000_003])
def test_a_long_sum_is_what_float64_gives(rows: int) -> None:
    random = np.random.default_rng(0)
    g, t = np.float32(-1.25), random.uniform(0.05, 1.5, (rows, 2)).astype(np.float32)
    found = LOCAL.run(KL, g, np.zeros((1, 2), np.float32), t, reduction=NONE)
    parts = -(np.float64(g) * t.astype(np.float64))
    expected, sizes = parts.sum(0, keepdims=True), np.abs(parts).sum(0, keepdims=True)
    assert_within(found, expected, ulp(expected, np.float32) + SINGLE_NOISE * sizes)


def test_sums_of_several_blocks_have_the_same_bits_in_many_threads() -> None:
    shapes = {"grad_output": (300, 1), "self": (300, 1), "target": (1, 257)}
    random = np.random.default_rng(1)
    tensors = {n: random.uniform(0.05, 1, of).astype(BF16) for n, of in shapes.items()}
    expected = SUBJECT.run(tensors).tobytes()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: SUBJECT.run(tensors).tobytes(), range(8)))
    assert found == [expected] * 8
