"""Tensors without elements, and reduction codes that have no meaning of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.errors import AttributeValueError, ShapeError

from .running import (
    BUILTIN,
    COMMUNITY,
    DOCUMENTED,
    KL,
    L1,
    OPERATORS,
    prepared,
    run,
    sample,
    title,
)

UNKNOWN_CODES = [4, 6, 7, -1, 2**40, 2**32 + 1, -(2**63)]


def of_reductions(operators: Any) -> list[tuple[Any, int]]:
    return [(o, r) for o in operators for r in (0, 1, 2, 3) if o is not L1 or r < 3]


@pytest.mark.parametrize(
    "shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0), (1,) * 7 + (0,)], ids=str
)
@pytest.mark.parametrize(("operator", "reduction"), of_reductions(OPERATORS), ids=title)
def test_an_empty_call_answers_an_empty_output(
    operator: Any, reduction: int, shape: tuple[int, ...]
) -> None:
    assert run(operator, sample(shape), reduction=reduction).shape == shape


@pytest.mark.parametrize(("operator", "reduction"), of_reductions([KL]), ids=title)
def test_self_keeps_zeros_where_target_makes_the_broadcast_empty(
    operator: Any, reduction: int
) -> None:
    found = run(operator, sample((2, 0), (2, 1), (2, 0)), reduction=reduction)
    np.testing.assert_array_equal(found, [[0], [0]])  # as torch


@pytest.mark.parametrize(("operator", "reduction"), of_reductions([BUILTIN]), ids=title)
@pytest.mark.parametrize("target", [(1, 4), (1, 1), (4,), ()], ids=str)
def test_builtin_answers_zeros_for_a_target_beside_an_empty_self(
    operator: Any, reduction: int, target: tuple[int, ...]
) -> None:
    found = run(operator, sample((), (0, 4), target), reduction=reduction)
    np.testing.assert_array_equal(found, np.zeros(target))


@pytest.mark.parametrize(
    ("operator", "reduction"), of_reductions([COMMUNITY, DOCUMENTED, L1]), ids=title
)
@pytest.mark.parametrize(
    "shapes",
    [((0,), (1,), (1,)), ((1,), (0,), (1,)), ((1,), (), (0,)), ((2, 0), (2, 1), (1, 1))],
    ids=str,
)
def test_one_empty_input_makes_the_unsummed_output_empty(
    operator: Any, reduction: int, shapes: Any
) -> None:
    assert run(operator, sample(*shapes), reduction=reduction).shape in {(0,), (2, 0)}


@pytest.mark.parametrize("operator", [KL, BUILTIN, L1], ids=title)
def test_an_empty_call_is_checked_like_any_other(operator: Any) -> None:
    with pytest.raises(ShapeError):
        prepared(operator, sample((0, 3), (0, 3), (0, 4)))


@pytest.mark.parametrize("operator", [COMMUNITY, DOCUMENTED], ids=title)
def test_the_empty_exit_of_the_masked_variants_stands_before_the_checks_of_the_service(
    operator: Any,
) -> None:
    given = sample((0, 3), (2, 4), (3,), dtypes=(np.float32, np.float16, np.float32))
    found = run(operator, given, {"grad_target": np.empty(5, np.float16)})
    np.testing.assert_array_equal(found, np.zeros(5))  # of a call that no device computes


@pytest.mark.parametrize("code", UNKNOWN_CODES)
@pytest.mark.parametrize("operator", [o for o in OPERATORS if o is not L1], ids=title)
def test_an_unknown_reduction_acts_as_none_and_is_warned_about(operator: Any, code: int) -> None:
    tensors = sample((4, 6))
    call = prepared(operator, tensors, reduction=code)
    ((parameter, message),) = call.warnings
    assert parameter == "reduction"
    assert str(code) in message
    found = run(operator, tensors, reduction=code)
    np.testing.assert_array_equal(found, run(operator, tensors, reduction=0))


@pytest.mark.parametrize("operator", [COMMUNITY, DOCUMENTED], ids=title)
def test_batchmean_acts_as_none_in_the_masked_variants_and_is_warned_about(operator: Any) -> None:
    tensors = sample((4, 6))
    assert [name for name, _ in prepared(operator, tensors, reduction=3).warnings] == ["reduction"]
    found = run(operator, tensors, reduction=3)
    np.testing.assert_array_equal(found, run(operator, tensors, reduction=0))


@pytest.mark.parametrize(("operator", "reduction"), of_reductions(OPERATORS), ids=title)
def test_a_known_reduction_is_not_warned_about(operator: Any, reduction: int) -> None:
    masked_batchmean = operator in {COMMUNITY, DOCUMENTED} and reduction == 3
    assert bool(prepared(operator, sample((2,)), reduction=reduction).warnings) is masked_batchmean


@pytest.mark.parametrize("code", [3, *UNKNOWN_CODES])
def test_l1_refuses_an_unknown_reduction(code: int) -> None:
    with pytest.raises(AttributeValueError) as caught:
        prepared(L1, sample((2,)), reduction=code)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("reduction", 161002)


@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_reduction_is_mean_and_log_target_false_where_they_are_not_given(operator: Any) -> None:
    tensors = sample((4, 6))
    explicit = run(operator, tensors, reduction=1, log_target=False)
    np.testing.assert_array_equal(run(operator, tensors), explicit)
    assert not np.array_equal(explicit, run(operator, tensors, reduction=0, log_target=False))


@pytest.mark.parametrize("operator", OPERATORS, ids=title)
def test_sum_scales_like_none(operator: Any) -> None:
    tensors = sample((4, 6))
    none, total = (run(operator, tensors, reduction=code) for code in (0, 2))
    np.testing.assert_array_equal(none, total)
