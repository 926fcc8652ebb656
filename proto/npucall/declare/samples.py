"""Small valid calls of every declared operator, to try a device.

If a call needs something special, its operator declares that as its ``Sample``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np

from npucall.declare.attributes import attribute_value
from npucall.declare.call import Call, parameter_of, tensors_of
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator
from npucall.declare.parameters import Output
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import AnyArray, DType
from npucall.products import Product
from npucall.tensors import Shape, TensorSpec, row_major

SHAPE = (2, 3)
"""Of an input, unless its operator or the caller says something else."""
_BEFORE, _BEHIND = 3, 5
"""Elements of storage before a view and after it."""
_MOST = 0.9


class Form(Enum):
    """What is special about a sample."""

    ORDINARY = "dense tensors"
    BARE = "no optional tensors"
    VIEWS = "views"
    SCALARS = "rank 0"
    EMPTY = "no elements"


def sample(  # noqa: PLR0913  # what a call is about, and its two variations
    operator: Operator[Any, Any],
    product: Product,
    catalogue: Catalogue,
    dtype: DType,
    form: Form = Form.ORDINARY,
    shape: Shape = SHAPE,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> Prepared:
    """The small call of an operator, its tensors in this dtype.

    ``shape``: of inputs of which neither the operator nor ``given`` says anything else; that has
    specs of tensors, and attributes as a caller gives them. Raises what the operator's rules raise:
    not every operator takes every form.
    """
    told = {**operator.sample.attributes, **given}
    specs = _specs(operator, dtype, form, shape)
    specs |= {name: each for name, each in given.items() if isinstance(each, TensorSpec)}
    attributes = {
        p.name: attribute_value(p.name, p, told[p.name])
        for p in operator.attributes
        if p.name in told
    }
    if operator.sample.follows:
        attributes[operator.sample.follows] = dtype
    read = tuple(
        place
        for p in operator.given
        if isinstance(p, Output) or p.read
        for place, _ in tensors_of(p.name, specs.get(p.name))
    )
    call = prepare(Call(operator, {**specs, **attributes}, read), product, catalogue)
    if form is not Form.VIEWS:
        return call
    views = {
        name: spec if name in operator.sample.dense else _view(spec)
        for name, spec in {**call.inputs, **call.outputs}.items()
    }
    listed = {n: tuple(views.pop(each) for each in names) for n, names in call.lists.items()}
    stored = tuple(dict.fromkeys((*read, *call.outputs)))
    return prepare(Call(operator, {**views, **listed, **attributes}, stored), product, catalogue)


def sample_storages(call: Prepared, seed: int) -> dict[str, bytes]:
    """Numbers for a sample, different for each seed; its labels are valid ones."""
    random = np.random.default_rng(seed)
    specs = {**call.inputs, **call.outputs}
    return {name: _numbers(call, name, specs[name], random).tobytes() for name in call.stored}


def _specs(operator: Operator[Any, Any], dtype: DType, form: Form, shape: Shape) -> dict[str, Any]:
    own, specs = operator.sample, dict[str, Any]()
    for p in operator.given:
        bare = p.optional and form is Form.BARE and p.name not in own.kept
        if bare or p.name in own.without:
            continue
        shapes: Any = own.shapes.get(p.name, (shape, shape) if p.many else shape)
        listed = shapes if p.many else (shapes,)
        kind = own.dtypes.get(p.name, dtype)
        found = tuple(TensorSpec(kind, _in_form(each, form)) for each in listed)
        specs[p.name] = found if p.many else found[0]
    return specs


def _in_form(shape: Shape, form: Form) -> Shape:
    if form is Form.SCALARS:
        return ()
    return (0, *shape[1:]) if form is Form.EMPTY and shape else shape


def _view(spec: TensorSpec) -> TensorSpec:
    """The same tensor transposed in memory, with room around it."""
    strides = tuple(reversed(row_major(tuple(reversed(spec.shape)))))
    storage = (_BEFORE + spec.elements + _BEHIND,)
    return TensorSpec(spec.dtype, spec.shape, strides, _BEFORE, storage)


def _numbers(call: Prepared, name: str, spec: TensorSpec, random: np.random.Generator) -> AnyArray:
    size = spec.storage_elements
    if spec.dtype.kind in ("float", "complex"):
        return random.uniform(call.operator.sample.least, _MOST, size).astype(spec.dtype.numpy)
    values = call.operator.values
    own, parameter = call.operator.sample.integers, parameter_of(name)
    allowed = values.passes(call.facts) if values and parameter in values.reads else own
    return random.integers(allowed.start, allowed.stop, size).astype(spec.dtype.numpy)
