"""Activations where they bend or end, and for what no formula likes: as torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute

from .collected import SUBJECTS
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import Given, Subject

NAMES = {
    *("aclnnSigmoid", "aclnnTanh", "aclnnThreshold", "aclnnLeakyRelu", "aclnnElu"),
    *("aclnnHardswish", "aclnnHardsigmoid", "aclnnHardtanh", "aclnnSoftplus"),
}
CURVES = [subject for subject in SUBJECTS if subject.operator.name in NAMES]
each = pytest.mark.parametrize("subject", CURVES, ids=str)
# Where any of them bends or ends, numbers between, and those that no formula likes.
INPUTS = [
    *(-INF, -200.0, -20.0, -3.5, -3.0, -2.9375, -2.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.4375),
    *(0.625, 1.0, 2.0, 2.9375, 3.0, 3.5, 6.0, 20.0, 20.0625, 200.0, INF, NAN),
]


def torch_one_by_one(subject: Subject, given: Given, x: Any) -> Any:
    """Without vectors of several numbers, for which torch has other rules of NaN."""
    pytest.importorskip("torch")
    assert subject.torch is not None
    attributes = {**subject.attributes, **given.attributes}
    singles = ({"self": x[i : i + 1]} for i in range(len(x)))
    return np.concatenate([subject.torch(single, **attributes) for single in singles])


def test_there_are_nine() -> None:
    assert {subject.operator.name for subject in CURVES} == NAMES


@pytest.mark.torch
@each
def test_edge_values_are_torchs_in_float64(subject: Subject) -> None:
    x = np.array(INPUTS)
    for given in subject.calls:
        attributes = {**subject.attributes, **given.attributes}
        found = compute(subject.operator, self=x, **attributes)
        expected = torch_one_by_one(subject, given, x)
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-17, err_msg=str(given))


@pytest.mark.torch
@each
@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_edge_values_are_torchs_in_every_float_type(subject: Subject, kind: Any) -> None:
    x = np.array([number for number in INPUTS if abs(number) != 200])  # e^200
    for given in subject.calls:
        expected = torch_one_by_one(subject, given, x)
        attributes = {**subject.attributes, **given.attributes}
        found = LOCAL.run(subject.operator, x.astype(kind), **attributes).astype(np.float64)
        special = ~np.isfinite(expected) | (expected == 0)
        np.testing.assert_array_equal(found[special], expected[special], err_msg=str(given))
        assert np.isfinite(found[~special]).all(), given
