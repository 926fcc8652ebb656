"""What holds for every operator: memory order, gaps, cuts of blocks, threads, ranks and empties."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import evaluate
from npucall.compute.work import Work
from npucall.declare.call import Call
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BY_NUMPY
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec

from .arrangements import (
    LAYOUTS,
    assert_gaps_survive,
    assert_layout_does_not_show,
)
from .collected import SUBJECTS
from .gradients import FLOATS, LOCAL, title
from .subject import MEAN, Given, Subject, Tensors, every, of_one_shape

THREADS = 4
ELEMENTWISE = [subject for subject in SUBJECTS if subject.elementwise]
each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)
each_elementwise = pytest.mark.parametrize("subject", ELEMENTWISE, ids=str)
each_float = pytest.mark.parametrize("kind", FLOATS, ids=title)


@each
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_memory_order_of_the_inputs_does_not_show(subject: Subject, layout: str) -> None:
    tensors = subject.draw(np.float32)
    assert_layout_does_not_show(subject.operator, tensors, layout, **subject.attributes)


@each
def test_outputs_with_gaps_are_written_between_them(subject: Subject) -> None:
    assert_gaps_survive(subject.operator, subject.draw(np.float32), **subject.attributes)


@each_elementwise
def test_an_input_with_strides_of_0_is_read_as_if_it_were_full(subject: Subject) -> None:
    tensors = subject.draw(np.float32)
    for name, array in tensors.items():
        stretched = np.broadcast_to(np.float32(0.25), array.shape)
        found = subject.run({**tensors, name: stretched}, LOCAL.options(keep_layout=True))
        expected = subject.run({**tensors, name: stretched.copy()})
        np.testing.assert_array_equal(found, expected)


@each
@each_float
def test_blocks_of_any_length_give_the_same_bits(subject: Subject, kind: Any) -> None:
    for given in arranged(subject):
        attributes = {**subject.attributes, **given.attributes}
        tensors = subject.draw(kind, given)
        call = prepared(subject, tensors, attributes)
        whole = evaluated(call, tensors, None)
        for block in (1, 3, 7, 64):
            assert bits(evaluated(call, tensors, block)) == bits(whole)


def arranged(subject: Subject) -> list[Given]:
    """The first of a subject's calls for each arrangement of shapes and dimension."""
    ordered = sorted(subject.calls, key=arrangement)
    return [next(group) for _, group in groupby(ordered, arrangement)]


def arrangement(given: Given) -> str:
    return f"{given.shapes} {given.attributes.get('dim')}"


def evaluated(call: Prepared, tensors: Tensors, block: int | None) -> list[Any]:
    """The outputs of a call, computed over memory that held something else."""
    outputs = {n: np.full(s.shape, 7, s.dtype.numpy) for n, s in call.outputs.items()}
    evaluate(call, tensors, outputs, block=block)
    return list(outputs.values())


def prepared(subject: Subject, tensors: Tensors, attributes: dict[str, Any]) -> Prepared:
    """The call on an Atlas A2, its attributes as the C function takes them."""
    specs = {n: TensorSpec(BY_NUMPY[a.dtype], a.shape) for n, a in tensors.items()}
    declared = {**subject.table.attributes, **attributes}
    values = {
        a.name: subject.table.attributes[a.name] if a in subject.scalars else declared[a.name]
        for a in subject.operator.attributes
        if a.name in declared
    }
    return prepare(Call(subject.operator, {**specs, **values}, tuple(tensors)), A2, CATALOGUE)


@each_elementwise
@pytest.mark.parametrize("size", [Work.block + 1, 2 * Work.block + 3])
def test_a_call_of_several_blocks_gives_the_bits_of_its_parts_also_to_many_threads(
    subject: Subject, size: int
) -> None:
    (given,) = every(*of_one_shape(" ".join(p.name for p in subject.operator.inputs), (size,)))
    tensors = subject.draw(np.float32, given)
    cuts = range(0, size, 40_000)  # no divisor of the length of a block
    parts = [
        subject.run({n: a[start : start + 40_000] for n, a in tensors.items()}, **subject.unscaled)
        for start in cuts
    ]
    expected = np.concatenate(parts).tobytes()
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda _: subject.run(tensors, **subject.unscaled), range(THREADS))
        assert [array.tobytes() for array in found] == [expected] * THREADS


@pytest.mark.parametrize(
    "subject",
    [s for s in ELEMENTWISE if s.attributes.get("reduction") == MEAN and not s.reduces],
    ids=str,
)
@pytest.mark.parametrize("size", [Work.block, Work.block + 3])
def test_a_mean_counts_all_elements_and_not_those_of_a_block(subject: Subject, size: int) -> None:
    (given,) = every(*of_one_shape(" ".join(p.name for p in subject.operator.inputs), (size,)))
    tensors = subject.draw(np.float32, given)
    few = subject.run({name: array[:8] for name, array in tensors.items()}, **subject.unscaled)
    np.testing.assert_allclose(subject.run(tensors)[:8], few / size, rtol=1e-6)


# --- Shapes ---------------------------------------------------------------------------------------


@each_elementwise
@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 3), (2,) * 8], ids=str)
def test_every_rank_up_to_8_is_computed_alike(subject: Subject, shape: tuple[int, ...]) -> None:
    (given,) = every(*of_one_shape(" ".join(p.name for p in subject.operator.inputs), shape))
    tensors = subject.draw(np.float32, given)
    found = subject.run(tensors, **subject.unscaled)
    flat = {name: array.reshape(-1) for name, array in tensors.items()}
    assert found.shape == shape
    assert found.tobytes() == subject.run(flat, **subject.unscaled).tobytes()


@each_elementwise
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)], ids=str)
def test_empty_tensors_give_an_empty_output(subject: Subject, shape: tuple[int, ...]) -> None:
    (given,) = every(*of_one_shape(" ".join(p.name for p in subject.operator.inputs), shape))
    tensors = subject.draw(np.float16, given)
    found = subject.run(tensors, **subject.whole)
    assert (found.shape, found.dtype) == (shape, np.float16)
    done = prepared(subject, tensors, subject.whole).done
    assert done is not subject.computes_empty


STRETCHING = pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.stretches], ids=str)


@STRETCHING
def test_inputs_broadcast_and_nothing_is_summed(subject: Subject) -> None:
    names = [p.name for p in subject.operator.inputs]
    for turn in range(len(names)):
        shapes = ((4, 1), (6,), *[(2, 1, 1)] * (len(names) - 2))
        turned = dict(zip(names, shapes[turn:] + shapes[:turn], strict=True))
        tensors = subject.draw(np.float32, Given(shapes=turned))
        full = dict(zip(tensors, map(np.copy, np.broadcast_arrays(*tensors.values())), strict=True))
        found = subject.run(tensors, **subject.unscaled)
        assert found.shape == np.broadcast_shapes(*shapes)
        np.testing.assert_array_equal(found, subject.run(full, **subject.unscaled))


@STRETCHING
def test_any_empty_input_gives_an_empty_output(subject: Subject) -> None:
    names = [p.name for p in subject.operator.inputs]
    for name in names:
        shapes = {**dict.fromkeys(names, (1, 1)), name: (0, 3)}
        found = subject.run(subject.draw(np.float16, Given(shapes=shapes)), **subject.whole)
        assert found.shape == (0, 3)


def bits(arrays: list[Any]) -> list[bytes]:
    return [np.ascontiguousarray(array).tobytes() for array in arrays]
