"""From the arguments of a Python call to a call of the contract and its storage. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from npucall.declare.attributes import attribute_value
from npucall.declare.call import element
from npucall.declare.names import in_python
from npucall.declare.parameters import Attribute, Input, Output
from npucall.dtypes import BY_NUMPY
from npucall.limits import CACHED_CALLS
from npucall.places import HandlePart, Keep, RegionPart, StepOutput
from npucall.tensors import TensorSpec
from npucall.wire import calls
from npucall_client.calls import arrays, weak
from npucall_client.calls.tensors import Empty, HeldTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npucall.declare.call import Argument
    from npucall.declare.declaration import Operator
    from npucall.declare.parameters import Parameter
    from npucall.dtypes import AnyArray
    from npucall.places import Discard
    from npucall.tensors import Buffer
    from npucall_client.calls.known import CallForm
    from npucall_client.calls.tensors import Home, Tensor

    Given: TypeAlias = "Buffer | HandlePart | StepOutput"
    """A storage as a call has it: bytes of this process, or where the server has them."""


class Placement(NamedTuple):
    """The tensors of a call in memory that the server sees too, so that they do not travel."""

    storage: Mapping[str, RegionPart]
    """By argument, as in ``BoundCall.storage``."""
    outputs: Mapping[str, RegionPart]
    """Where outputs are to be written, by name."""


class BoundCall:
    """What goes to a device, and where its answer goes."""

    form: CallForm | None = None
    """All of it but its bytes, if the client knows that of a call before."""
    lists: Sequence[str] = ()
    """The outputs that are lists of tensors."""
    updated: tuple[str, ...] = ()
    """The outputs whose values the operator may read."""
    placement: Placement | None = None
    keep_layout = False
    send_unread = False
    planning = False
    """Whether the call is only checked, so that tensors need no data."""
    is_weak = False
    """Whether the dtype of an input depends on that of others."""
    from_torch = False
    """Whether tensors of torch came in; then its results are such tensors too."""
    tensors: Mapping[str, Any] = MappingProxyType({})
    """The caller's own tensors of torch, of which ``targets`` has the memory."""
    progress: Callable[[int, int, int], object] | None = None
    """Called with bytes sent, bytes received, and bytes known to travel in all."""
    held: Sequence[HeldTensor] = ()
    """What has to stay on the server until the call has ended."""

    def __init__(  # noqa: PLR0913  # what most calls have; the rest is set where a call has it
        self,
        operator: str,
        call: bytes = b"",
        storage: dict[str, Given] | None = None,
        variant: str = "",
        home: Home | None = None,
        within: object = None,
        kept: Mapping[str, Keep | Discard] = MappingProxyType({}),
    ) -> None:
        self.operator, self.call = operator, call
        self.storage: dict[str, Given] = {} if storage is None else storage
        """By argument, in the order in which it travels; tensors of a list one by one."""
        self.targets: dict[str, AnyArray] = {}
        """The caller's own arrays, by output; those of a list one by one."""
        self.variant = variant
        """The variant that the caller asks for; empty: the default, or the only one."""
        self.home = home
        """The session whose handles it names."""
        self.within = within
        """The program that it is a step of."""
        self.kept = kept
        """Outputs that do not come back, by name."""

    @property
    def session(self) -> str:
        """The id of the session for the server; empty if the call needs none."""
        return "" if self.home is None else self.home.id

    @property
    def data(self) -> dict[str, Buffer]:
        """The storages that are bytes of this process."""
        return {name: data for name, data in self.storage.items() if not isinstance(data, tuple)}


def bind(  # noqa: PLR0913  # all that makes a call
    operator: Operator[Any, Any],
    variant: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    keep_layout: bool,
    send_unread: bool = False,
    planning: bool = False,
    home: Home | None = None,
    within: object = None,
) -> BoundCall:
    """The call that calls an operator with these arguments.

    If the operator never reads the values of an input, only its spec is sent, unless
    ``send_unread``. ``outputs`` has the caller's own arrays to write to, or None for a null
    pointer. For an operator without a reference it decides which parameters are outputs, whatever
    the listing guessed; those that the listing takes for inputs, or for read and written, are sent
    as they are. Arguments may also have their names in C.
    ``planning``: the call is only checked; tensors may be of torch's device "meta", or ``Empty``.
    ``home``: the session to which all tensors on the server must belong; ``within``: its program.
    Raises TypeError if a Python call would, and the errors of the contract for values that cannot
    travel.
    """
    bound = BoundCall(operator.name, b"", {}, variant, home, within)
    bound.keep_layout, bound.send_unread, bound.planning = keep_layout, send_unread, planning
    if outputs and not outputs.keys() <= operator.by_name.keys():
        outputs = in_python(operator, outputs)
    roles = {} if operator.reference else _roles(operator, kwargs, outputs)
    called = operator.with_roles(roles) if roles else operator
    items: list[_Item] = []
    given = called.bind(args, kwargs)
    for key, value in given.items():
        parameter = called.by_name[key]
        if value is None:
            items.append(_absent(key))
        elif isinstance(parameter, Attribute):
            converted = attribute_value(key, parameter, value)
            items.append((key, converted, repr(converted), (), False, False))
        else:
            tensor = value
            if called.reference and type(value) in weak.KINDS and not parameter.many:
                tensor, bound.is_weak = weak.tensor_of(parameter, value, given.values()), True
            items.append(_inputs(bound, parameter, tensor))
    for key, value in outputs.items():
        if value is None:
            items.append(_absent(key))
            continue
        output = called.by_name.get(key)  # the server refuses what is none
        items.append(_outputs(bound, key, output, value, read=key in roles))
    bound.call = _encode(operator.name, variant, tuple(items), tuple(roles.items()))
    return bound


_Item: TypeAlias = "tuple[str, Any, str, tuple[Tensor, ...], bool, bool]"
"""An argument as a part of a key: name; value of an attribute; its spelling, since True and 1, or
0.0 and -0.0, would otherwise be one key; tensors; whether they are a list; whether they are sent.
It is a plain tuple, since making a named one takes as long as all the rest."""


def _roles(
    operator: Operator[Any, Any], kwargs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, type[Input | Output]]:
    """Which tensors are inputs or outputs, if this call differs from a listing that guessed."""
    given: dict[str, type[Input | Output]] = {
        **{p.name: Input for p in operator.outputs if p.name in kwargs and p.name not in outputs},
        **{p.name: Output for p in operator.inputs if p.name in outputs},
    }
    return given


def _absent(name: str) -> _Item:
    return name, None, "", (), False, False


def _inputs(bound: BoundCall, parameter: Input | Output, value: Any) -> _Item:
    """Arrays that are sent."""
    name = parameter.name
    if isinstance(value, np.ndarray | np.generic) and not parameter.many:
        array = np.asarray(value)
        is_read = isinstance(parameter, Output) or parameter.read or bound.send_unread
        if array.dtype in BY_NUMPY and (array.flags.c_contiguous or not is_read):
            if is_read:
                bound.storage[name] = arrays.memory(array)
            return name, None, "", ((array.dtype, array.shape, None, None),), False, is_read
    if isinstance(parameter, Input) and not (parameter.read or bound.send_unread):
        _note_torch(bound, value)
        return name, None, "", (_described(bound, name, value),), False, False
    if not parameter.many:
        return name, None, "", (_input(bound, name, value),), False, True
    tensors = tuple(_input(bound, place, member) for place, member in _members(name, value))
    return name, None, "", tensors, True, True


def _described(bound: BoundCall, name: str, value: Any) -> Tensor:
    """A tensor of which only the shape and the dtype are sent."""
    if isinstance(value, HeldTensor):
        dtype, shape = value.tensor[:2]
    elif (without_data := _without_data(bound, name, value)) is not None:
        return without_data
    else:
        array = arrays.as_array(name, value)
        dtype, shape = array.dtype, array.shape
    return dtype, shape, None, None


def _without_data(bound: BoundCall, name: str, value: Any) -> Tensor | None:
    """A tensor without data, for a call that is only checked; None if the value has data."""
    if not bound.planning:
        return None
    if isinstance(value, Empty):
        return arrays.checked_dtype(name, value.dtype), tuple(value.shape), None, None
    if arrays.is_meta(value):
        return arrays.dtype_of_torch(name, value), tuple(value.shape), None, None
    return None


def _note_torch(bound: BoundCall, value: Any) -> None:
    if value.from_torch if isinstance(value, HeldTensor) else arrays.is_torch(value):
        bound.from_torch = True


def _input(bound: BoundCall, name: str, value: Any) -> Tensor:
    _note_torch(bound, value)
    if isinstance(value, HeldTensor):
        return hold(bound, name, value)
    if (without_data := _without_data(bound, name, value)) is not None:
        return without_data
    return _send(bound, name, arrays.as_array(name, value))


def hold(bound: BoundCall, name: str, held: HeldTensor) -> Tensor:
    """Adds a tensor of a session to the call by its handle."""
    if bound.home is None:
        bound.home = held.home
    elif bound.home is not held.home:
        raise ValueError(
            f"{name}: expected a tensor of the same session as the other arguments, found "
            f"{held!r} of another session; fetch() moves it"
        )
    place = bound.storage[name] = held.place(bound.within)
    if not isinstance(place, StepOutput):
        bound.held = (*bound.held, held)
    return held.tensor


def _outputs(
    bound: BoundCall, name: str, parameter: Parameter | None, value: Any, *, read: bool
) -> _Item:
    """Arrays to write outputs to; they are also sent if the operator may read them."""
    updated = read or (isinstance(parameter, Output) and parameter.in_place)
    stored = updated or bound.keep_layout
    if updated:
        bound.updated += (name,)
    if parameter is None or isinstance(parameter, Attribute) or not parameter.many:
        return name, None, "", (_target(bound, name, value, stored),), False, stored
    bound.lists = (*bound.lists, name)
    members = _members(name, value)
    targets = [_target(bound, place, member, stored) for place, member in members]
    return name, None, "", tuple(targets), True, stored


def _target(bound: BoundCall, name: str, value: Any, stored: bool) -> Tensor:  # noqa: FBT001
    if isinstance(value, HeldTensor) and stored:  # it is read; what is written is another one
        return hold(bound, name, value)
    if isinstance(value, Empty) and name not in bound.updated:
        return arrays.checked_dtype(name, value.dtype), tuple(value.shape), None, None
    if (without_data := _without_data(bound, name, value)) is not None:
        return without_data
    target = bound.targets[name] = arrays.as_target(name, value)
    if arrays.is_torch(value):
        bound.tensors = {**bound.tensors, name: value}
    return _send(bound, name, target) if stored else (target.dtype, target.shape, None, None)


def _members(name: str, value: Any) -> list[tuple[str, Any]]:
    """The members of a list of tensors, each with its own name.

    An array is no list, though it could be cut into rows: a caller who gives one meant another
    operator.
    """
    if not isinstance(value, Sequence):
        raise TypeError(f"{name}: expected a list of arrays, found {type(value).__name__}")
    return [(element(name, index), member) for index, member in enumerate(value)]


def _send(bound: BoundCall, name: str, array: AnyArray) -> Tensor:
    sent = arrays.send(name, array, keep_layout=bound.keep_layout)
    bound.storage[name] = sent.storage
    return sent[:4]


@lru_cache(CACHED_CALLS)
def _encode(
    operator: str,
    variant: str,
    items: tuple[_Item, ...],
    roles: tuple[tuple[str, type[Input | Output]], ...],
) -> bytes:
    """The bytes of a call, from values that can be a key; kept, since callers repeat calls."""
    arguments: dict[str, Argument] = {}
    stored = []
    for name, value, _, tensors, many, is_stored in items:
        specs = tuple(
            TensorSpec(BY_NUMPY[dtype], shape, strides, 0, storage_shape, name=name)  # type: ignore[arg-type]
            for dtype, shape, strides, storage_shape in tensors
        )
        arguments[name] = specs if many else specs[0] if specs else value
        if is_stored:
            stored.append(name)
    return calls.encode(operator, variant, arguments, tuple(stored), dict(roles))
