"""Which calls the doctor tries: together they have all that the operators of a host have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.more import only

from npucall.declare.catalogue import Catalogue
from npucall.declare.parameters import Attribute
from npucall.operators import CATALOGUE
from npucall.products import A2, ASCEND_310, PRODUCTS
from npucall_server.doctor.kinds import Trial, call_of_shape, of_every_operator, summary, trials

if TYPE_CHECKING:
    from npucall.declare.declaration import Operator
    from npucall.products import Product


class Everything(Catalogue):
    """A host that has all declared operators, of the variant builtin."""

    def __init__(self) -> None:
        super().__init__(CATALOGUE)

    def unavailable_because(self, operator: Operator[Any, Any]) -> str:
        return "another variant" if operator.variant not in ("", "builtin") else ""


class Libraries:
    path = "/lib64/libopapi.so"

    def find(self, _: str) -> Any:
        return self, False


HOST: Any = Everything()
each = pytest.mark.parametrize("product", only(*(p for p in PRODUCTS if p != ASCEND_310)), ids=str)


def chosen(product: Product) -> list[Trial]:
    libraries: Any = Libraries()
    return trials(HOST, libraries, product)


@each
def test_every_kind_of_attribute_of_the_products_operators_is_tried(product: Product) -> None:
    wanted = {
        p.kind
        for operator in CATALOGUE
        if operator.dtypes_on(product)
        for p in operator.parameters
        if isinstance(p, Attribute)
    }
    tried = {p.kind for trial in chosen(product) for p in trial.call.operator.attributes}
    assert tried == wanted


@each
def test_every_dtype_of_the_products_operators_is_tried(product: Product) -> None:
    wanted = {f"dtypes: {d}" for o in CATALOGUE for d in o.dtypes_on(product)}
    if not product.bfloat16:
        wanted.discard("dtypes: BF16")
    tried = frozenset[str]().union(*(trial.kinds for trial in chosen(product)))
    assert wanted <= tried


@each
def test_optional_tensors_views_and_several_outputs_are_tried(product: Product) -> None:
    tried = frozenset[str]().union(*(trial.kinds for trial in chosen(product)))
    parameters = {
        "an optional tensor", "a null tensor", "a tensor that is not read", "2 outputs",
        "views", "rank 0", "no elements",
    }  # fmt: skip
    assert tried >= {f"parameters: {kind}" for kind in parameters} | {"libraries: libopapi.so"}


@each
def test_few_calls_are_enough_and_none_is_for_nothing(product: Product) -> None:
    every = chosen(product)
    assert len(every) <= 20
    assert len({trial.title for trial in every}) == len(every)


@each
def test_simple_calls_come_first(product: Product) -> None:
    odd = [trial.form.name in ("VIEWS", "SCALARS", "EMPTY") for trial in chosen(product)]
    assert odd == sorted(odd)


def test_a_product_without_operators_has_no_calls() -> None:
    assert chosen(ASCEND_310) == []
    assert of_every_operator(HOST, ASCEND_310) == []
    assert call_of_shape(HOST, ASCEND_310, (4,)) is None


@each
def test_every_operator_of_a_product_is_planned_once(product: Product) -> None:
    names = [call.operator.name for call in of_every_operator(HOST, product)]
    assert names == sorted({*names}, key=names.index)
    assert {*names} == {o.name for o in CATALOGUE if o.dtypes_on(product)}


@each
def test_a_call_of_any_shape_is_found(product: Product) -> None:
    call = call_of_shape(HOST, product, (1 << 16,))
    assert call is not None
    assert {spec.shape for spec in call.outputs.values()} == {(1 << 16,)}


def test_the_summary_groups_what_calls_have() -> None:
    first, *_ = chosen(A2)
    trial = first._replace(kinds=frozenset({"dtypes: INT8", "parameters: bool", "dtypes: BF16"}))
    assert summary([trial, trial]) == "dtypes: BF16, INT8\nparameters: bool"


def test_nothing_is_listed_by_name() -> None:
    text = Path(trials.__code__.co_filename).read_text()
    assert "aclnn" not in text
