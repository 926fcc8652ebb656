"""Chooses the calls that the doctor tries: few, but with every kind of parameter on this host.

They come from the catalogue, so the doctor also tries new operators and dtypes; no list is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from npucall.declare.declaration import Operator
from npucall.declare.domain import Elementwise
from npucall.declare.prepare import Prepared
from npucall.declare.samples import Form, sample
from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.products import Product
from npucall.tensors import Shape, TensorSpec
from npucall_server.devices.cann.host import HostCatalogue
from npucall_server.devices.cann.operators import OpApi

ODD = (Form.VIEWS, Form.SCALARS, Form.EMPTY)
"""Forms that CANN may handle differently from dense tensors."""
_MARKS = ("many", "read", "optional", "in_place")


class Trial(NamedTuple):
    """A call to try."""

    call: Prepared
    form: Form
    kinds: frozenset[str]
    """What is in it: dtypes, kinds of parameters, its library."""

    @property
    def title(self) -> str:
        """Its operator, dtype and form."""
        dtype = next(iter({**self.call.inputs, **self.call.outputs}.values())).dtype
        form = "" if self.form is Form.ORDINARY else f", {self.form.value}"
        return f"{self.call.operator.title} {dtype}{form}"


def trials(catalogue: HostCatalogue, operators: OpApi, product: Product) -> list[Trial]:
    """A small set of calls with every kind of parameter, the simple ones first."""
    left = [
        Trial(call, form, _kinds(call, form, operators))
        for form in Form
        for operator in _to_try(catalogue)
        for call in _calls(operator, catalogue, product, form)
    ]
    found = Counter(kind for trial in left for kind in trial.kinds)
    wanted, chosen = frozenset(found), list[Trial]()
    while wanted:
        rarest = min(sorted(wanted), key=found.__getitem__)  # few calls have it: others fit in
        those = (trial for trial in left if rarest in trial.kinds)
        best = max(those, key=lambda trial: len(trial.kinds & wanted))  # the first of equal ones
        chosen.append(best)
        wanted -= best.kinds
    return sorted(
        chosen, key=lambda trial: (trial.form in ODD, len(trial.call.operator.parameters))
    )


def of_every_operator(catalogue: HostCatalogue, product: Product) -> list[Prepared]:
    """A call of each declared operator that this host runs on this product."""
    calls = (next(_calls(operator, catalogue, product), None) for operator in _here(catalogue))
    return [call for call in calls if call is not None]


def call_of_shape(catalogue: HostCatalogue, product: Product, shape: Shape) -> Prepared | None:
    """A call in FLOAT of that shape, of the first operator that works element by element."""
    for operator in _to_try(catalogue):
        if isinstance(operator.over, Elementwise) and not operator.sample.shapes:
            try:
                call = sample(operator, product, catalogue, FLOAT, Form.BARE, shape)
            except NpucallError:  # not on this product
                continue
            if [*call.outputs.values()] == [TensorSpec(FLOAT, shape)]:  # it does not reduce
                return call
    return None


def _to_try(catalogue: HostCatalogue) -> Iterator[Operator[Any, Any]]:
    """What works in place alone tells no more than the operator beside it."""
    return (each for each in _here(catalogue) if each.inputs)


def _here(catalogue: HostCatalogue) -> Iterator[Operator[Any, Any]]:
    return (each for each in CATALOGUE if not catalogue.unavailable_because(each))


def _calls(
    operator: Operator[Any, Any],
    catalogue: HostCatalogue,
    product: Product,
    form: Form = Form.ORDINARY,
) -> Iterator[Prepared]:
    """A call in that form for each dtype of a product, if the rules accept it."""
    for dtype in operator.dtypes_on(product):
        try:
            yield sample(operator, product, catalogue, dtype, form)
        except NpucallError:
            continue


def _kinds(call: Prepared, form: Form, operators: OpApi) -> frozenset[str]:
    operator, specs = call.operator, {**call.inputs, **call.outputs}
    library = operators.find(operator.name)
    found = {f"library {Path(library[0].path).name}" if library else "", f"form {form.value}"}
    found |= {f"dtype {spec.dtype}" for spec in specs.values()}
    for attribute in operator.attributes:
        value = call.values[attribute.name]
        found.add(f"{attribute.kind.value} {getattr(value, 'dtype', type(value).__name__)}")
    tensors: tuple[Any, ...] = (*operator.inputs, *operator.outputs)
    for tensor in tensors:
        marks = (mark for mark in _MARKS if getattr(tensor, mark, False))
        found.add(f"{type(tensor).__name__} {tensor.name in specs} {' '.join(marks)}")
    is_partial = bool(call.unwritten and not call.done)
    return frozenset(found | {f"{len(operator.outputs)} {bool(call.fills)} {is_partial}"})
