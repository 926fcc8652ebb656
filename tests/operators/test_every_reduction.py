"""What holds for operators that add up elements which they do not round before: the losses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import fsum
from typing import Any

import numpy as np
import pytest

from npucall.compute.work import Work

from .collected import SUBJECTS
from .gradients import FLOATS, title
from .subject import MEAN, NONE, SUM, Given, Subject, Tensors, every, of_one_shape
from .test_every_arrangement import prepared
from .ulp import SINGLE_NOISE, assert_within, ulp

LOSSES = [s for s in SUBJECTS if s.reduces and "reduction" in s.attributes]
EMPTY = [(0,), (0, 3), (3, 0), (2, 0, 4)]
THREADS = 4
each = pytest.mark.parametrize("subject", LOSSES, ids=str)
each_float = pytest.mark.parametrize("kind", FLOATS, ids=title)


def drawn(subject: Subject, shape: tuple[int, ...], kind: Any = np.float32) -> Tensors:
    """All inputs of this shape and dtype."""
    (given,) = every(*of_one_shape(" ".join(p.name for p in subject.operator.inputs), shape))
    return subject.draw(kind, given)


def reduced(subject: Subject, tensors: Tensors, reduction: int) -> Any:
    """What the elements, as float32 has them, add up to, rounded once by the kernel."""
    wide = {n: a.astype(np.float32) if a.dtype.kind != "i" else a for n, a in tensors.items()}
    elements = subject.run(wide, reduction=NONE).astype(np.float64)
    kernel: Any = prepared(subject, tensors, {**subject.attributes}).kernel_dtype
    total = np.float64(fsum(elements.flat)) * factor(elements.size, reduction)
    with np.errstate(over="ignore"):
        rounded = total.astype(kernel.numpy).astype(tensors["self"].dtype)
    return np.asarray(rounded, np.float64)


def factor(count: int, reduction: int) -> float:
    """As the device has it: in float32."""
    return float(np.float32(1 / count)) if reduction == MEAN else 1.0


@each
@each_float
@pytest.mark.parametrize("shape", [(12, 17), (2 * Work.block + 3,), (3, 1, 2)], ids=str)
def test_elements_are_added_up_unrounded_and_the_sum_is_rounded_once(
    subject: Subject, kind: Any, shape: tuple[int, ...]
) -> None:
    tensors = drawn(subject, shape, kind)
    for reduction in (MEAN, SUM):
        found = subject.run(tensors, reduction=reduction)
        assert found.dtype == kind
        expected = reduced(subject, tensors, reduction)
        assert_within(found, expected, ulp(expected, kind) + SINGLE_NOISE * np.abs(expected))


@each
def test_many_threads_get_the_same_sum_of_several_blocks(subject: Subject) -> None:
    tensors = drawn(subject, (5 * Work.block + 7,))
    expected = subject.run(tensors, reduction=SUM).tobytes()
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda _: subject.run(tensors, reduction=SUM), range(THREADS))
        assert [array.tobytes() for array in found] == [expected] * THREADS


@each
@each_float
def test_of_nothing_the_mean_is_nan_and_the_sum_0(subject: Subject, kind: Any) -> None:
    for shape in EMPTY:
        tensors = drawn(subject, shape, kind)
        for reduction, expected in ((MEAN, np.nan), (SUM, 0)):
            found = subject.run(tensors, reduction=reduction)
            assert (found.shape, found.dtype) == ((), kind)
            np.testing.assert_array_equal(found.astype(np.float32), expected)


@pytest.mark.parametrize("subject", [s for s in LOSSES if s.stretches], ids=str)
def test_an_input_that_is_empty_alone_makes_a_loss_of_nothing(subject: Subject) -> None:
    for name in (p.name for p in subject.operator.inputs):
        shapes = {**{p.name: (1, 1) for p in subject.operator.inputs}, name: (0, 3)}
        tensors = subject.draw(np.float16, Given(shapes=shapes))
        assert np.isnan(subject.run(tensors, reduction=MEAN))
        assert subject.run(tensors, reduction=SUM) == 0


@each
@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 3), (2,) * 8], ids=str)
def test_every_rank_up_to_8_has_the_sum_of_its_elements(
    subject: Subject, shape: tuple[int, ...]
) -> None:
    tensors = drawn(subject, shape)
    flat = {name: array.reshape(-1) for name, array in tensors.items()}
    for reduction in (MEAN, SUM):
        found = subject.run(tensors, reduction=reduction)
        assert found.shape == ()
        assert found.tobytes() == subject.run(flat, reduction=reduction).tobytes()
