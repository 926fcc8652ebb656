"""The memory of the device of one process."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np

from npucall.tensors import TensorSpec, view
from npucall_exec.frames import NOWHERE

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray
    from npucall_client.shared.memory import SharedMemory

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Memory:
    """Bytes that a program and this process have in common."""

    def __init__(self, descriptor: int, data: memoryview, end: Callable[[], object]) -> None:
        self.descriptor, self.size = descriptor, len(data)
        self.bytes = data
        self.close = end
        """Gives it back; its pages go when nothing refers to them any more."""

    @classmethod
    def of_pages(cls, size: int) -> Self:
        """Memory of this host, whose pages exist once they are used."""
        descriptor = os.memfd_create("npucall", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        data = memoryview(mmap.mmap(descriptor, size))
        return cls(descriptor, data, partial(os.close, descriptor))

    @classmethod
    def of_server(cls, memory: SharedMemory) -> Self:
        """Memory that the server sees too, so that tensors do not travel."""
        data = memory.empty(memory.nbytes, np.uint8).data
        return cls(memory.descriptor, data, memory.close)

    def array(self, spec: TensorSpec, offset: int) -> AnyArray:
        """The elements of a tensor there. Raises ValueError beyond the end."""
        if offset == NOWHERE or not spec.elements:
            return np.empty(spec.shape, spec.dtype.numpy)
        if offset + spec.storage_bytes > self.size:
            raise ValueError(f"tensor: expected memory of the device, found byte {offset}")
        return view(spec, self.bytes[offset : offset + spec.storage_bytes])
