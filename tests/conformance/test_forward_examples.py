"""The worked examples of forward operators, to all their digits, on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import npucall_client
from npucall.compute.evaluate import compute

from .forward_examples import EXAMPLES, HALF, INF

if TYPE_CHECKING:
    from npucall_client import Client

EXACT = {  # of FLOAT16, before it is rounded; the document computes F12 in FLOAT
    "F12 aclnnMseLoss": 4.36172867,
    "F12 aclnnKlDiv": -3.43208170,
    "F13 aclnnMseLoss": 30000,
    "F13 aclnnL1Loss": 120000,
}


def test_examples_have_the_digits_of_the_document(client: Client) -> None:
    wrong = []
    for example in EXAMPLES:
        calling = client.options(outputs=example.outputs())
        answer = calling.execute(example.operator_name, **example.arguments())
        wrong += example.differences(answer.outputs, example.rounding)
    assert not wrong


def test_examples_in_double_have_every_digit_of_the_document() -> None:
    wrong = []
    for example in EXAMPLES:
        tensors = example.arguments(np.float64)
        found = compute(example.operator, **tensors)
        if example.dtype is HALF:
            if abs(float(found) - EXACT[str(example)]) > 1e-7:
                wrong.append(f"{example}: found {found}")
        else:
            wrong += example.differences(example.outputs_of(found))
    assert not wrong


def test_on_ascend_950_the_rows_of_log_alpha_are_not_padded() -> None:
    for example in EXAMPLES:
        if "logAlphaOut" in example.expected:
            with npucall_client.connect("local:", soc="Ascend950PR_9589") as client:
                found = client.execute(example.operator_name, **example.arguments()).outputs
            unpadded = np.asarray(example.expected["logAlphaOut"])[..., :3]
            np.testing.assert_allclose(found["log_alpha_out"], unpadded, rtol=0, atol=1e-6)
            assert unpadded[0, 0, 2] == -INF
