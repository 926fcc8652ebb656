"""Runs for shapes alone: the operators' rules in place of the operators.

Where ``torch.compile`` has symbols for extents, numbers stand in for them, twice: an extent of a
result that follows a symbol is that symbol. Where one follows none, or where the rules refuse the
numbers, the graph becomes one for the extents at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from npucall.declare import Operator
from npucall.declare.attributes import attribute_value
from npucall.declare.call import Call
from npucall.declare.parameters import Attribute
from npucall.declare.prepare import prepare
from npucall.dtypes import BY_NUMPY, DOUBLE, DTYPES, FLOAT
from npucall.errors import NpucallError
from npucall.limits import CACHED_CALLS
from npucall.operators import CATALOGUE
from npucall.products import Product
from npucall.tensors import TensorSpec
from npucall_client.torch.runs import EachAtOnce, one_or_several

_DTYPES = {
    dtype.numpy: getattr(torch, str(dtype.numpy))
    for dtype in DTYPES
    if hasattr(torch, str(dtype.numpy))
}
_OF_TORCH = {dtype: BY_NUMPY[numpy] for numpy, dtype in _DTYPES.items()}
# Even, since some are halved; nobody's own extents.
_STAND_INS = (2018, 2026, 2038, 2042, 2062, 2066), (2102, 2122, 2126, 2138, 2174, 2182)


class Planned(EachAtOnce):
    """Checks by the rules of a product, and returns tensors of the shapes and dtypes; no data."""

    def __init__(self, product: Product, variant: str) -> None:
        self._product = product
        self._variant = variant

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        called = CATALOGUE.find(operator, "", self._variant)
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        symbols = {str(each): each for tensor in tensors for each in tensor.shape if _open(each)}
        shapes = self._symbolic(called, arguments, symbols) if symbols else None
        specs = self._specs(called, arguments, {}) if shapes is None else shapes[1]
        found = [spec.shape for spec in specs] if shapes is None else shapes[0]
        exact = any(each.dtype is torch.float64 for each in tensors)
        return one_or_several(
            tensors[0].new_empty(
                shape,
                dtype=torch.float64
                if exact and spec.dtype.kind == "float"
                else _DTYPES[spec.dtype.numpy],
            )
            for shape, spec in zip(found, specs, strict=True)
        )

    def _specs(
        self, operator: Operator[Any, Any], arguments: Mapping[str, Any], numbers: Mapping[str, int]
    ) -> tuple[TensorSpec, ...]:
        items = tuple((key, _item(operator, key, each, numbers)) for key, each in arguments.items())
        return _results(operator, self._product, items)

    def _symbolic(
        self,
        operator: Operator[Any, Any],
        arguments: Mapping[str, Any],
        symbols: Mapping[str, Any],
    ) -> tuple[list[list[Any]], tuple[TensorSpec, ...]] | None:
        """Shapes with symbols, and specs for all else; None where they depend on the numbers."""
        if len(symbols) > len(_STAND_INS[0]):
            return None
        both = [dict(zip(symbols, numbers, strict=False)) for numbers in _STAND_INS]
        try:
            first, second = (self._specs(operator, arguments, numbers) for numbers in both)
        except NpucallError:
            return None
        names = {(both[0][name], both[1][name]): symbols[name] for name in symbols}
        shapes = [
            [
                each if each == other else names.get((each, other))
                for each, other in zip(*pair, strict=True)
            ]
            for pair in zip((s.shape for s in first), (s.shape for s in second), strict=True)
        ]
        return None if any(None in shape for shape in shapes) else (shapes, first)


@lru_cache(CACHED_CALLS)
def _results(
    operator: Operator[Any, Any], product: Product, items: tuple[tuple[str, Any], ...]
) -> tuple[TensorSpec, ...]:
    stored = tuple(name for name, value in items if isinstance(value, TensorSpec))
    call = Call(operator, dict(items), stored)
    return tuple(prepare(call, product, CATALOGUE).outputs.values())


def _item(operator: Operator[Any, Any], name: str, value: Any, numbers: Mapping[str, int]) -> Any:
    """An argument of a call without data. Float64 passes as FLOAT: see ``InFloat64``."""
    parameter = operator.by_name[name]
    if value is None:
        return None
    if isinstance(parameter, Attribute):
        return attribute_value(name, parameter, value)
    dtype = _OF_TORCH[value.dtype]
    shape = tuple(numbers[str(each)] if str(each) in numbers else int(each) for each in value.shape)
    return TensorSpec(FLOAT if dtype is DOUBLE else dtype, shape, name=name)


def _open(extent: Any) -> bool:
    """Whether it is a symbol, and no number."""
    return isinstance(extent, torch.SymInt) and not str(extent).isdigit()
