"""What a tensor is apart from its bytes, and how its bytes become a NumPy view.

A ``TensorSpec`` has the arguments of CANN's ``aclCreateTensor``: dtype, view shape, strides and
offset in elements, storage shape, format. It is always consistent: its view lies inside its
storage.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from npucall.errors import TensorLayoutError
from npucall.limits import MAX_RANK, MAX_TENSOR_BYTES

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray, DType

Shape: TypeAlias = tuple[int, ...]
Buffer: TypeAlias = "bytes | bytearray | memoryview"


class Format(IntEnum):
    """ACL's codes of ``aclFormat``; on the wire they are one more."""

    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1HWC0_C04 = 12
    HWCN = 16
    NDHWC = 27
    FRACTAL_NZ = 29
    NCDHW = 30
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33
    NC = 35
    NCL = 47
    FRACTAL_NZ_C0_16 = 50
    FRACTAL_NZ_C0_32 = 51
    FRACTAL_NZ_C0_2 = 52
    FRACTAL_NZ_C0_4 = 53
    FRACTAL_NZ_C0_8 = 54

    @classmethod
    def of_rank(cls, rank: int) -> Format:
        """What torch_npu calls a tensor of that rank."""
        return {3: cls.NCL, 4: cls.NCHW, 5: cls.NCDHW}.get(rank, cls.ND)

    @property
    def private(self) -> bool:
        """Whether the format is one of the device's own block layouts."""
        return self.name.startswith(("FRACTAL", "NC1HWC0", "NDC1HWC0"))


@dataclass(frozen=True)
class TensorSpec:
    """Everything about a tensor except its bytes.

    ``strides`` and ``offset`` count elements. ``strides=None`` means row-major without gaps;
    ``storage_shape=None`` means just long enough for the view. ``name`` appears in error messages
    only. Raises TensorLayoutError for a spec that contradicts itself.
    """

    dtype: DType
    shape: Shape
    strides: Shape = None  # type: ignore[assignment]  # never None once it exists
    offset: int = 0
    storage_shape: Shape = None  # type: ignore[assignment]
    format: Format = Format.ND
    name: InitVar[str] = "tensor"

    def __post_init__(self, name: str) -> None:
        itemsize, given = self.dtype.itemsize, self.storage_shape
        _check_extents(name, "shape", self.shape, itemsize)
        if given is not None:
            _check_extents(name, "storage shape", given, itemsize)
        dense = row_major(self.shape)
        if self.strides is None:
            object.__setattr__(self, "strides", dense)
        if len(self.strides) != len(self.shape):
            _fail(name, f"expected {len(self.shape)} strides for shape {self.shape}", self.strides)
        if min((*self.strides, self.offset)) < 0:
            _fail(name, "expected strides and offset of 0 or more", (self.strides, self.offset))
        if self.offset == 0 and self.strides == dense and given in (None, self.shape):
            object.__setattr__(self, "storage_shape", self.shape)
            return  # most tensors: the view is all of its storage
        if given is None:
            object.__setattr__(self, "storage_shape", (self._reach(),))
            _check_extents(name, "storage", self.storage_shape, itemsize)
        if self._reach() > self.storage_elements:
            _fail(
                name,
                f"expected a view inside its storage of {self.storage_elements} elements",
                f"one that reaches element {self._reach()}",
            )

    @cached_property
    def elements(self) -> int:
        """Elements of the view."""
        return prod(self.shape)

    @cached_property
    def storage_elements(self) -> int:
        """Elements of the storage, gaps included."""
        return prod(self.storage_shape)

    @cached_property
    def byte_strides(self) -> Shape:
        """Strides in bytes, as NumPy takes them.

        0 along an extent of 1: it is never used, and may be larger than NumPy can hold.
        """
        size = self.dtype.itemsize
        steps = zip(self.shape, self.strides, strict=True)
        return tuple(stride * size if extent > 1 else 0 for extent, stride in steps)

    @property
    def bytes(self) -> int:
        """Bytes of the view's elements, dense."""
        return self.elements * self.dtype.itemsize

    @property
    def storage_bytes(self) -> int:
        """Bytes of the storage."""
        return self.storage_elements * self.dtype.itemsize

    @property
    def row_major(self) -> bool:
        """Whether the storage is the view's elements in row-major order, and nothing else."""
        return (
            self.offset == 0
            and self.storage_elements == self.elements
            and (self.elements == 0 or self._strides_matter() == _strides_of_dense(self.shape))
        )

    def dense(self) -> TensorSpec:
        """The same tensor in row-major order without gaps."""
        return TensorSpec(self.dtype, self.shape, format=self.format)

    def overlaps_itself(self) -> bool:
        """Whether two elements of the view may share memory.

        Sorted from small to large, each stride must be larger than everything that the smaller ones
        reach. This holds for all views that slicing and transposing make of a dense tensor.
        """
        reach = 0
        moving = [(s, n) for s, n in zip(self.strides, self.shape, strict=True) if n > 1]
        for stride, extent in sorted(moving):
            if stride <= reach:
                return self.elements > 0
            reach += stride * (extent - 1)
        return False

    def _reach(self) -> int:
        """Elements of storage that the view needs."""
        if self.elements == 0:
            return self.offset
        steps = zip(self.shape, self.strides, strict=True)
        return self.offset + 1 + sum((extent - 1) * stride for extent, stride in steps)

    def _strides_matter(self) -> list[int]:
        return [s for s, n in zip(self.strides, self.shape, strict=True) if n > 1]


def row_major(shape: Shape) -> Shape:
    """Strides, in elements, of a row-major tensor without gaps."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def view(spec: TensorSpec, storage: Buffer) -> AnyArray:
    """The elements of a tensor in its storage, not copied; writable if the storage is.

    The storage must have ``spec.storage_bytes`` bytes; NumPy checks the bounds once more.
    """
    if spec.elements == 0:
        return np.empty(spec.shape, spec.dtype.numpy)
    start = spec.offset * spec.dtype.itemsize
    return np.ndarray(spec.shape, spec.dtype.numpy, storage, start, spec.byte_strides)


def broadcast(*shapes: Shape) -> Shape | None:
    """The shape that all of them broadcast to by NumPy's rule, or None if they do not.

    Any rank and extent; nothing is allocated.
    """
    result: list[int] = []
    for axis in range(max(map(len, shapes), default=0)):
        extents = {shape[-1 - axis] for shape in shapes if axis < len(shape)} - {1}
        if len(extents) > 1:
            return None
        result.append(extents.pop() if extents else 1)
    return tuple(reversed(result))


def _strides_of_dense(shape: Shape) -> list[int]:
    return [s for s, n in zip(row_major(shape), shape, strict=True) if n > 1]


def _check_extents(name: str, what: str, extents: Shape, itemsize: int) -> None:
    if len(extents) > MAX_RANK:
        _fail(name, f"expected a {what} of at most {MAX_RANK} dimensions", len(extents))
    if min(extents, default=0) < 0:
        _fail(name, f"expected a {what} of extents of 0 or more", extents)
    if prod(filter(None, extents)) * itemsize > MAX_TENSOR_BYTES:
        _fail(name, f"expected a {what} of less than 2^63 bytes", extents)


def _fail(name: str, expected: str, found: object) -> None:
    raise TensorLayoutError(f"{name}: {expected}, found {found}", parameter=name)
