"""A call while its rules run: its arguments, and the shapes and dtypes found so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.declare.call import Argument, Call, element, tensors_of
from npucall.declare.catalogue import Catalogue
from npucall.declare.parameters import Attribute, Kind, Output, Scalar
from npucall.dtypes import DType
from npucall.products import Product
from npucall.tensors import Format, Shape, TensorSpec


class Draft:
    """What rules look at and add to.

    An output that the call does not mention has no spec: rules skip it, since the derived spec
    obeys them.
    """

    def __init__(self, call: Call, product: Product, catalogue: Catalogue) -> None:
        self.operator = call.operator
        self.product = product
        self.catalogue = catalogue
        self.found_shapes: dict[str, Shape] = {}
        self.found_dtypes: dict[str, DType] = {}
        self.warnings: list[tuple[str, str]] = []
        self._arguments = call.arguments
        self.lists = {
            p.name: tuple(element(p.name, index) for index in range(len(given)))
            for p in call.operator.parameters
            if not isinstance(p, Attribute)
            and isinstance(given := call.arguments.get(p.name), tuple)
        }
        """Names of the tensors of each list that the call gives."""
        self._tensors = {
            place: self._in_format(spec)
            for parameter in call.operator.parameters
            if not isinstance(parameter, Attribute)
            for place, spec in tensors_of(parameter.name, call.arguments.get(parameter.name))
        }

    def absent(self, name: str) -> bool:
        """Whether an argument is a null pointer for the C call."""
        parameter = self.operator.by_name[name]
        if isinstance(parameter, Attribute):
            return self.argument(name) is None
        left_out = isinstance(parameter, Output) and not parameter.in_place
        mentioned = not left_out or name in self._arguments
        return mentioned and self._arguments.get(name) is None

    def tensor(self, name: str) -> TensorSpec | None:
        """The spec that the call gives for a tensor, or None."""
        return self._tensors.get(name)

    def members(self, *names: str) -> tuple[str, ...]:
        """The names, instead of a list that the call gives those of its tensors."""
        return tuple(each for name in names for each in self.lists.get(name, (name,)))

    def tensors(self, names: tuple[str, ...]) -> Iterator[tuple[str, TensorSpec]]:
        """Those of the tensors that the call gives, by name; those of lists one by one."""
        for name in self.members(*names):
            if (spec := self.tensor(name)) is not None:
                yield name, spec

    def attribute(self, name: str) -> Any:
        """The value of an attribute, its default if the call does not mention it, None if absent.

        A Scalar comes as its number in the dtype that the operator converts it to, which is float32
        unless it is declared; a number of C type float in float32, since that is what the C
        function is given.
        """
        value, parameter = self.argument(name), self.operator.by_name[name]
        if isinstance(value, Scalar):
            kind = parameter.dtype if isinstance(parameter, Attribute) else ""
            return _in_dtype(value.value, self.dtype(kind).numpy) if kind else _single(value.value)
        single = isinstance(parameter, Attribute) and parameter.kind is Kind.FLOAT
        return value if value is None or not single else _single(value)

    def scalar(self, name: str) -> Scalar | None:
        """An aclScalar with its dtype, or None."""
        value = self._arguments.get(name)
        return value if isinstance(value, Scalar) else None

    def argument(self, name: str) -> Argument:
        """What the call gives for an attribute, its default if the call does not mention it."""
        parameter = self.operator.by_name[name]
        if not isinstance(parameter, Attribute):
            raise TypeError(f"{name} is not an attribute")
        return self._arguments.get(name, self.operator.default(parameter))

    def shape(self, name: str) -> Shape:
        """Shape of a given tensor, or the one that a rule finds under that name."""
        if (spec := self.tensor(name)) is not None:
            return spec.shape
        if name not in self.found_shapes:
            self._find(name)
        return self.found_shapes[name]

    def dtype(self, name: str) -> DType:
        """Dtype of a given tensor or aclScalar, or the one that a rule finds under that name."""
        if (given := self.tensor(name) or self.scalar(name)) is not None:
            return given.dtype
        if name not in self.found_dtypes:
            self._find(name)
        return self.found_dtypes[name]

    def derive(self, output: Output, name: str) -> TensorSpec:
        """The spec that the operator derives for an output that the call does not mention.

        ``name``: its own, or of a list that of a member, which is like that of another list.
        """
        like, place = self.tensor(output.format), name.removeprefix(output.name)
        derived = TensorSpec(
            self.dtype(output.dtype + place * (output.dtype in self.lists)),
            self.shape(output.shape + place),
            format=like.format if like else Format.ND,
            name=name,
        )
        return self._in_format(derived)

    def asks(self, name: str) -> bool:
        """Whether the call wants this output to be computed."""
        output = self.operator.by_name[name]
        asked = output.asked if isinstance(output, Output) else None
        return asked is None or asked(self)

    def _in_format(self, spec: TensorSpec) -> TensorSpec:
        if not self.operator.formats_by_rank or spec.format is not Format.ND:
            return spec
        return replace(spec, format=Format.of_rank(len(spec.shape)))

    def shapes(self) -> dict[str, Shape]:
        """Every shape that is known: of the inputs as passed, and what rules found."""
        inputs = tuple(p.name for p in self.operator.given)
        return {name: spec.shape for name, spec in self.tensors(inputs)} | self.found_shapes

    def _find(self, name: str) -> None:
        """Runs the rule that finds ``name``; it may come after an exit that was already taken."""
        for rule in self.operator.checks:
            if rule.finds == name:
                rule.check(self)
                return
        raise LookupError(f"{self.operator.name} has no rule that finds {name!r}")


def _in_dtype(number: Any, dtype: np.dtype[Any]) -> Any:
    """A number as C converts it: to a float the nearest, to an integer without its fraction."""
    with np.errstate(all="ignore"):
        return np.asarray(number).astype(dtype).item()


def _single(number: Any) -> float:
    with np.errstate(over="ignore"):  # beyond float32 it is an infinity, as in C
        return float(np.float32(number))
