"""A call and a product become a prepared call, or an error. Nothing else goes in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from math import prod
from typing import Any, TypeVar, cast

import numpy as np

from npucall.declare.call import Call, element, parameter_of
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator
from npucall.declare.domain import Elementwise
from npucall.declare.draft import Draft
from npucall.declare.facts import Facts
from npucall.declare.layout import check_layout
from npucall.declare.parameters import Input, Output, Value
from npucall.declare.rules import EndOfChecks
from npucall.dtypes import FLOAT, AnyArray, DType
from npucall.errors import NpucallError, TensorLayoutError
from npucall.products import Product
from npucall.tensors import Buffer, TensorSpec

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Prepared:
    """A call that has passed every rule, its shapes, dtypes and outputs resolved."""

    operator: Operator[Any, Any]
    product: Product
    inputs: Mapping[str, TensorSpec]
    """The inputs that the call gives; those of a list one by one."""
    outputs: Mapping[str, TensorSpec]
    """The outputs as they come back: dense, unless the call sends their storage."""
    attributes: Mapping[str, Any]
    """The attributes for the formula."""
    values: Mapping[str, Value | None]
    """The attributes for the C function."""
    lists: Mapping[str, tuple[str, ...]]
    """Names of the tensors of each list that the call gives."""
    stored: tuple[str, ...]
    """The tensors whose storage is sent with the call, in that order."""
    kernel_dtype: DType | None
    """What the operator computes and rounds in; None for one without reference."""
    through: Mapping[str, DType]
    """The dtypes to which inputs are converted before the kernel dtype; only those that have
    one."""
    facts: Facts
    warnings: tuple[tuple[str, str], ...]
    done: bool
    """The rules ended the call: nothing is computed, the outputs are filled."""
    fills: Mapping[str, float] = field(default_factory=dict)
    """What the outputs of a call that is done are filled with, by name; others are zeros, since
    the operator writes nothing."""
    followed: dict[Callable[..., object], object] = field(
        init=False, default_factory=dict, repr=False
    )
    """Results of ``once_a_call``; kept here so that no other cache keeps calls."""

    @property
    def asked(self) -> frozenset[str]:
        """The outputs that are computed.

        Others are there only if their storage was sent, which they keep.
        """
        return self.facts.asked

    @cached_property
    def absent(self) -> Mapping[str, None]:
        """The inputs that the call does not give, as the formula takes them."""
        names = (parameter.name for parameter in self.operator.given)
        given = {*self.inputs, *self.outputs, *self.lists}
        return {name: None for name in names if name not in given}

    @cached_property
    def read(self) -> Mapping[str, Input | Output]:
        """The parameters of the tensors whose values a formula gets, those of lists one by one."""
        tensors = {**self.inputs, **self.outputs}
        return {
            name: parameter
            for parameter in self.operator.given
            if isinstance(parameter, Output) or parameter.read
            for name in self.lists.get(parameter.name, (parameter.name,))
            if name in tensors
        }

    def in_lists(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """What there is of each tensor that a formula gets, of a list as a tuple."""
        if not self.lists:
            return dict(tensors)
        listed = {p.name: self.lists[p.name] for p in self.operator.given if p.name in self.lists}
        members = {member for each in listed.values() for member in each}
        alone = {name: each for name, each in tensors.items() if name not in members}
        return alone | {
            name: tuple(map(tensors.__getitem__, each)) for name, each in listed.items()
        }

    @cached_property
    def checked_inputs(self) -> frozenset[str]:
        """Inputs with values to check before a device runs the call: labels, lengths.

        They must exist by then, so they cannot be outputs of an earlier step of a program.
        """
        values = self.operator.values
        if values is None or self.done:
            return frozenset()
        return frozenset(name for name in self.inputs if parameter_of(name) in values.reads)

    @cached_property
    def unwritten(self) -> Mapping[str, AnyArray | float]:
        """Outputs with elements that a device does not write, and the values of these.

        For a call that is done, those that the operator does not fill.
        """
        if self.done:
            return {name: 0.0 for name in self.asked if name not in self.fills}
        left = {name: find(self) for name, find in self.operator.unwritten.items()}
        return {name: what for name, what in left.items() if what is not None}

    @cached_property
    def stored_bytes(self) -> tuple[int, ...]:
        """Bytes of each storage that is sent with the call."""
        specs = {**self.inputs, **self.outputs}
        return tuple(specs[name].storage_bytes for name in self.stored)

    @cached_property
    def sent_bytes(self) -> int:
        """Bytes of the storages that are sent with the call."""
        return sum(self.stored_bytes)

    @cached_property
    def replied_bytes(self) -> int:
        """Bytes of the storages that go with the reply."""
        return sum(spec.storage_bytes for spec in self.outputs.values())

    @cached_property
    def bytes_in_flight(self) -> int:
        """Bytes of the storages that come with the call and go with its reply."""
        return self.sent_bytes + self.replied_bytes

    @cached_property
    def working_bytes(self) -> int:
        """Most bytes that the CPU reference holds, without those in flight and without blocks."""
        over = self.operator.over
        return 0 if self.done or over is None else over.working_bytes(self)

    @cached_property
    def computation(self) -> int:
        """Elements to be computed; of one without reference, those of the largest tensor."""
        if self.done:
            return 0
        if self.operator.over is not None:
            return self.operator.over.computation(self)
        specs = {**self.inputs, **self.outputs}.values()
        return max((spec.elements for spec in specs), default=0)

    @cached_property
    def largest(self) -> tuple[str, int]:
        """The largest thing and its bytes: a tensor, a shape, or everything that is sent.

        A device makes strided tensors dense and broadcasts them, so this much must fit.
        """
        sizes = {name: spec.bytes for name, spec in {**self.inputs, **self.outputs}.items()}
        if not self.done and isinstance(self.operator.over, Elementwise):
            space = self.facts.shapes[self.operator.over.space]
            sizes[f"the shape {space} of the computation"] = prod(space) * FLOAT.itemsize
        sizes["request and response"] = self.bytes_in_flight
        return max(sizes.items(), key=lambda item: item[1])

    def storages(self, sent: Sequence[Buffer]) -> dict[str, Buffer]:
        """The storages by name.

        Raises TensorLayoutError where their number or a length differs from what the specs say.
        """
        self.check_sizes(tuple(map(len, sent)))
        return dict(zip(self.stored, sent, strict=True))

    def check_sizes(self, sent: Sequence[int]) -> None:
        """Raises TensorLayoutError where storages of so many bytes are not what the specs say."""
        if tuple(sent) == self.stored_bytes:
            return
        if len(sent) != len(self.stored):
            raise TensorLayoutError(
                f"storage: expected {len(self.stored)} ({', '.join(self.stored) or 'none'}), "
                f"found {len(sent)}"
            )
        for name, expected, found in zip(self.stored, self.stored_bytes, sent, strict=True):
            if found != expected:
                raise TensorLayoutError(
                    f"{name}: expected {expected} bytes of storage, found {found}",
                    parameter=name,
                )


def once_a_call(find: Callable[[Prepared], T]) -> Callable[[Prepared], T]:
    """A function of a call that runs once for each call; the call keeps the result."""

    @wraps(find)
    def found(call: Prepared) -> T:
        known = cast("dict[Any, T]", call.followed)
        try:
            return known[find]
        except KeyError:
            return known.setdefault(find, find(call))

    return found


def prepare(call: Call, product: Product, catalogue: Catalogue) -> Prepared:
    """Checks layout, then the operator's rules in order, and resolves the outputs.

    Raises the error of the first thing that is wrong, its ``details`` naming operator and SoC.
    """
    try:
        return _prepare(call, product, catalogue)
    except NpucallError as error:
        error.details.setdefault("operator", call.operator.name)
        error.details.setdefault("phase", "prepare")
        if call.operator.variant:
            error.details.setdefault("variant", call.operator.variant)
        raise


def _prepare(call: Call, product: Product, catalogue: Catalogue) -> Prepared:
    check_layout(call)
    draft = Draft(call, product, catalogue)
    done, end = False, EndOfChecks()
    for rule in call.operator.checks:
        try:
            rule.check(draft)
        except EndOfChecks as raised:  # kept itself, it would keep the frames of all callers
            done, end = True, EndOfChecks(raised.fill, raised.outputs)
            break
    operator = call.operator
    lists = _lists(draft)
    kernel_dtype = operator.kernel_dtype(draft) if operator.kernel_dtype else None
    outputs, fills = _outputs(draft, lists, call), _fills(operator, end, lists)
    asked = frozenset(name for name in outputs if _is_computed(draft, name, done, fills))
    return Prepared(
        operator=operator,
        product=product,
        inputs=_inputs(draft, lists),
        outputs=outputs,
        attributes={p.name: draft.attribute(p.name) for p in operator.attributes},
        values={p.name: draft.argument(p.name) for p in operator.attributes},  # type: ignore[misc]
        lists=lists,
        stored=call.stored,
        kernel_dtype=kernel_dtype,
        through={p.name: draft.dtype(p.dtype) for p in operator.inputs if p.dtype},
        facts=Facts(
            draft.shapes(), _formula_dtype(operator, kernel_dtype), product=product, asked=asked
        ),
        warnings=tuple(draft.warnings),
        done=done,
        fills=fills,
    )


def _lists(draft: Draft) -> dict[str, tuple[str, ...]]:
    """Of every list, also of an output that follows from another list: it has as many tensors."""
    return draft.lists | {
        each.name: tuple(element(each.name, n) for n in range(len(draft.lists[each.shape])))
        for each in draft.operator.outputs
        if each.many and each.shape in draft.lists and each.name not in draft.lists
        if not draft.absent(each.name)
    }


def _inputs(draft: Draft, lists: Mapping[str, tuple[str, ...]]) -> dict[str, TensorSpec]:
    names = (name for p in draft.operator.inputs for name in lists.get(p.name, (p.name,)))
    return dict(draft.tensors(tuple(names)))


def _outputs(
    draft: Draft, lists: Mapping[str, tuple[str, ...]], call: Call
) -> dict[str, TensorSpec]:
    """The outputs one by one; without those that are absent, or that nobody asks for."""
    outputs = {}
    for output in draft.operator.outputs:
        asked = draft.asks(output.name)
        for name in lists.get(output.name, (output.name,)):
            given = draft.tensor(name)
            if given is not None and (asked or name in call.stored):
                outputs[name] = given if name in call.stored else given.dense()
            elif given is None and asked and output.shape and not draft.absent(output.name):
                outputs[name] = draft.derive(output, name)
    return outputs


def _is_computed(draft: Draft, name: str, done: bool, fills: Mapping[str, float]) -> bool:  # noqa: FBT001
    """Whether the operator writes an output; one that it updates stays as it is in a call done."""
    parameter = draft.operator.by_name[parameter_of(name)]
    kept = done and name not in fills and parameter in draft.operator.given
    return draft.asks(parameter.name) and not kept


def _fills(
    operator: Operator[Any, Any], end: EndOfChecks, lists: Mapping[str, tuple[str, ...]]
) -> dict[str, float]:
    if end.fill is None:
        return {}
    names = end.outputs or tuple(output.name for output in operator.outputs)
    return {each: end.fill for name in names for each in lists.get(name, (name,))}


def _formula_dtype(operator: Operator[Any, Any], kernel_dtype: DType | None) -> np.dtype[Any]:
    if kernel_dtype is None or operator.over is None:
        return FLOAT.numpy
    widens = kernel_dtype.is_short and operator.over.widen
    return FLOAT.numpy if widens else kernel_dtype.numpy
