"""Chooses the calls that the doctor tries: few, but with every kind of parameter on this host.

They come from the catalogue, so the doctor also tries new operators and dtypes; no list is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from npucall.declare.domain import Elementwise
from npucall.declare.parameters import Attribute, Scalar
from npucall.declare.samples import Form, sample
from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npucall.declare.declaration import Operator
    from npucall.declare.prepare import Prepared
    from npucall.products import Product
    from npucall.tensors import Shape
    from npucall_server.devices.cann.host import HostCatalogue
    from npucall_server.devices.cann.operators import OpApi


ODD = (Form.VIEWS, Form.SCALARS, Form.EMPTY)
"""Forms that CANN may handle differently from dense tensors."""


class Trial(NamedTuple):
    """A call to try."""

    call: Prepared
    form: Form
    kinds: frozenset[str]
    """The kinds of its parameters, in words."""

    @property
    def title(self) -> str:
        """Its operator, dtype and form."""
        dtype = next(iter({**self.call.inputs, **self.call.outputs}.values())).dtype
        form = "" if self.form is Form.ORDINARY else f", {self.form.value}"
        return f"{self.call.operator.title} {dtype}{form}"


def trials(catalogue: HostCatalogue, operators: OpApi, product: Product) -> list[Trial]:
    """A small set of calls with every kind of parameter, the simple ones first."""
    left = list(_every(catalogue, operators, product))
    wanted = frozenset[str]().union(*(trial.kinds for trial in left))
    chosen: list[Trial] = []
    while wanted:
        best = max(left, key=lambda trial: len(trial.kinds & wanted))  # the first of equal ones
        chosen.append(best)
        wanted -= best.kinds
    return sorted(
        chosen, key=lambda trial: (trial.form in ODD, len(trial.call.operator.parameters))
    )


def summary(trials: Iterable[Trial]) -> str:
    """What the calls cover together, in words."""
    kinds = sorted(frozenset[str]().union(*(trial.kinds for trial in trials)))
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        group, _, rest = kind.partition(": ")
        groups.setdefault(group, []).append(rest)
    return "\n".join(f"{group}: {', '.join(found)}" for group, found in groups.items())


def of_every_operator(catalogue: HostCatalogue, product: Product) -> list[Prepared]:
    """A call of each declared operator that this host runs on this product."""
    here = (operator for operator in CATALOGUE if not catalogue.unavailable_because(operator))
    calls = (next(_calls(operator, catalogue, product), None) for operator in here)
    return [call for call in calls if call is not None]


def call_of_shape(catalogue: HostCatalogue, product: Product, shape: Shape) -> Prepared | None:
    """A call in FLOAT of that shape, of the first operator that works element by element."""
    expected = [TensorSpec(FLOAT, shape)]
    for operator in CATALOGUE:
        is_free = isinstance(operator.over, Elementwise) and not operator.sample.shapes
        if is_free and not catalogue.unavailable_because(operator):
            try:
                call = sample(operator, product, catalogue, FLOAT, Form.BARE, shape)
            except NpucallError:  # not on this product
                continue
            if [*call.outputs.values()] == expected:  # it does not reduce
                return call
    return None


def _every(catalogue: HostCatalogue, operators: OpApi, product: Product) -> Iterator[Trial]:
    for form in Form:
        for operator in CATALOGUE:
            if catalogue.unavailable_because(operator):
                continue
            found = operators.find(operator.name)
            library = Path(found[0].path).name if found else ""
            for call in _calls(operator, catalogue, product, form):
                yield Trial(call, form, _kinds(call, form) | {f"libraries: {library}"})


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


def _kinds(call: Prepared, form: Form) -> frozenset[str]:
    specs = {**call.inputs, **call.outputs}
    found = {_attribute(p, call) for p in call.operator.attributes}
    found |= {form.value} if form in ODD else set()
    for p in call.operator.inputs:
        found |= {"a list of tensors"} if p.many else set()
        found |= {"a tensor that is not read"} if not p.read else set()
        found |= {"an optional tensor"} if p.optional and p.name in specs else set()
        found |= {"a null tensor"} if p.optional and p.name not in specs else set()
    for o in call.operator.outputs:
        found |= {"a list of outputs"} if o.many else set()
        found |= {"a tensor in place"} if o.in_place else set()
    found |= {"an output that is filled"} if call.fills else set()
    found |= {"an output that is not all written"} if call.unwritten and not call.done else set()
    outputs = len(call.operator.outputs)
    found |= {f"{outputs} outputs"} if outputs > 1 else set()
    dtypes = {f"dtypes: {spec.dtype}" for spec in specs.values()}
    return frozenset({f"parameters: {kind}" for kind in found} | dtypes)


def _attribute(parameter: Attribute, call: Prepared) -> str:
    value = call.values[parameter.name]
    null = "null " if value is None else ""
    dtype = f" of {value.dtype}" if isinstance(value, Scalar) else ""
    return f"{null}{parameter.kind.value}{dtype}"
