"""The gradients of activations where they bend or end, and for what no formula likes: as torch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute

from .collected import SUBJECTS
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import Given, Subject

NAMES = {
    *("aclnnLeakyReluBackward", "aclnnEluBackward", "aclnnHardswishBackward"),
    *("aclnnHardswishBackwardV2", "aclnnHardsigmoidBackward", "aclnnHardtanhBackward"),
    "aclnnSoftplusBackward",
}
CALLS = [
    pytest.param(subject, given, id=f"{subject} {given}")
    for subject in SUBJECTS
    if subject.operator.name in NAMES
    for given in subject.calls
]
each = pytest.mark.parametrize(("subject", "given"), CALLS)
# Where any of them bends or ends, numbers between, and those that no formula likes.
INPUTS = [
    *(-INF, -200.0, -20.0, -3.5, -3.0, -2.9375, -2.0, -1.0, -0.5, -0.0, 0.0, 0.4375),
    *(0.625, 1.0, 2.0, 2.9375, 3.0, 3.5, 6.0, 20.0, 20.0625, 200.0, INF, NAN),
]


def grid(subject: Subject, gradients: list[float]) -> tuple[Any, Any]:
    """Every gradient with every input at which the operator is torch's."""
    pairs = [(g, x) for g, x in product(gradients, INPUTS) if not differs(subject, g, x)]
    g, x = np.array(pairs).T
    return g.copy(), x.copy()


def differs(subject: Subject, g: float, x: float) -> bool:
    """At its ends, and where an infinite gradient is multiplied and torch has 0."""
    first = subject.operator.name == "aclnnHardswishBackward"
    return first and (abs(x) == 3 or (x < -3 and not np.isfinite(g)))


def tensors_of(subject: Subject, g: Any, x: Any) -> dict[str, Any]:
    return {"grad_output": g, subject.operator.inputs[1].name: x}


def torch_one_by_one(subject: Subject, given: Given, g: Any, x: Any) -> Any:
    """Without vectors of several numbers, for which torch has other rules of NaN."""
    pytest.importorskip("torch")
    assert subject.torch is not None
    attributes = {**subject.attributes, **given.attributes}
    pairs = (tensors_of(subject, g[i : i + 1], x[i : i + 1]) for i in range(len(g)))
    return np.concatenate([subject.torch(pair, **attributes) for pair in pairs])


@pytest.mark.torch
@each
def test_edge_values_are_torchs_in_float64(subject: Subject, given: Given) -> None:
    g, x = grid(subject, [2.0, -0.75, 0.0, INF, -INF, NAN])
    attributes = {**subject.attributes, **given.attributes}
    found = compute(subject.operator, **tensors_of(subject, g, x), **attributes)
    np.testing.assert_allclose(found, torch_one_by_one(subject, given, g, x), rtol=1e-13)


@pytest.mark.torch
@each
@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_edge_values_are_torchs_in_every_float_type(
    subject: Subject, given: Given, kind: Any
) -> None:
    g, x = grid(subject, [1.0, -1.0, INF, NAN])
    narrow = np.abs(x) != 200  # e^200 is a number in float64 alone
    g, x = g[narrow], x[narrow]
    expected = torch_one_by_one(subject, given, g, x)
    attributes = {**subject.attributes, **given.attributes}
    tensors = tensors_of(subject, g.astype(kind), x.astype(kind))
    found = LOCAL.run(subject.operator, **tensors, **attributes).astype(np.float64)
    special = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(found[special], expected[special])
    assert np.isfinite(found[~special]).all()
