"""Where FLOAT16 overflows, underflows and rounds: where the kernels differ [src:rounding]."""

from typing import Any

import numpy as np
from tests.rows import each

from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_builtin import kl_div_target_backward_builtin
from npucall.operators.kl_div_target_backward_community import kl_div_target_backward_community
from npucall.operators.kl_div_target_backward_documented import kl_div_target_backward_documented
from npucall.operators.l1_loss_backward import l1_loss_backward

from .calls import BF16, INF, LOCAL

KL, L1, BUILTIN = kl_div_backward, l1_loss_backward, kl_div_target_backward_builtin
COMMUNITY, DOCUMENTED = kl_div_target_backward_community, kl_div_target_backward_documented
MASKED = (COMMUNITY, DOCUMENTED)
HALF, SINGLE = np.float16, np.float32


def run(operator: Any, given: dict[str, Any], outputs: Any = None, **attributes: Any) -> Any:
    """The only output of a call; ``outputs`` are arrays to write to."""
    return LOCAL.options(outputs=outputs or {}).run(operator, **given, **attributes)


def tensors(g: Any, s: Any, t: Any, dtype: Any = HALF) -> dict[str, Any]:
    return {
        "grad_output": np.array(g, dtype),
        "self": np.array(s, dtype),
        "target": np.array(t, dtype),
    }


LOGS: dict[str, Any] = {"reduction": 1, "log_target": True}
POINTS = [
    # The product is beyond FLOAT16, 65504, until the mean brings it back.
    (KL, tensors([300], [0], [300]), {"reduction": 0}, [-INF]),
    # 90000 / 3; the A2 itself answers -inf
    (KL, tensors([300] * 3, [0] * 3, [300] * 3), {"reduction": 1}, [-30000] * 3),
    # So is the exponential: e^12 / 4 = 40688.7, in steps of 32.
    (KL, tensors([1], [0], [12]), {"reduction": 0, "log_target": True}, [-INF]),
    (KL, tensors([1] * 4, [0] * 4, [12] * 4), LOGS, [-40704] * 4),
    # Where every step rounds it is infinite before the mean comes: e^12 = 162755.
    *((each, tensors([1] * 4, [0] * 4, [12] * 4), LOGS, [INF] * 4) for each in MASKED),
    # In BFLOAT16 it is finite: 13 * e^12 / 4 = 528953, in steps of 4096.
    (COMMUNITY, tensors([1] * 4, [0] * 4, [12] * 4, BF16), LOGS, [528384] * 4),
    # Subnormal products survive.
    *((KL, tensors([2.0 ** (n + 8)], [0], [2.0**-8]), {"reduction": 0}, [-(2.0**n)])
      for n in (-24, -20, -15)),
    # Half of the least subnormal of FLOAT16 is a tie, and becomes 0.
    (KL, tensors([2.0**-17], [0], [2.0**-8]), {"reduction": 0}, [0]),
    # BFLOAT16 is rounded once after the sum: 258; after each step it would stay at 256.
    (KL, tensors([1, 1, 1], [0], [256, 1, 1], BF16), {"reduction": 0}, [-258]),
    # FLOAT16(1/3) = 0.333251953125 exactly; g (t + 1 - s) e^t = 1 * (0 + 1 - 0) * 1
    (COMMUNITY, tensors([1] * 3, [0] * 3, [0] * 3), LOGS, [0.333251953125] * 3),
    # 1 is added before self is subtracted: 2^-11 + 1 is a tie and becomes 1, and 1 - 1 is 0;
    # 2^-11 - 1 + 1 would be 2^-11.
    *((each, tensors([1], [1], [2.0**-11]), {"reduction": 0, "log_target": True}, [0])
      for each in MASKED),
    # The gradient is multiplied last: (11 + 1 - 10) * e^11 = 2 * 59874 is beyond FLOAT16; times
    # 2^-4 first it would be 7484.
    *((each, tensors([2.0**-4], [10], [11]), {"reduction": 0, "log_target": True}, [INF])
      for each in MASKED),
    # The mean factor of the masked variants is: 60000 * (ln 1 + 1 + 1) is beyond FLOAT16; 15000 * 2
    # would not be.
    *((each, tensors([60000] * 4, [-1] * 4, [1] * 4), {"reduction": 1}, [INF] * 4)
      for each in MASKED),
    # The scale comes after the product even where FLOAT overflows.
    (KL, tensors([3e38] * 4, [0] * 4, [2] * 4, SINGLE), {"reduction": 1}, [-INF] * 4),
    # It multiplies before it divides, where torch divides first: g / 64 = 2^-26 is 0 in FLOAT16,
    # whose least number is 2^-24; t g / 64 = 2^-16 is not.
    (KL, tensors(2.0**-20, np.zeros(64), np.full(64, 1024.0)), {"reduction": 1}, [-(2.0**-16)] * 64)
]  # fmt: skip


@each("operator given attributes expected", POINTS)
def test_a_kernel_rounds_where_it_does(
    operator: Any, given: dict[str, Any], attributes: dict[str, Any], expected: list[float]
) -> None:
    found = run(operator, given, **attributes)
    np.testing.assert_array_equal(found.astype(np.float64), expected)


def test_elements_of_three_float16_inputs_are_rounded_before_they_are_summed() -> None:
    given = tensors([1, 1, 1, 1], [0], [2048, 1, 1, 1])
    given["target"] *= HALF(1 + 2**-10)  # 2050, and three times 1.0009765625
    wide = {"out": np.empty(1, SINGLE)}
    # Products: 2050 * 1.0009765625 = 2052.0019... becomes 2052, 1.0019540786... becomes 1.001953125
    given["grad_output"][:] = HALF(1 + 2**-10)
    # The sum 2055.005859375 is in FLOAT16, whose step is 2 there, 2056.
    assert run(KL, given, wide, reduction=0)[0] == -2056


def test_one_float_input_among_float16_ones_keeps_the_sum_in_float() -> None:
    given = tensors([1, 1, 1, 1], [0], [2048, 1, 1, 1])
    given["grad_output"] = given["grad_output"].astype(SINGLE)
    assert run(KL, given, {"out": np.empty(1, SINGLE)}, reduction=0)[0] == -2051


def test_a_float_output_shows_the_float16_rounding_of_three_float16_inputs() -> None:
    given = tensors([3.3], [0], [0.7])  # 3.30078125 * 0.7001953125 = 2.3111916
    found = run(KL, given, {"out": np.empty(1, SINGLE)}, reduction=0)
    assert found[0] == np.float32(-2.310546875)  # the nearest of FLOAT16, in steps of 2^-9


def test_a_sum_beyond_float16_is_infinite_in_a_float_output() -> None:
    given = tensors([1, 1], [0], [40000, 40000])
    assert run(KL, given, {"out": np.empty(1, SINGLE)}, reduction=0)[0] == -INF


def test_l1_compares_after_the_conversion_to_the_promoted_dtype() -> None:
    given = tensors([1, 1], [2048, 2048], [0, 0])
    given["target"] = np.array([2049, 2051], np.int32)  # 2049 is 2048 in FLOAT16, 2051 is 2052
    np.testing.assert_array_equal(run(L1, given, reduction=0), [0, -1])


def test_l1_compares_integers_exactly_beside_a_float() -> None:
    given = tensors([1], [2048], [0], SINGLE)
    given["target"] = np.array([2049], np.int32)
    assert run(L1, given, reduction=0)[0] == -1


def test_l1_turns_a_bfloat16_beside_a_float16_into_float() -> None:
    given = tensors([1], [1.0009765625], [0])  # 1 + 2^-10, which is 1 in BFLOAT16
    given["target"] = np.array([1], BF16)
    found = run(L1, given, reduction=0)
    assert found.dtype == SINGLE
    assert found[0] == 1


def test_l1_rounds_to_the_promoted_dtype_before_a_wider_output() -> None:
    given = tensors([1] * 3, [1] * 3, [0] * 3)
    found = run(L1, given, {"grad_input": np.empty(3, SINGLE)}, reduction=1)
    np.testing.assert_array_equal(found, [0.333251953125] * 3)  # 1365 * 2^-12, FLOAT16's third


@each("dtype", [np.float64, np.complex64, np.complex128])
def test_l1_casts_its_gradient_to_a_double_or_complex_output(dtype: Any) -> None:
    found = run(L1, tensors([2], [1], [0], SINGLE), {"grad_input": np.empty(1, dtype)}, reduction=0)
    assert (found.dtype, found[0]) == (dtype, 2)


def test_documented_divides_by_the_first_extent_of_target_before_it_is_stretched() -> None:
    # target (1, 3), stretched to (2, 3): divided by 1. 6 * (ln 1 + 1 - 0) = 6.
    given = tensors(np.full((2, 3), 6), np.zeros((2, 3)), np.ones((1, 3)), SINGLE)
    np.testing.assert_array_equal(run(DOCUMENTED, given, reduction=1), np.full((2, 3), 6))
    np.testing.assert_array_equal(run(COMMUNITY, given, reduction=1), np.full((2, 3), 1))


def test_builtin_scales_the_gradient_first_so_that_nothing_overflows() -> None:
    given = tensors([3e38] * 4, [-1] * 4, [1] * 4, SINGLE)
    # 3e38 * (ln 1 + 1 + 1) = 6e38 is beyond FLOAT; a quarter of it is not.
    np.testing.assert_allclose(run(BUILTIN, given, reduction=1), [1.5e38] * 4, rtol=1e-6)
