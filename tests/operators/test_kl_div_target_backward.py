"""aclnnKlDivTargetBackward in its three variants: refusals, values against torch, reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.dtypes import BF16, DOUBLE, FLOAT16, INT32
from npucall.errors import FormatError, ShapeError
from npucall.products import A2
from npucall.tensors import Format
from npucall_client import CallWarning

from .faults import NINE, Fault, Table, dtype, null, shape
from .founding import (
    APART,
    APART_PAIR,
    BUILTIN,
    COMMUNITY,
    DOCUMENTED,
    ENLARGED,
    INPUTS,
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
    target_terms,
)
from .gradients import INF, LOCAL, NAN, title
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
from .ulp import SINGLE_NOISE, STEPWISE_HALF, assert_within, ulp

TENSORS = (*INPUTS, "grad_target")
PROTOTYPE = (
    "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
    "int64_t reduction, bool logTarget, aclTensor* gradTarget"
)
PRIVATE = [Fault({name: {"format": Format.FRACTAL_NZ}}, FormatError, (name,)) for name in TENSORS]
# The checks, in order [src:kl-div-target]
BUILTIN_TABLE = Table(
    BUILTIN,
    {"reduction": 1},
    [
        *null(*TENSORS),
        *dtype(INT32, "grad_target"),
        *dtype(DOUBLE, *TENSORS),
        *dtype(FLOAT16, "grad_target"),
        *shape(NINE, *TENSORS),
        *APART_PAIR,
        *NOT_EXPANDABLE,
        *shape((3, 2), "grad_target"),
        *PRIVATE,
    ],
)
# The checks, in order [src:kl-div-target]
MASKED = [
    *null(*TENSORS),
    *dtype(DOUBLE, *TENSORS),
    *shape(NINE, *INPUTS),
    *(Fault({n: {"shape": APART}}, ShapeError, ("grad_output", "self")) for n in INPUTS[:2]),
    Fault({"target": {"shape": APART}}, ShapeError, INPUTS),
    *dtype(FLOAT16, "grad_output"),
    *dtype(BF16, "self"),
    *dtype(FLOAT16, "grad_target"),
    *shape((3, 2), "grad_target"),
    *shape(NINE, "grad_target"),
]
# [src:kl-div-target]: target, self, log_target, result for a scaled gradient of 2 and of -2
BUILTIN_CELLS = [
    (0.0, 0.5, False, NAN, NAN),
    (-0.0, 0.5, False, NAN, NAN),
    (-1.0, 0.5, False, NAN, NAN),
    (INF, 0.5, False, NAN, NAN),
    (-INF, 0.5, False, NAN, NAN),
    (NAN, 0.5, False, NAN, NAN),
    (1.0, NAN, False, NAN, NAN),
    (1.0, INF, False, -INF, INF),
    (1.0, -INF, False, INF, -INF),
    (1.0, 0.5, False, 1.0, -1.0),  # 2 * (ln 1 - 0.5) + 2
    (0.0, 0.5, True, 1.0, -1.0),  # 2 * (1 - 0.5)
    (-0.0, 0.5, True, 1.0, -1.0),
    (INF, 0.5, True, INF, -INF),
    (-INF, 0.5, True, NAN, NAN),
    (NAN, 0.5, True, NAN, NAN),
    (1.0, NAN, True, NAN, NAN),
    (1.0, INF, True, -INF, INF),
    (1.0, -INF, True, INF, -INF),
]
# [src:kl-div-target]: target, self, log_target, grad_output, result
MASKED_CELLS = [
    (0.0, 0.5, False, 2.0, 0.0),
    (-0.0, 0.5, False, 2.0, 0.0),
    (0.0, 0.5, False, INF, 0.0),  # the mask comes last and hides what g is
    (0.0, 0.5, False, NAN, 0.0),
    (0.0, NAN, False, 2.0, 0.0),
    (0.0, INF, False, 2.0, 0.0),
    (-1.0, 0.5, False, 2.0, NAN),
    (-INF, 0.5, False, 2.0, NAN),
    (INF, 0.5, False, 2.0, INF),
    (INF, 0.5, False, -2.0, -INF),
    (NAN, 0.5, False, 2.0, NAN),
    (1.0, INF, False, 2.0, -INF),
    (1.0, INF, False, -2.0, INF),
    (1.0, -INF, False, 2.0, INF),
    (1.0, NAN, False, 2.0, NAN),
    (1.0, 0.5, False, INF, INF),
    (-INF, 0.5, True, 2.0, NAN),
    (INF, 0.5, True, 2.0, INF),
    (INF, 0.5, True, -2.0, -INF),
    (0.0, INF, True, 2.0, -INF),
    (0.0, INF, True, -2.0, INF),
    (0.0, NAN, True, 2.0, NAN),
    (NAN, 0.5, True, 2.0, NAN),
    (0.0, 0.5, True, 2.0, 1.0),  # 2 * (0 + 1 - 0.5): no mask with log_target
]
DRAWN = {"self": between(-3, 0.5), "target": between(0.05, 1.5)}
# torch warns that its "mean" will change some day.
pytestmark = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
each = pytest.mark.parametrize("operator", [BUILTIN, COMMUNITY, DOCUMENTED], ids=title)
each_masked = pytest.mark.parametrize("operator", [COMMUNITY, DOCUMENTED], ids=title)


def builtin_gradient(tensors: Tensors, reduction: int, log_target: bool = False) -> Any:
    """torch's, scaled by the shape that self and target broadcast to."""
    space = space_of(tensors, "self", "target")
    scaled = np.broadcast_to(tensors["grad_output"] * kl_factor(space, reduction), space)
    return kl_gradient("target", {**tensors, "grad_output": scaled.copy()}, NONE, log_target)


def builtin_terms(tensors: Tensors, _: Any, reduction: int, log_target: bool = False) -> Any:
    parts = target_terms(tensors, log_target=log_target)
    return summed_to(tensors["target"].shape, parts * kl_factor(parts.shape, reduction))


def community_gradient(tensors: Tensors, reduction: int, log_target: bool = False) -> Any:
    """torch's without a sum, where target is not 0; a mean divides by all elements."""
    gradient = kl_gradient("target", full(tensors), NONE, log_target)
    return gradient / (gradient.size if reduction == MEAN else 1)


def documented_gradient(tensors: Tensors, reduction: int, log_target: bool = False) -> Any:
    """Likewise, but a mean divides by the first extent of target as passed."""
    gradient = kl_gradient("target", full(tensors), NONE, log_target)
    first = (*tensors["target"].shape, 1)[0]
    return gradient / (first if reduction == MEAN else 1)


def masked_terms(tensors: Tensors, *_: Any, log_target: bool = False, **__: Any) -> Any:
    return target_terms(tensors, log_target=log_target)


SUBJECT = Subject(
    BUILTIN_TABLE,
    PROTOTYPE,
    documented=WITH_BF16,
    legacy=(),
    attributes={"reduction": MEAN},
    values=DRAWN,
    cells=Cells(
        "target self log_target grad_output",
        [
            (t, s, log_target, g, result)
            for t, s, log_target, *of_both in BUILTIN_CELLS
            for g, result in zip((2.0, -2.0), of_both, strict=True)
        ],
    ),
    torch=builtin_gradient,
    calls=of_kl(),
    noise=builtin_terms,
)
COMMUNITY_SUBJECT = Subject(
    Table(COMMUNITY, {"reduction": 1}, MASKED),
    PROTOTYPE,
    documented=(A2,),
    legacy=(),
    attributes={"reduction": MEAN},
    values=DRAWN,
    cells=Cells("target self log_target grad_output", MASKED_CELLS),
    torch=community_gradient,
    calls=of_kl(*ENLARGED),
    noise=masked_terms,
    half_noise=STEPWISE_HALF,
    stretches=True,
)
DOCUMENTED_SUBJECT = Subject(
    Table(DOCUMENTED, {"reduction": 1}, [*MASKED, *PRIVATE]),
    PROTOTYPE,
    documented=(A2,),
    legacy=(),
    attributes={"reduction": MEAN},
    values=DRAWN,
    cells=Cells("target self log_target grad_output", MASKED_CELLS),
    torch=documented_gradient,
    calls=of_kl(*ENLARGED),
    noise=masked_terms,
    half_noise=STEPWISE_HALF,
    stretches=True,
)


@pytest.mark.torch
def test_any_mix_of_the_three_floats_is_computed_in_float() -> None:
    assert_any_mix_of_floats_is_computed_in_float(SUBJECT, "target")


@pytest.mark.torch
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("reduction", [MEAN, SUM, BATCHMEAN])
@pytest.mark.parametrize("target", [(4, 6), (6,), (4, 1), ()], ids=str)
def test_reduced_losses_have_torchs_gradient_where_self_has_the_whole_batch(
    target: tuple[int, ...], reduction: int, log_target: bool
) -> None:
    assert_a_reduced_loss_has_torchs_gradient(BUILTIN, "target", target, reduction, log_target)


@pytest.mark.torch
@pytest.mark.parametrize(("t", "g", "of_torch"), [(0.0, 2, NAN), (INF, 2, NAN), (-0.5, 0, 0)])
def test_builtin_is_nan_at_the_ends_of_target_as_torch_is_and_below_0(
    t: float, g: float, of_torch: float
) -> None:
    pytest.importorskip("torch")
    given = {"grad_output": g, "self": -1, "target": t}
    tensors = {name: np.array([value], np.float64) for name, value in given.items()}
    assert np.isnan(compute(BUILTIN, **tensors, reduction=NONE)[0])
    np.testing.assert_array_equal(kl_gradient("target", tensors, NONE, False), [of_torch])


@pytest.mark.parametrize("target", [(1, 4), (1, 1), (4,), ()], ids=str)
def test_builtin_answers_zeros_for_a_target_beside_an_empty_self(target: tuple[int, ...]) -> None:
    for reduction in (NONE, MEAN, SUM, BATCHMEAN):
        found = run(BUILTIN, ones((), (0, 4), target), reduction=reduction)
        np.testing.assert_array_equal(found, np.zeros(target))


@each_masked
def test_the_empty_exit_of_the_masked_variants_stands_before_the_checks_of_the_service(
    operator: Any,
) -> None:
    given = ones((0, 3), (2, 4), (3,), dtypes=(np.float32, np.float16, np.float32))
    found = run(operator, given, {"grad_target": np.empty(5, np.float16)})
    np.testing.assert_array_equal(found, np.zeros(5))  # of a call that no device computes


@each
@pytest.mark.parametrize("code", UNKNOWN_CODES)
def test_an_unknown_reduction_acts_as_none_and_is_warned_about(operator: Any, code: int) -> None:
    assert_acts_as_none_and_is_warned_about(operator, code)


@each_masked
def test_batchmean_acts_as_none_in_the_masked_variants_and_is_warned_about(operator: Any) -> None:
    assert_acts_as_none_and_is_warned_about(operator, BATCHMEAN)


def assert_acts_as_none_and_is_warned_about(operator: Any, code: int) -> None:
    tensors = SUBJECT.draw(np.float32)
    (message,) = LOCAL.plan(operator, **tensors, reduction=code).warnings
    assert message.startswith(f"reduction: {code} is not one of")
    with pytest.warns(CallWarning, match=f"reduction: {code} is not one of"):
        found = run(operator, tensors, reduction=code)
    np.testing.assert_array_equal(found, run(operator, tensors, reduction=NONE))


@each
def test_a_known_reduction_is_not_warned_about_and_a_sum_scales_like_none(operator: Any) -> None:
    tensors = SUBJECT.draw(np.float32)
    for reduction in (NONE, MEAN, SUM, *((BATCHMEAN,) if operator is BUILTIN else ())):
        assert not LOCAL.plan(operator, **tensors, reduction=reduction).warnings
    none, total = (run(operator, tensors, reduction=code) for code in (NONE, SUM))
    np.testing.assert_array_equal(none, total)


@pytest.mark.parametrize("rows", [65_537, 1_000_003])
def test_a_long_sum_is_what_float64_gives(rows: int) -> None:
    g, t = np.float32(-1.25), np.float32([[0.75, 1.25]])
    s = np.random.default_rng(0).uniform(-3, 0.5, (rows, 2)).astype(np.float32)
    found = LOCAL.run(BUILTIN, g, s, t, reduction=NONE)
    parts = [np.log(t.astype(np.float64)), -s.astype(np.float64), np.ones_like(s, np.float64)]
    expected = np.float64(g) * sum(parts).sum(0, keepdims=True)  # type: ignore[union-attr]
    sizes = np.abs(g) * sum(map(np.abs, parts)).sum(0, keepdims=True)  # type: ignore[union-attr]
    assert_within(found, expected, ulp(expected, np.float32) + SINGLE_NOISE * sizes)
