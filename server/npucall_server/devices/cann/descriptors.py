"""Descriptors: they tell CANN's first phase about tensors, scalars and arrays.

They hold metadata and device addresses, but own no memory.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any, Self

import numpy as np

from npucall.declare.parameters import Attribute, Input, Kind, Output, Scalar
from npucall.declare.prepare import Prepared
from npucall.dtypes import DType
from npucall.errors import NpucallError
from npucall.tensors import TensorSpec, row_major
from npucall_server.devices.cann.functions import NnOpBase
from npucall_server.devices.cleanup import Cleanup


class Descriptors:
    """The arguments of phase one for a call, in C order; destroyed by ``close`` or ``with``.

    ``addresses``: the address of each tensor's storage on the device; a tensor without elements
    needs none. If one descriptor cannot be made, those made before it are destroyed.
    """

    def __init__(self, base: NnOpBase, call: Prepared, addresses: Mapping[str, int]) -> None:
        self._base = base
        self._owned: list[tuple[Callable[[int], None], int]] = []
        self._handles: dict[str, int] = {}
        self._addresses = dict(addresses)
        self.arguments: list[Any] = []
        try:
            for parameter in call.operator.parameters:
                if isinstance(parameter, Attribute):
                    made = self._attribute(parameter.kind, call.values[parameter.name])
                else:
                    made = self._tensors(parameter, call, addresses)
                self.arguments.append(made)
        except BaseException:
            with suppress(NpucallError):
                self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(NpucallError) if error else nullcontext():
            self.close()

    def move(self, addresses: Mapping[str, int]) -> None:
        """Sets new addresses of the tensors. Must not be called between the phases."""
        if addresses == self._addresses:
            return
        known = self._addresses
        for name, address in addresses.items():
            if known[name] != address:
                self._base.aclSetRawTensorAddr(self._handles[name], address)
                known[name] = address

    def close(self) -> None:
        """Destroys all of them, even if destroying one fails; raises the first failure."""
        with Cleanup() as every:
            for destroy, handle in self._owned:
                every.callback(destroy, handle)
            self._owned = []

    def _own(self, destroy: Callable[[int], None], handle: int) -> int:
        self._owned.append((destroy, handle))
        return handle

    def _tensors(
        self, parameter: Input | Output, call: Prepared, addresses: Mapping[str, int]
    ) -> int | None:
        specs, name = {**call.inputs, **call.outputs}, parameter.name
        if not parameter.many:
            return self._tensor(name, specs, addresses) if name in specs else None
        members = call.lists.get(name)
        if members is None:
            return None
        handles = [self._tensor(member, specs, addresses) for member in members]
        return self._list(self._base.aclCreateTensorList, self._base.aclDestroyTensorList, handles)

    def _tensor(
        self, name: str, specs: Mapping[str, TensorSpec], addresses: Mapping[str, int]
    ) -> int:
        base, spec, address = self._base, specs[name], addresses.get(name)
        rank = len(spec.shape)
        self._handles[name] = handle = base.aclCreateTensor(
            _int64s(spec.shape), rank, spec.dtype.acl, _int64s(_strides(spec)), spec.offset,
            spec.format, _int64s(spec.storage_shape), len(spec.storage_shape), address,
        )  # fmt: skip
        return self._own(base.aclDestroyTensor, handle)

    def _list(
        self,
        create: Callable[..., int],
        destroy: Callable[[int], None],
        handles: Sequence[int],
    ) -> int:
        """A list of the descriptors made last; it owns and destroys them [src:descriptors]."""
        made = create((ctypes.c_void_p * len(handles))(*handles), len(handles))
        del self._owned[len(self._owned) - len(handles) :]
        return self._own(destroy, made)

    def _attribute(self, kind: Kind, value: Any) -> Any:
        """What the C function takes for an attribute: the value itself, or an object of it."""
        base = self._base
        if value is None:
            return None
        if kind is Kind.SCALAR:
            return self._scalar(value)
        if kind is Kind.SCALAR_LIST:
            handles = [self._scalar(each) for each in value]
            return self._list(base.aclCreateScalarList, base.aclDestroyScalarList, handles)
        if kind in _ARRAYS:
            element, create, destroy = _ARRAYS[kind]
            made = getattr(base, create)((element * len(value))(*value), len(value))
            return self._own(getattr(base, destroy), made)
        return _by_value(value)

    def _scalar(self, scalar: Scalar) -> int:
        data = np.array(scalar.value, scalar.dtype.numpy)  # the C function copies it
        handle = self._base.aclCreateScalar(data.ctypes.data, scalar.dtype.acl)
        return self._own(self._base.aclDestroyScalar, handle)


_ARRAYS: dict[Kind, tuple[Any, str, str]] = {
    Kind.INT_ARRAY: (ctypes.c_int64, "aclCreateIntArray", "aclDestroyIntArray"),
    Kind.FLOAT_ARRAY: (ctypes.c_float, "aclCreateFloatArray", "aclDestroyFloatArray"),
    Kind.BOOL_ARRAY: (ctypes.c_bool, "aclCreateBoolArray", "aclDestroyBoolArray"),
}
"""The element type, and the functions that make and destroy an array of it."""


def _strides(spec: TensorSpec) -> Sequence[int]:
    """The strides. Without elements: those of PyTorch, since no stride may be 0."""
    return spec.strides if spec.elements else row_major(tuple(max(n, 1) for n in spec.shape))


def _by_value(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value.acl if isinstance(value, DType) else value


class KeptDescriptors:
    """Keeps descriptors by call, so that the same call makes no new ones.

    Drops first those that were used longest ago.

    If tensors of the call have moved since the last time, the descriptors get the new addresses.
    That costs one C call for each moved tensor, and a call has only one set of descriptors,
    however many handles it runs with.

    An operator without reference may change its descriptors (the shape of an output that depends on
    data), so they are used only once. If ``limit`` is 0, all descriptors are used only once.
    """

    def __init__(self, base: NnOpBase, limit: int) -> None:
        self._base, self._limit = base, limit
        self._kept: OrderedDict[Prepared, Descriptors] = OrderedDict()

    @contextmanager
    def of(self, call: Prepared, addresses: Mapping[str, int]) -> Iterator[list[Any]]:
        """The arguments of phase one, for the duration of the block."""
        if not self.keeps(call):
            with Descriptors(self._base, call, addresses) as once:
                yield once.arguments
            return
        yield self.arguments(call, addresses)
        self.trim()

    def keeps(self, call: Prepared) -> bool:
        """Whether the call's descriptors may be used again."""
        return bool(self._limit) and call.operator.reference

    def arguments(self, call: Prepared, addresses: Mapping[str, int]) -> list[Any]:
        """The arguments of a call that it ``keeps``: valid until its next use, or ``trim``."""
        descriptors = self._kept.pop(call, None)
        if descriptors is None:
            descriptors = Descriptors(self._base, call, addresses)
        else:
            try:
                descriptors.move(addresses)
            except BaseException:
                with suppress(NpucallError):
                    descriptors.close()
                raise
        self._kept[call] = descriptors
        return descriptors.arguments

    def trim(self) -> None:
        """Destroys descriptors until no more than ``limit`` are kept."""
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)[1].close()

    def close(self) -> None:
        """Destroys all of them; raises the first failure when all have been tried."""
        with Cleanup() as every:
            while self._kept:
                every.callback(self._kept.popitem()[1].close)


def _int64s(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)
