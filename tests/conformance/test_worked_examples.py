"""The worked examples E1 to E12 and F1 to F13, to all their digits [src:worked-examples]."""

from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import npucall_client
from npucall.compute.evaluate import compute
from npucall.dtypes import FLOAT
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.kl_div_target_backward_community import kl_div_target_backward_community
from npucall.operators.kl_div_target_backward_documented import kl_div_target_backward_documented
from npucall.tensors import TensorSpec
from npucall.wire.calls import encode
from npucall_client import Client

from . import raw
from .forward_examples import BATCHMEAN, EXAMPLES, HALF, INF, MEAN, NONE, SINGLE, Example
from .forward_examples import LOGARITHMS as LOGS
from .raw import KL, KL_TARGET, L1, OUTPUTS

BF16, NAN = ml_dtypes.bfloat16, float("nan")
HALF_DIGIT = 0.5e-8
"""The examples have eight decimals."""


def gradient(
    name: str,
    operator: str,
    tensors: tuple[Any, ...],
    expected: Any,
    variant: str = "",
    **more: Any,
) -> Example:
    """A call of a gradient of tensors gradOutput, self and target."""
    given = {n: np.asarray(t, float) for n, t in zip(INPUTS, tensors, strict=True)}
    output = {"out": "out", "grad_input": "gradInput", "grad_target": "gradTarget"}
    outputs = {output[OUTPUTS[operator]]: expected}
    return Example(name, operator, given, {"reduction": MEAN, **more}, outputs, variant=variant)


INPUTS = ("gradOutput", "self", "target")
A = ([[2, 3], [5, 8]],) * 3
S = np.log([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
T = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]
COLUMN, WIDER = [[-1], [-2]], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]
E2 = [[-0.61370564, -2.70416313], [-11.95281044, -39.36446767]]
E5 = [[-0.12262648, -0.04511176, -0.20217689], [-0.01659569, -0.33333333, -0.25960026]]
E8 = [[0.28235791, 0.02749282, 0.17319987], [-0.01321062, 0.73465760, 0.43256951]]
E8_DOCUMENTED = [[0.84707372, 0.08247845, 0.51959962], [-0.03963186, 2.20397280, 1.29770853]]
E9 = (np.full((2, 2), 4), [[-1, -2], [0.5, -0.5]], [[0, 0.5], [1, 0.25]])
OF_E9 = {
    "community": [[0, 2.30685282], [0.5, 0.11370564]],
    "builtin": [[NAN, 2.30685282], [0.5, 0.11370564]],
    "documented": [[0, 4.61370564], [1, 0.22741128]],
}
OF_E8 = {"builtin": E8, "community": E8, "documented": E8_DOCUMENTED}  # by 2 instead of 6
UP = [[1, 2, 3], [-1, -2, -3]]
E4 = [[-0.1, -0.15, -0.25], [-0.3, -0.15, -0.05]]
GRADIENTS = [
    gradient("E1", KL, A, [[-4, -9], [-25, -64]], reduction=NONE),
    *(gradient("E2", KL_TARGET, A, E2, variant, reduction=NONE) for variant in OF_E8),
    gradient("E3", L1, A, np.zeros((2, 2)), reduction=NONE),
    gradient("E4", KL, (1, S, T), E4, reduction=BATCHMEAN),
    gradient("E5", KL, (2, S, LOGS), E5, logTarget=True),
    gradient("E6 none", KL, (UP, COLUMN, WIDER), [[-1.4], [3.2]], reduction=NONE),
    gradient("E6 mean", KL, (6, COLUMN, WIDER), [[-0.6], [-1.5]]),  # N = 6, not 2 and not 3
    gradient("E7", KL, (1, [[0, 0]], [[1, 2], [3, 4], [5, 6]]), [[-3, -4]], reduction=BATCHMEAN),
    *(gradient("E8", KL_TARGET, (2, S, LOGS), r, v, logTarget=True) for v, r in OF_E8.items()),
    *(gradient("E9", KL_TARGET, E9, r, v) for v, r in OF_E9.items()),
    gradient("E10", L1, (12, [[1, 2, 3]], [[2], [2]]), [[-2, 0, 2], [-2, 0, 2]]),
]
EXACT = {  # of FLOAT16, before it is rounded; the document computes F12 in FLOAT
    "F12 aclnnMseLoss": 4.36172867,
    "F12 aclnnKlDiv": -3.43208170,
    "F13 aclnnMseLoss": 30000,
    "F13 aclnnL1Loss": 120000,
}


def test_examples_have_the_digits_of_the_document(client: Client) -> None:
    wrong: list[str] = []
    for example in (*GRADIENTS, *EXAMPLES):
        with suppress(*raw.ABSENT):
            calling = client.options(outputs=example.outputs())
            asked: Any = example.operator if example.variant else example.operator_name
            answer = calling.execute(asked, **example.arguments())
            wrong += example.differences(answer.outputs, example.rounding)
    assert not wrong


def test_examples_in_double_have_every_digit_of_the_document() -> None:
    wrong = []
    for example in (*GRADIENTS, *EXAMPLES):
        found = compute(example.operator, **example.arguments(np.float64))
        if example.dtype is HALF:
            if abs(float(found) - EXACT[str(example)]) > 1e-7:
                wrong.append(f"{example}: found {found}")
        else:
            wrong += example.differences(example.outputs_of(found))
    assert not wrong


def test_on_ascend_950_the_rows_of_log_alpha_are_not_padded() -> None:
    (example,) = [each for each in EXAMPLES if "logAlphaOut" in each.expected]
    with npucall_client.connect("local:", soc="Ascend950PR_9589") as client:
        found = client.execute(example.operator_name, **example.arguments()).outputs
    unpadded = np.asarray(example.expected["logAlphaOut"])[..., :3]
    np.testing.assert_allclose(found["log_alpha_out"], unpadded, rtol=0, atol=1e-6)
    assert unpadded[0, 0, 2] == -INF


def test_e11_and_e12_are_rounded_once(client: Client) -> None:
    g, t = np.full(3, 3.3, HALF), np.full(3, 0.7, HALF)
    np.testing.assert_allclose(
        [float(g[0]), float(t[0])], [3.30078125, 0.70019531], atol=HALF_DIGIT
    )
    found = client.run(kl_div_backward, g, t, t, reduction=MEAN)
    assert found.dtype == HALF
    np.testing.assert_allclose(found.astype(float), [-0.77050781] * 3, rtol=0, atol=HALF_DIGIT)
    assert found[0] != HALF(-0.77001953)  # what rounding every step gives, one ulp away
    g, t = np.full(3, 3.3, BF16), np.full(3, 0.7, BF16)
    assert (float(g[0]), float(t[0])) == (3.296875, 0.69921875)
    found = client.run(kl_div_backward, g, t, t, reduction=MEAN)
    assert found.dtype == BF16
    np.testing.assert_array_equal(found.astype(float), [-0.76953125] * 3)
    values = np.full(3, 300, HALF)  # the mean brings an overflow of FLOAT16 back
    found = client.run(kl_div_backward, values, values, values, reduction=MEAN)
    np.testing.assert_array_equal(found, [-30000] * 3)
    assert np.isinf(client.run(kl_div_backward, values, values, values, reduction=NONE)).all()


def test_every_step_of_the_masked_variants_rounds_to_float16(client: Client) -> None:
    exact = 2.5 * (np.log(0.30004883) + 1 + 1.70019531)
    assert exact == pytest.approx(3.74096314, abs=2e-8)
    # Over three both divide by 3; exactly it is 1.24698771.
    for operator in (kl_div_target_backward_community, kl_div_target_backward_documented):
        for count, reduction, expected in ((1, NONE, 3.74023438), (3, MEAN, 1.24609375)):
            tensors = [np.full(count, value, HALF) for value in (2.5, -1.7, 0.3)]
            with suppress(*raw.ABSENT):
                found = client.run(operator, *tensors, reduction).astype(float)
                np.testing.assert_allclose(found, [expected] * count, rtol=0, atol=HALF_DIGIT)


def test_the_layout_example_finds_its_elements_through_strides_and_offset(client: Client) -> None:
    storage = np.arange(1, 9, dtype=SINGLE)
    target = np.lib.stride_tricks.as_strided(storage[1:], (2, 2), (12, 8))  # strides (3, 2)
    np.testing.assert_array_equal(target, [[2, 4], [5, 7]])
    ones = np.ones((2, 2), SINGLE)
    for keep_layout in (False, True):
        caller = client.options(keep_layout=keep_layout)
        found = caller.run(kl_div_backward, ones, ones, target, reduction=NONE)
        np.testing.assert_array_equal(found, [[-2, -4], [-5, -7]])


def test_the_layout_example_travels_as_storage_with_strides_and_offset(client: Client) -> None:
    ones = TensorSpec(FLOAT, (2, 2))
    target = TensorSpec(FLOAT, (2, 2), strides=(3, 2), offset=1, storage_shape=(8,))
    arguments: raw.Arguments = {"grad_output": ones, "self": ones, "target": target}
    call = encode(KL, "", {**arguments, "reduction": NONE}, ("grad_output", "target"))
    storage = {  # self is not read
        "grad_output": np.ones(4, "<f4").tobytes(),
        "target": np.arange(1, 9, dtype="<f4").tobytes(),
    }
    (out,) = raw.execute_bytes(client, call, storage).storage
    np.testing.assert_array_equal(np.frombuffer(out, "<f4"), [-2, -4, -5, -7])  # type: ignore[arg-type]
