"""A tensor as callers hold it, as a NumPy array, and as it travels. Pure."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npucall.dtypes import BY_NUMPY, DTYPES, INT8
from npucall.errors import ArgumentError, DTypeError, TensorLayoutError
from npucall.tensors import TensorSpec, view

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer, Shape

_TORCH_ONLY = {
    f"torch.{dtype.numpy}": (dtype.numpy, f"int{8 * dtype.itemsize}")
    for dtype in DTYPES
    if not dtype.is_of_numpy
}
"""Types of torch that NumPy does not have itself, and the integers of torch of the same size."""

_CAST = frozenset("bBhHiIlLqQfd")
"""Types of NumPy whose memory Python sees as bytes without NumPy's help."""


class Sent(NamedTuple):
    """How a tensor travels."""

    dtype: np.dtype[Any]
    shape: Shape
    strides: Shape | None
    """In elements; None: row-major without gaps."""
    storage_shape: Shape | None
    storage: Buffer


def as_array(name: str, value: Any) -> AnyArray:
    """A NumPy array of the same memory, of an array or a CPU tensor of another library.

    Raises TypeError if the value is no array, DTypeError for elements that cannot travel.
    """
    if isinstance(value, np.ndarray):
        array: AnyArray = value
    elif hasattr(value, "detach"):
        array = _from_torch(name, value)
    elif hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        array = _from_dlpack(name, value)
    elif _is_buffer(value):
        array = np.asarray(memoryview(value))
    else:
        raise TypeError(
            f"{name}: expected an array, found {type(value).__name__}; "
            "numpy.asarray(..., numpy.float32) makes one"
        )
    if array.dtype in BY_NUMPY:
        return array
    return array.astype(checked_dtype(name, array.dtype.newbyteorder("=")))


def checked_dtype(name: str, value: Any) -> np.dtype[Any]:
    """The dtype of NumPy, from any value that ``numpy.dtype`` takes. Raises DTypeError."""
    dtype = np.dtype(value)
    if dtype not in BY_NUMPY:
        known = ", ".join(str(dtype) for dtype in BY_NUMPY)
        raise DTypeError(f"{name}: expected a dtype among {known}, found {dtype}", parameter=name)
    return dtype


def as_target(name: str, value: Any) -> AnyArray:
    """The caller's own array, or torch tensor as an array of the same memory, to write to.

    Raises TypeError if it cannot be written in place, TensorLayoutError if elements share memory.
    """
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        array = as_array(name, value)
        if array.flags.writeable and _same_memory(array, value):
            _check_apart(name, array)
            return array
    raise TypeError(
        f"{name}: expected a NumPy array of native byte order or a torch tensor that can be "
        f"written, found {type(value).__name__}"
    )


def send(name: str, array: AnyArray, *, keep_layout: bool) -> Sent:
    """How an array travels.

    A row-major array goes as it is. Another one goes with its strides if that takes no more bytes
    than its elements; otherwise its elements are gathered. ``keep_layout``: it goes with its
    strides, even if there are gaps between the elements.
    """
    if array.flags.c_contiguous:
        return Sent(array.dtype, array.shape, None, None, memory(array))
    reach = reach_of(array, keep_layout=keep_layout)
    if reach is not None:
        strides = _strides(array)
        return Sent(array.dtype, array.shape, strides, (reach,), reached(array, reach))
    if keep_layout:
        raise TensorLayoutError(
            f"{name}: expected strides of 0 or more whole elements, found {array.strides} bytes; "
            "with keep_layout=False the client sends a dense copy",
            parameter=name,
        )
    return Sent(array.dtype, array.shape, None, None, reached(array, None))


def reach_of(array: AnyArray, *, keep_layout: bool = False) -> int | None:
    """How many elements lie from an array's first to its last one, if it travels with these.

    None: its elements are gathered.
    """
    strides = _strides(array)
    if strides is None:
        return None
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    return reach if keep_layout or reach <= array.size else None


def reached(array: AnyArray, reach: int | None) -> memoryview:
    """What travels of an array that is not row-major; see ``reach_of``."""
    if reach is None:
        return memory(np.ascontiguousarray(array))
    return memory(_memory(array, reach))


def receive(spec: TensorSpec, storage: Buffer) -> AnyArray:
    """The elements in an array of its own memory.

    Received bytes are copied: they cannot be written, and would keep the whole message in memory.
    """
    array = view(spec, storage)
    return array if array.flags.writeable else array.copy()


def write(target: AnyArray, spec: TensorSpec, storage: Buffer, *, keep_layout: bool) -> None:
    """Scatters dense elements into the caller's array.

    ``keep_layout``: all of its memory, gaps as they came back.
    """
    if _was_received_in_place(target, storage):
        return
    if keep_layout and target.size:
        elements = _memory(target, spec.storage_elements)
        elements[...] = np.frombuffer(storage, spec.dtype.numpy)
    else:
        np.copyto(target, view(spec, storage))


def _was_received_in_place(target: AnyArray, storage: Buffer) -> bool:
    received = np.frombuffer(storage, np.uint8)
    same_start = address(received) == address(target)
    return same_start and received.nbytes == target.nbytes and target.flags.c_contiguous


def is_dense(target: AnyArray, spec: TensorSpec) -> bool:
    """Whether the caller's array is, byte for byte, the storage that the spec describes."""
    same = (target.dtype, target.shape) == (spec.dtype.numpy, spec.shape)
    return same and target.flags.c_contiguous and spec.row_major


def address(array: AnyArray) -> int:
    """The address of an array's first element, in half the time that ``ctypes`` takes."""
    start: int = array.__array_interface__["data"][0]
    return start


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch."""
    return hasattr(value, "detach")


def is_meta(value: Any) -> bool:
    """Whether it is a tensor of torch that has a shape and a dtype, and no data."""
    return is_torch(value) and bool(value.device.type == "meta")


def dtype_of_torch(name: str, tensor: Any) -> np.dtype[Any]:
    """The dtype of a tensor of torch. Raises DTypeError for elements that cannot travel."""
    named = str(tensor.dtype)
    if named in _TORCH_ONLY:
        return np.dtype(_TORCH_ONLY[named][0])
    try:
        return checked_dtype(name, named.removeprefix("torch."))
    except (TypeError, DTypeError):  # no such dtype of NumPy, or of the contract
        raise DTypeError(f"{name}: no operator takes {named}", parameter=name) from None


def to_torch(array: AnyArray) -> Any:
    """A torch tensor of the same memory. Raises ImportError if torch is not installed."""
    torch: Any = import_module("torch")
    for name, (dtype, integers) in _TORCH_ONLY.items():
        if array.dtype == dtype:
            bits = torch.from_numpy(array.view(integers))
            return bits.view(getattr(torch, name.removeprefix("torch.")))
    return torch.from_numpy(array)


def _same_memory(array: AnyArray, value: Any) -> bool:
    """Whether ``as_array`` made no copy of the value."""
    if isinstance(value, np.ndarray):
        return array is value
    return not (value.is_conj() or value.is_neg())


def _check_apart(name: str, array: AnyArray) -> None:
    """Counts in bytes, since the strides of a field of records need not be whole elements."""
    if array.flags.c_contiguous:
        return
    strides = (*map(abs, array.strides), 1)
    if TensorSpec(INT8, (*array.shape, array.itemsize), strides).overlaps_itself():
        raise TensorLayoutError(
            f"{name}: expected an output whose elements do not share memory, found shape "
            f"{array.shape} with strides of {array.strides} bytes",
            parameter=name,
        )


def _strides(array: AnyArray) -> Shape | None:
    """Strides in elements, or None if they are negative, or not whole elements."""
    if array.size == 0 or any(s < 0 or s % array.itemsize for s in array.strides):
        return None
    return tuple(stride // array.itemsize for stride in array.strides)


def _memory(array: AnyArray, elements: int) -> AnyArray:
    """All memory from an array's first element to the end of its last one."""
    return np.lib.stride_tricks.as_strided(array, (elements,), (array.itemsize,))


def is_cast(array: AnyArray) -> bool:
    """Whether Python sees the bytes of a row-major array without NumPy's help."""
    return bool(array.size and type(array) is np.ndarray and array.dtype.char in _CAST)


def memory(array: AnyArray) -> memoryview:
    """The bytes of a row-major array without gaps."""
    if is_cast(array):
        return array.data.cast("B")  # makes no other array
    return np.asarray(array).reshape(-1).view(np.uint8).data  # a matrix stays two-dimensional


def _is_buffer(value: Any) -> bool:
    """Whether it offers its memory; a text of bytes is none."""
    with suppress(TypeError):
        memoryview(value)
        return not isinstance(value, bytes)
    return False


def _from_dlpack(name: str, value: Any) -> AnyArray:
    """A NumPy array of what another library has, copied to this host if it is on a device."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError):
        pass
    try:
        return np.from_dlpack(value, device="cpu")  # NumPy 2.1 or newer
    except (BufferError, RuntimeError, TypeError) as error:
        raise TypeError(f"{name}: expected an array in CPU memory, found: {error}") from error


def _from_torch(name: str, tensor: Any) -> AnyArray:
    """A NumPy array of a torch CPU tensor's memory; torch itself is not imported."""
    if tensor.device.type != "cpu":
        raise TypeError(f"{name}: expected a tensor in CPU memory, found one on {tensor.device}")
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise ArgumentError(
            f"{name}: expected a tensor without requires_grad, since its gradient would be lost; "
            f"use npucall.torch.functional, whose gradients flow, or give {name}.detach()",
            parameter=name,
        )
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if str(tensor.dtype) not in _TORCH_ONLY:
        return np.asarray(tensor.numpy())
    dtype, integers = _TORCH_ONLY[str(tensor.dtype)]
    bits = tensor.view(getattr(sys.modules["torch"], integers))
    return np.asarray(bits.numpy()).view(dtype)
