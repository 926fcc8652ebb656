"""Every operator has a small valid call, on each product and in each dtype that it takes there."""

from functools import cache
from typing import Any

import numpy as np
from tests.rows import each

from npucall.compute import evaluate
from npucall.declare.call import parameter_of
from npucall.declare.declaration import Operator
from npucall.declare.prepare import Prepared
from npucall.declare.samples import Form, sample, sample_storages
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.tensors import view

each_case = each("operator", list(CATALOGUE))


@cache
def calls(operator: Operator[Any, Any], form: Form = Form.ORDINARY) -> list[Prepared]:
    """Its samples; one that the dtypes of a product are refused for is left out."""
    return [
        sample(operator, product, CATALOGUE, dtype, form)
        for product in {**operator.products, **operator.legacy}
        for dtype in operator.dtypes_on(product)
        if product.bfloat16 or dtype.name != "BF16"
    ]


def results(call: Prepared, seed: int) -> list[np.ndarray[Any, Any]]:
    storages = evaluate.run(call, sample_storages(call, seed))
    return [view(s, b) for s, b in zip(call.outputs.values(), storages, strict=True)]


@each_case
@each("form", [Form.ORDINARY, Form.BARE, Form.VIEWS])
def test_the_sample_is_valid_and_gives_other_finite_numbers_for_each_seed(
    operator: Operator[Any, Any], form: Form
) -> None:
    # The first of each kernel: a quotient of two truth values is 1 whatever the seed.
    one_of_each_dtype = {call.kernel_dtype: call for call in reversed(calls(operator, form))}
    for call in [*one_of_each_dtype.values()][: None if form is Form.ORDINARY else 1]:
        first, second = results(call, 1), results(call, 2)
        for name, one, other in zip(call.outputs, first, second, strict=True):
            impossible = one == -np.inf  # logarithms of no probability
            assert np.isfinite(one[~impossible].astype(np.complex128)).all()
            assert one.tobytes() != other.tobytes() or name in call.unwritten


@each_case
def test_all_but_the_bare_sample_have_every_optional_input(operator: Operator[Any, Any]) -> None:
    allowed = {p.name for p in operator.inputs} - {*operator.sample.without}
    optional = {p.name for p in operator.inputs if p.optional} - {*operator.sample.kept}
    assert all({*map(parameter_of, call.inputs)} == allowed for call in calls(operator))
    bare = calls(operator, Form.BARE)
    assert all({*map(parameter_of, call.inputs)} == allowed - optional for call in bare)


@each_case
def test_a_view_is_no_dense_tensor_and_its_outputs_are_views_too(
    operator: Operator[Any, Any],
) -> None:
    for call in calls(operator, Form.VIEWS):
        for name, spec in {**call.inputs, **call.outputs}.items():
            assert spec.row_major == (name in operator.sample.dense) == (not spec.offset)


@each("form", [Form.SCALARS, Form.EMPTY])
def test_some_operators_have_samples_of_rank_0_and_without_elements(form: Form) -> None:
    found = []
    for operator in CATALOGUE:
        try:
            found += calls(operator, form)
        except NpucallError:
            continue
    assert len(found) > len(list(CATALOGUE)) // 2
    for call in found:
        shapes = [spec.shape for spec in call.inputs.values()]
        assert all(shape == () if form is Form.SCALARS else 0 in shape for shape in shapes)


@each_case
def test_a_sample_names_parameters_that_are_there(operator: Operator[Any, Any]) -> None:
    own = operator.sample
    inputs = {parameter.name for parameter in operator.given}
    assert {*own.shapes, *own.dtypes, *own.without, *own.kept} <= inputs
    assert own.attributes.keys() <= {parameter.name for parameter in operator.attributes}
