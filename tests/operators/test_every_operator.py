"""What holds for every operator: a new one is tried by all of it without being listed anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.operators import CATALOGUE
from npucall.products import PRODUCTS
from npucall.tensors import TensorSpec

from .arrangements import (
    SOC_OF,
    dtypes_taken,
    results,
)
from .collected import SUBJECTS
from .gradients import BF16, FLOATS, LOCAL, title
from .subject import MEAN, WITH_BF16, WITHOUT_BF16, Given, Subject, Tensors
from .ulp import SINGLE_NOISE, assert_within, ulp

if TYPE_CHECKING:
    from npucall_client import Client

    from .faults import Fault, Table

TABLES = [table for subject in SUBJECTS for table in (subject.table, *subject.tables)]
WITH_TORCH = [subject for subject in SUBJECTS if subject.torch]
CALLS = [pytest.param(s, call, id=f"{s} {call}") for s in WITH_TORCH for call in s.calls]
each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)
each_float = pytest.mark.parametrize("kind", FLOATS, ids=title)
# torch warns of shapes that broadcast, and that its "mean" will change some day; npucall of values
# that CANN takes for another one.
warned = pytest.mark.filterwarnings(
    "ignore:Using a target size", "ignore:reduction. 'mean' divides",
    "ignore::npucall_client.CallWarning",
)  # fmt: skip


# --- Declaration ----------------------------------------------------------------------------------


def test_every_operator_of_the_catalogue_has_a_test_module_with_a_subject() -> None:
    assert sorted(map(str, SUBJECTS)) == sorted(operator.title for operator in CATALOGUE)


@each
def test_the_prototype_is_that_of_the_documents(subject: Subject) -> None:
    assert subject.operator.prototype == (
        f"aclnnStatus {subject.operator.name}GetWorkspaceSize({subject.prototype}, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@each
def test_the_products_are_those_of_the_documents_and_others_are_legacy(subject: Subject) -> None:
    others = {*WITHOUT_BF16} - {*subject.documented}
    assert set(subject.operator.products) == {*subject.documented}
    assert set(subject.operator.legacy) == (others if subject.legacy is None else {*subject.legacy})


@each
def test_every_product_takes_the_dtypes_of_the_documents(subject: Subject) -> None:
    table = subject.table
    floats = tuple(name for name, spec in table.call().arguments.items() if is_float(spec))
    has = {*subject.operator.products, *subject.operator.legacy}
    expected = {p: subject.newer if p in WITH_BF16 else subject.older for p in PRODUCTS if p in has}
    tables = {each.soc: each for each in subject.tables}
    taken = {
        p: dtypes_taken(tables.get(SOC_OF[p], table), subject.typed or floats, SOC_OF[p])
        for p in PRODUCTS
    }
    assert taken == {p: {*expected.get(p, "").split()} for p in PRODUCTS}


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if "reduction" in s.attributes], ids=str)
def test_the_mean_is_the_reduction_unless_one_is_given(subject: Subject) -> None:
    if subject.attributes["reduction"] != MEAN:
        pytest.skip("its reduction has to be given")
    tensors = subject.draw(np.float32)
    given = {n: v for n, v in subject.attributes.items() if n != "reduction"}
    expected = bits(results(subject.run(tensors, reduction=MEAN)))
    assert bits(results(LOCAL.run(subject.operator, **tensors, **given))) == expected
    assert bits(results(subject.run(tensors, **subject.unscaled))) != expected


# --- Defects --------------------------------------------------------------------------------------


each_table = pytest.mark.parametrize("table", TABLES, ids=str)


def wrong(table: Table, *calls: tuple[Fault, ...]) -> dict[str, Any]:
    """The calls whose answer is not that of their first defect, and what they answer."""
    answers = {faults: table.refusal(*faults) for faults in calls}
    return {
        " before ".join(map(str, faults)): answer
        for faults, answer in answers.items()
        if answer != faults[0].answer
    }


@each_table
def test_a_call_without_defects_passes(table: Table) -> None:
    assert table.refusal() is None


@each_table
def test_a_defect_is_refused_with_its_class_status_and_parameter(table: Table) -> None:
    assert not wrong(table, *((fault,) for fault in table.faults))


@each_table
def test_of_two_neighbours_the_one_that_is_checked_first_is_the_answer(table: Table) -> None:
    assert not wrong(table, *table.neighbours())


@each
def test_the_table_has_a_defect_for_every_check(subject: Subject) -> None:
    refusing = set().union(*(t.refusing() for t in (subject.table, *subject.tables)))
    assert refusing >= subject.table.may_refuse() - subject.unreachable
    assert not refusing & subject.unreachable


# --- Values ---------------------------------------------------------------------------------------


CELLS = [
    pytest.param(subject, kind, id=f"{subject} {title(kind)}")
    for subject in SUBJECTS
    if subject.cells
    for kind in subject.cells.kinds
]


@pytest.mark.parametrize(("subject", "kind"), CELLS)
def test_each_element_is_what_the_formula_says_and_its_neighbours_stay_clean(
    subject: Subject, kind: Any
) -> None:
    assert subject.cells is not None
    names = subject.cells.columns.split()
    wrong = []
    for row in subject.cells.rows:
        *given, expected = row
        values = dict(zip(names, given, strict=True))
        attributes, (clean, found) = computed_beside(subject, kind, values)
        assert found.dtype == kind
        rounded = np.array(expected).astype(kind)
        beside = np.array_equal(found[[0, 2]], clean[[0, 2]], equal_nan=True)
        if not beside or not np.array_equal(found[1], rounded, equal_nan=True):
            wrong.append((values, attributes, found, rounded))
    assert not wrong


def computed_beside(subject: Subject, kind: Any, values: dict[str, Any]) -> Any:
    """The results of three elements, with ordinary values in the middle and with these."""
    assert subject.cells is not None
    inputs = [p.name for p in subject.operator.inputs]
    given = {n: v for n, v in values.items() if n not in inputs}
    attributes = {**subject.unscaled, **subject.cells.attributes, **given}
    present = [name for name in inputs if values.get(name, 0.5) is not None]
    ordinary = {name: np.full(3, 0.5, kind) for name in present}
    tried = {name: np.array([0.5, values.get(name, 0.5), 0.5], kind) for name in present}
    return attributes, [subject.run(tensors, **attributes) for tensors in (ordinary, tried)]


@pytest.mark.torch
@warned
@pytest.mark.parametrize(("subject", "given"), CALLS)
def test_in_float64_the_result_is_torchs(subject: Subject, given: Given) -> None:
    pytest.importorskip("torch")
    assert subject.torch is not None
    attributes = {**subject.attributes, **given.attributes}
    tensors = subject.draw(np.float64, given)
    found = results(compute(subject.operator, **tensors, **attributes))
    expected = results(subject.torch(tensors, **attributes))
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (np.float64, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.torch
@warned
@each_float
@pytest.mark.parametrize("subject", WITH_TORCH, ids=str)
def test_rounded_the_result_is_within_an_ulp_of_torchs(subject: Subject, kind: Any) -> None:
    pytest.importorskip("torch")
    for given in subject.calls:
        attributes = {**subject.attributes, **given.attributes}
        tensors = subject.draw(kind, given, seed=2)
        found = results(subject.run(tensors, **given.attributes))
        exact = {n: a.astype(np.float64) if a.dtype == kind else a for n, a in tensors.items()}
        assert_rounded_from(subject, found, exact, attributes, kind)


def assert_rounded_from(
    subject: Subject, found: list[Any], exact: Tensors, attributes: dict[str, Any], kind: Any
) -> None:
    assert subject.torch is not None
    expected = results(subject.torch(exact, **attributes))
    sizes = [np.abs(e) for e in expected]
    if subject.noise is not None:
        sizes = results(subject.noise(exact, subject.torch(exact, **attributes), **attributes))
    noise = SINGLE_NOISE + (subject.half_noise if kind is np.float16 else 0)
    for one, other, size in zip(found, expected, sizes, strict=True):
        assert one.dtype == kind
        assert_within(one, other, ulp(other, kind) + noise * np.asarray(size))


@each
@pytest.mark.parametrize("kind", [np.float16, BF16], ids=title)
def test_short_floats_are_computed_as_float32_and_rounded_once(subject: Subject, kind: Any) -> None:
    if subject.stepwise and kind is np.float16:
        pytest.skip("FLOAT16 is rounded after every step")
    tensors = subject.draw(kind)
    single = {n: a.astype(np.float32) if a.dtype == kind else a for n, a in tensors.items()}
    for one, other in zip(results(subject.run(tensors)), results(subject.run(single)), strict=True):
        assert one.dtype == kind
        np.testing.assert_array_equal(one, other.astype(kind))


@pytest.mark.parametrize(
    ("subject", "kind"),
    [pytest.param(s, kind, id=f"{s} {title(kind)}") for s in SUBJECTS for kind in s.casts],
)
def test_the_result_is_rounded_to_its_own_dtype_and_then_cast_to_that_of_the_output(
    subject: Subject, kind: Any
) -> None:
    tensors = subject.draw(np.float16)
    expected, *_ = results(subject.run(tensors))
    assert expected.dtype == np.float16
    found, *_ = results(subject.run(tensors, out=np.zeros(expected.shape, kind)))
    np.testing.assert_array_equal(found, expected.astype(kind))


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.scalars], ids=str)
def test_every_numpy_number_serves_as_an_aclscalar(subject: Subject) -> None:
    tensors = subject.draw(np.float32)
    for kind in (np.float64, np.float32, np.float16, BF16):
        numbers = {a.name: kind(subject.attributes[a.name]) for a in subject.scalars}
        np.testing.assert_array_equal(subject.run(tensors, **numbers), subject.run(tensors))


@each
def test_compute_answers_what_a_client_gives(subject: Subject) -> None:
    tensors = subject.draw(np.float32)
    computed = results(compute(subject.operator, **tensors, **subject.attributes))
    assert bits(computed) == bits(results(subject.run(tensors)))


@each
def test_every_device_plans_and_answers_what_this_process_does(
    client: Client, subject: Subject
) -> None:
    tensors = subject.draw(np.float16)
    answer = client.execute(subject.operator, **tensors, **subject.of(tensors))
    plan = client.plan(subject.operator, **tensors, **subject.of(tensors))
    expected = results(subject.run(tensors))
    found = results(answer.value)
    assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]
    assert [(spec.shape, spec.dtype.numpy) for spec in plan.outputs.values()] == [
        (array.shape, array.dtype) for array in expected
    ]
    assert plan.kernel_dtype is answer.kernel_dtype
    assert plan.variant == answer.variant == subject.operator.variant
    assert plan.warnings == answer.warnings


def is_float(spec: Any) -> bool:
    return isinstance(spec, TensorSpec) and spec.dtype.name == "FLOAT"


def bits(arrays: list[Any]) -> list[bytes]:
    return [np.ascontiguousarray(array).tobytes() for array in arrays]
