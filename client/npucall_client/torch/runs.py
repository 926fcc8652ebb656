"""Where operators run: on a client, in a session, in float64 in this process, or for shapes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from npucall.compute.evaluate import compute
from npucall.declare.attributes import attribute_value
from npucall.declare.call import Call
from npucall.declare.parameters import Attribute
from npucall.declare.prepare import prepare
from npucall.dtypes import BY_NUMPY, DOUBLE, FLOAT
from npucall.limits import CACHED_CALLS
from npucall.operators import CATALOGUE
from npucall.tensors import TensorSpec
from npucall_client import arrays
from npucall_client.sessions.remote import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor

    from npucall.declare import Operator
    from npucall.dtypes import DType
    from npucall.products import Product
    from npucall_client.calling import Result
    from npucall_client.client import Client
    from npucall_client.sessions.session import Session

_DTYPES = {arrays.as_array("", torch.empty(0, dtype=dtype)).dtype: dtype for dtype in (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
)}  # fmt: skip
_OF_TORCH = {dtype: BY_NUMPY[numpy] for numpy, dtype in _DTYPES.items()}


class OnClient:
    """Calls of a client; ``note`` is told each result."""

    def __init__(self, client: Client, note: Callable[[Result], None] | None = None) -> None:
        self._client = client
        self._note = note

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        result = self._client.execute(operator, **self.placed(arguments))
        if self._note is not None:
            self._note(result)
        return _one_or_several(map(arrays.to_torch, result.outputs.values()))

    def tensor(self, value: Any) -> Tensor:
        return value.torch() if isinstance(value, Remote) else value

    def placed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments, as they travel."""
        return arguments


class InSession(OnClient):
    """The same where a session holds arguments, by their number and how they are looked at."""

    def __init__(
        self,
        client: Client,
        given: Sequence[Any],
        held: dict[tuple[Any, ...], Remote],
        note: Callable[[Result], None] | None = None,
    ) -> None:
        super().__init__(client, note)
        self._given = given
        self.held = held

    def placed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: self._place(value) for name, value in arguments.items()}

    def _place(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        key = self._key(value)
        return value if key is None else self.place(key, value)

    def place(self, key: tuple[Any, ...], value: Tensor) -> Any:
        """What stands for an argument: what is held, or itself."""
        return self.held.get(key, value)

    def _key(self, value: Tensor) -> tuple[Any, ...] | None:
        """An argument by its number, since its address may be another one in the backward."""
        for number, argument in enumerate(self._given):
            if isinstance(argument, torch.Tensor) and value.numel() and _same(argument, value):
                return number, value.dtype, tuple(value.shape), value.stride()
        return None


class Keeping(InSession):
    """A forward in a session: arguments stay there, and results if the backward takes them."""

    def __init__(
        self, client: Client, given: Sequence[Any], session: Session, *, results: bool
    ) -> None:
        super().__init__(client, given, {})
        self._session = session
        self._results = results

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        if not self._results:
            return super().__call__(operator, **arguments)
        return self._session.run(operator, **self.placed(arguments))

    def place(self, key: tuple[Any, ...], value: Tensor) -> Any:
        if key not in self.held:
            self.held[key] = self._session.put(value)
        return self.held[key]


class InFloat64:
    """The formulas of the reference in float64, which operators take nowhere else."""

    def __init__(self, variant: str) -> None:
        self._variant = variant

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        given = {
            name: arrays.as_array(name, value) if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        found = compute(CATALOGUE.find(operator, "", self._variant), **given)
        several = found if isinstance(found, tuple) else (found,)
        return _one_or_several(torch.from_numpy(np.asarray(each)) for each in several)

    def tensor(self, value: Any) -> Tensor:
        return value


class Planned:
    """No data: checks by the rules of a product, and answers tensors of the shapes and dtypes."""

    def __init__(self, product: Product, variant: str) -> None:
        self._product = product
        self._variant = variant

    def __call__(self, operator: str, /, **arguments: Any) -> Any:
        called = CATALOGUE.find(operator, "", self._variant)
        items = tuple((name, _item(called, name, value)) for name, value in arguments.items())
        specs = _results(called, self._product, items)
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        exact = any(each.dtype is torch.float64 for each in tensors)
        return _one_or_several(
            tensors[0].new_empty(
                spec.shape, dtype=torch.float64 if exact else _DTYPES[spec.dtype.numpy]
            )
            for spec in specs
        )

    def tensor(self, value: Any) -> Tensor:
        return value


@lru_cache(CACHED_CALLS)
def _results(
    operator: Operator[Any, Any], product: Product, items: tuple[tuple[str, Any], ...]
) -> tuple[TensorSpec, ...]:
    stored = tuple(name for name, value in items if isinstance(value, TensorSpec))
    call = Call(operator, dict(items), stored)
    return tuple(prepare(call, product, CATALOGUE).outputs.values())


def _item(operator: Operator[Any, Any], name: str, value: Any) -> Any:
    """An argument of a call without data. Float64 passes as FLOAT: see ``InFloat64``."""
    parameter = operator.by_name[name]
    if isinstance(parameter, Attribute):
        return None if value is None else attribute_value(name, parameter, value)
    if value is None:
        return None
    dtype = _spec_dtype(value)
    return TensorSpec(dtype, tuple(map(int, value.shape)), name=name)


def _spec_dtype(value: Tensor) -> DType:
    dtype = _OF_TORCH[value.dtype]
    return FLOAT if dtype is DOUBLE else dtype


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether both begin at one place in memory."""
    return first.dtype == second.dtype and first.data_ptr() == second.data_ptr()


def _one_or_several(tensors: Iterable[Tensor]) -> Any:
    several = tuple(tensors)
    return several[0] if len(several) == 1 else several
