"""A small ctypes caller of the simulator: operators by name, on NumPy arrays."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from ctypes import byref, c_bool, c_double, c_float, c_int, c_int8, c_int64, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

import pytest

from npucall.dtypes import BY_NUMPY

from .control import Simulator
from .loading import opened
from .prototypes import read_prototypes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from npucall.dtypes import AnyArray

    from .prototypes import Parameter, Prototype
    from .tree import Tree

PROTOTYPES = {p.name: p for p in read_prototypes()}
_TO_DEVICE, _TO_HOST = 1, 2
SATURATES, INFNAN = 0, 1
_NUMBERS = {
    "int8_t": c_int8,
    "int": c_int,
    "int32_t": c_int,
    "int64_t": c_int64,
    "uint64_t": c_uint64,
    "float": c_float,
    "double": c_double,
    "bool": c_bool,
    "char": ctypes.c_char_p,
    "aclDataType": c_int,
}
_ARRAYS: dict[str, Any] = {"aclIntArray": c_int64, "aclFloatArray": c_float, "aclBoolArray": c_bool}


class Caller:
    """A release with the custom package, on the first device; a context manager.

    A process can load one release only: the libraries of both have the same names.
    """

    def __init__(self, tree: Tree, release: str = "9.x") -> None:
        here = tree.generation(release)
        self._environment = here.environment()
        folder = here.lib64
        self.acl = ctypes.CDLL(str(folder / "libascendcl.so"))
        self.acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.base = ctypes.CDLL(str(folder / "libnnopbase.so"))
        self.simulator = Simulator.open(folder)
        self._builtin = [opened(path) for path in sorted(folder.glob("libopapi*.so"))]
        self._custom = [opened(tree.custom / "op_api/lib/libcust_opapi.so")]
        self._open = ExitStack()

    def __enter__(self) -> Self:
        environment = self._open.enter_context(pytest.MonkeyPatch.context())
        for name, value in self._environment.items():
            environment.setenv(name, value)
        self.simulator.reset()
        self.check(self.acl.aclInit(None))
        self._open.callback(self.acl.aclFinalize)
        self.check(self.acl.aclrtSetDevice(0))
        self._open.callback(self.acl.aclrtResetDevice, 0)
        self.on(INFNAN)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def on(self, mode: int) -> None:
        """Launches from now on are on a new stream of this mode."""
        self._stream = c_void_p()
        self.check(self.acl.aclrtSetDeviceSatMode(mode))
        self.check(self.acl.aclrtCreateStream(byref(self._stream)))
        self._open.callback(self.acl.aclrtDestroyStream, self._stream)

    def check(self, status: int) -> None:
        """Raises for a status that is not 0."""
        if status != 0:
            raise RuntimeError(f"{status}: {self.message()}")

    def message(self) -> str:
        """The thread's error text, which is cleared."""
        return (self.acl.aclGetRecentErrMsg() or b"").decode()

    def phase_one(self, name: str, *arguments: Any) -> tuple[int, str]:
        """Status and error text; an executor is destroyed at once."""
        with _Call(self, PROTOTYPES[name]) as call:
            status, _, executor = call.phase_one(self._phases(name)[0], arguments)
            if status == 0:
                self.check(self.base.aclDestroyAclOpExecutor(executor))
            return status, self.message()

    def launch(self, name: str, *arguments: Any, package: str = "builtin") -> None:
        """Runs an operator, whose outputs are written into the arrays given for them."""
        one, two = self._phases(name, package)
        with _Call(self, PROTOTYPES[name]) as call:
            status, size, executor = call.phase_one(one, arguments)
            self.check(status)
            workspace = call.allocate(size) if size else None
            self.check(two(c_void_p(workspace), c_uint64(size), executor, self._stream))
            self.check(self.acl.aclrtSynchronizeStream(self._stream))
            call.download()
        assert self.simulator.violations() == []

    def _phases(self, name: str, package: str = "") -> tuple[Any, Any]:
        libraries = self._custom if package == "custom" else [*self._builtin, *self._custom]
        library = next(library for library in libraries if hasattr(library, name))
        return getattr(library, f"{name}GetWorkspaceSize"), getattr(library, name)


class _Call:
    """The descriptors and the memory of one call, which end with it."""

    def __init__(self, caller: Caller, prototype: Prototype) -> None:
        self._acl, self._base, self._check = caller.acl, caller.base, caller.check
        self._prototype = prototype
        self._open = ExitStack()
        self._downloads: list[tuple[AnyArray, int]] = []
        self._arguments: list[Any] = []  # phase two still reads texts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def phase_one(self, function: Any, values: Sequence[Any]) -> tuple[int, int, c_void_p]:
        """Status, bytes of workspace and executor."""
        pairs = zip(self._prototype.parameters, values, strict=True)
        self._arguments = [self._argument(parameter, value) for parameter, value in pairs]
        size, executor = c_uint64(), c_void_p()
        status = function(*self._arguments, byref(size), byref(executor))
        return status, size.value, executor

    def allocate(self, size: int) -> int:
        """Device memory, until the call ends."""
        address = c_void_p()
        self._check(self._acl.aclrtMalloc(byref(address), ctypes.c_size_t(size), 0))
        self._open.callback(self._acl.aclrtFree, address)
        return address.value or 0

    def download(self) -> None:
        """Copies what the operator wrote into the caller's arrays."""
        for owner, address in self._downloads:
            self._copy(owner.ctypes.data, address, owner.nbytes, _TO_HOST)

    def _argument(self, parameter: Parameter, value: Any) -> Any:
        base_type = parameter.base_type
        if value is None:
            return None
        if base_type == "char":
            value = value.encode()
        if base_type == "aclDataType":
            value = BY_NUMPY[value].acl
        if base_type in _NUMBERS:
            return _NUMBERS[base_type](value)
        return self._descriptor(base_type, value)

    def _descriptor(self, base_type: str, value: Any) -> c_void_p:
        item_type = base_type.removesuffix("List")
        if item_type == base_type:
            return self._keep(base_type, self._make(base_type, self._contents(base_type, value)))
        items = [self._make(item_type, self._contents(item_type, item)).value for item in value]
        contents = (c_void_p * len(items))(*items), c_uint64(len(items))
        return self._keep(base_type, self._make(base_type, contents))

    def _contents(self, base_type: str, value: Any) -> tuple[Any, ...]:
        if base_type == "aclTensor":
            return self._tensor(value)
        if base_type == "aclScalar":
            return ctypes.c_char_p(value.tobytes()), c_int(BY_NUMPY[value.dtype].acl)
        return (_ARRAYS[base_type] * len(value))(*value), c_uint64(len(value))

    def _make(self, base_type: str, contents: tuple[Any, ...]) -> c_void_p:
        create = getattr(self._base, f"aclCreate{base_type.removeprefix('acl')}")
        create.restype = c_void_p
        return c_void_p(create(*contents))

    def _keep(self, base_type: str, handle: c_void_p) -> c_void_p:
        destroy = getattr(self._base, f"aclDestroy{base_type.removeprefix('acl')}")
        self._open.callback(destroy, handle)
        return handle

    def _tensor(self, array: AnyArray) -> tuple[Any, ...]:
        owner = array if array.base is None else array.base
        address = self.allocate(owner.nbytes) if owner.nbytes else 0
        self._copy(address, owner.ctypes.data, owner.nbytes, _TO_DEVICE)
        self._downloads.append((owner, address))
        rank, size = c_uint64(array.ndim), array.itemsize
        return (
            (c_int64 * array.ndim)(*array.shape),
            rank,
            c_int(BY_NUMPY[array.dtype].acl),
            (c_int64 * array.ndim)(*(step // size for step in array.strides)),
            c_int64((array.ctypes.data - owner.ctypes.data) // size),
            c_int(2),
            (c_int64 * 1)(owner.size),
            c_uint64(1),
            c_void_p(address),
        )

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        count = ctypes.c_size_t(size)
        self._check(self._acl.aclrtMemcpy(c_void_p(target), count, c_void_p(source), count, kind))
