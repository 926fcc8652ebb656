"""A small caller of the simulator: operators by name, on NumPy arrays."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from ctypes import byref, c_bool, c_double, c_float, c_int64, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

import pytest

from npucall.dtypes import BY_NUMPY

from .loading import opened
from .prototypes import read_prototypes
from .runtime.raw import Cann, wide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from npucall.dtypes import AnyArray

    from .tree import Tree

PROTOTYPES = {p.name: p for p in read_prototypes()}
SATURATES, INFNAN = 0, 1
_ARRAYS: dict[str, Any] = {"IntArray": c_int64, "FloatArray": c_float, "BoolArray": c_bool}


class Caller:
    """CANN 9.x with the custom package, on the first device; a context manager.

    A process can load one release only: the libraries of all have the same names. What calls need
    is kept until another caller or test makes the simulator anew.
    """

    def __init__(self, tree: Tree) -> None:
        here = tree.generation("9.x")
        self._environment = here.environment()
        self._cann = Cann(here)
        self._custom = [opened(tree.custom / "op_api/lib/libcust_opapi.so")]
        self._stream = 0
        self._open = ExitStack()
        self._downloads: list[tuple[AnyArray, int]] = []

    def __enter__(self) -> Self:
        environment = self._open.enter_context(pytest.MonkeyPatch.context())
        for name, value in self._environment.items():
            environment.setenv(name, value)
        self._cann.reset()
        self._cann.ok(self._cann.aclInit(None))
        self._open.callback(self._cann.reset)
        self._cann.ok(self._cann.aclrtSetDevice(0))
        self.on(INFNAN)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def on(self, mode: int) -> None:
        """Launches from now on are on a new stream of this mode."""
        self._cann.ok(self._cann.aclrtSetDeviceSatMode(mode))
        self._stream = self._cann.stream()

    def phase_one(self, name: str, *arguments: Any) -> tuple[int, str]:
        """Status and error text; an executor is destroyed at once."""
        executor = c_void_p()
        status = self._function(f"{name}GetWorkspaceSize")(
            *self._given(name, arguments), byref(c_uint64()), byref(executor)
        )
        if status == 0:
            self._cann.ok(self._cann.aclDestroyAclOpExecutor(executor))
        return status, self._cann.text()

    def launch(self, name: str, *arguments: Any, package: str = "builtin") -> None:
        """Runs an operator, whose outputs are written into the arrays given for them."""
        size, executor = c_uint64(), c_void_p()
        given = self._given(name, arguments)  # phase two still reads texts
        one, two = (self._function(name + end, package) for end in ("GetWorkspaceSize", ""))
        self._cann.ok(one(*given, byref(size), byref(executor)))
        workspace = self._cann.device(size.value) if size.value else None
        self._cann.ok(two(workspace, size.value, executor, self._stream))
        self._cann.ok(self._cann.aclrtSynchronizeStream(self._stream))
        for owner, address in self._downloads:
            ctypes.memmove(
                owner.ctypes.data, self._cann.download(address, owner.nbytes), owner.nbytes
            )
        assert self._cann.violations() == []

    def _function(self, name: str, package: str = "builtin") -> Callable[..., Any]:
        builtin = self._cann.libraries if package == "builtin" else []
        return wide(next(each for each in (*builtin, *self._custom) if hasattr(each, name))[name])

    def _given(self, name: str, values: Sequence[Any]) -> list[Any]:
        self._downloads = []
        pairs = zip(PROTOTYPES[name].parameters, values, strict=True)
        return [self._argument(parameter.base_type, value) for parameter, value in pairs]

    def _argument(self, base_type: str, value: Any) -> Any:
        if value is None:
            return None
        if base_type.startswith("acl") and base_type != "aclDataType":
            return self._descriptor(base_type.removeprefix("acl"), value)
        if base_type == "char":
            return value.encode()
        if base_type in ("float", "double"):
            return (c_float if base_type == "float" else c_double)(value)
        return BY_NUMPY[value].acl if base_type == "aclDataType" else int(value)

    def _descriptor(self, kind: str, value: Any) -> Any:
        if kind.endswith("List"):
            kind = kind.removesuffix("List")
            return self._cann.list_of(*(self._descriptor(kind, one) for one in value), kind=kind)
        if kind == "Tensor":
            return self._tensor(value)
        if kind == "Scalar":
            return self._cann.aclCreateScalar(value.tobytes(), BY_NUMPY[value.dtype].acl)
        create = getattr(self._cann, f"aclCreate{kind}")
        return create((_ARRAYS[kind] * len(value))(*value), len(value))

    def _tensor(self, array: AnyArray) -> int:
        owner = array if array.base is None else array.base
        address = self._cann.upload(owner.tobytes()) if owner.nbytes else None
        if address:
            self._downloads.append((owner, address))
        size = array.itemsize
        return self._cann.tensor(
            address,
            array.shape,
            BY_NUMPY[array.dtype].acl,
            strides=[step // size for step in array.strides],
            offset=(array.ctypes.data - owner.ctypes.data) // size,
            storage=[owner.size],
        )
