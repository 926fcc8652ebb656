"""Which calls the doctor tries: together they have all that the operators of a host have."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.more import only

from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator
from npucall.declare.parameters import Attribute
from npucall.operators import CATALOGUE
from npucall.products import ASCEND_310, PRODUCTS, Product
from npucall_server.commands.doctor.kinds import call_of_shape, of_every_operator, trials


class FakeHost(Catalogue):
    """A host that has all declared operators, of the variant builtin, in one library."""

    path = "/lib64/libopapi.so"

    def __init__(self) -> None:
        super().__init__(CATALOGUE)

    def unavailable_because(self, operator: Operator[Any, Any]) -> str:
        return "another variant" if operator.variant not in ("", "builtin") else ""


class FakeLibraries:
    def find(self, _: str) -> Any:
        return HOST, False


HOST: Any = FakeHost()
LIBRARIES: Any = FakeLibraries()
PARAMETERS = {
    "Input True read optional", "Input False read optional", "Input True ", "Output True ",
    "form views", "form rank 0", "form no elements", "library libopapi.so",
}  # fmt: skip
"""An optional input that is given, and one that is not; an input that is not read; odd forms."""
each = pytest.mark.parametrize("product", only(*(p for p in PRODUCTS if p != ASCEND_310)), ids=str)


@each
def test_few_calls_try_everything_that_the_products_operators_have(product: Product) -> None:
    chosen = trials(HOST, LIBRARIES, product)
    operators = [operator for operator in CATALOGUE if operator.dtypes_on(product)]
    kinds = {p.kind for o in operators for p in o.parameters if isinstance(p, Attribute)}
    assert {p.kind for trial in chosen for p in trial.call.operator.attributes} == kinds
    wanted = {f"dtype {dtype}" for o in operators for dtype in o.dtypes_on(product)}
    if not product.bfloat16:
        wanted.discard("dtype BF16")
    tried = frozenset[str]().union(*(trial.kinds for trial in chosen))
    wanted |= PARAMETERS
    assert wanted <= tried
    assert 2 * len(chosen) < len(tried)
    tries = Counter(kind for trial in chosen for kind in trial.kinds)
    assert all(1 in map(tries.get, trial.kinds) for trial in chosen)  # none could be left out
    assert len({trial.title for trial in chosen}) == len(chosen)
    odd = [trial.form.name in ("VIEWS", "SCALARS", "EMPTY") for trial in chosen]
    assert odd == sorted(odd)  # simple calls come first


@each
def test_every_operator_of_a_product_is_planned_once_and_a_call_of_any_shape_found(
    product: Product,
) -> None:
    names = [call.operator.name for call in of_every_operator(HOST, product)]
    assert names == sorted({*names}, key=names.index)
    assert {*names} == {o.name for o in CATALOGUE if o.dtypes_on(product)}
    call = call_of_shape(HOST, product, (1 << 16,))
    assert call is not None
    assert {spec.shape for spec in call.outputs.values()} == {(1 << 16,)}


def test_a_product_without_operators_has_no_calls() -> None:
    assert trials(HOST, LIBRARIES, ASCEND_310) == []
    assert of_every_operator(HOST, ASCEND_310) == []
    assert call_of_shape(HOST, ASCEND_310, (4,)) is None


def test_nothing_is_listed_by_name() -> None:
    assert "aclnn" not in Path(trials.__code__.co_filename).read_text()
