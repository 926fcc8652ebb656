"""CANN's functions by raw ctypes, so that tests can also do what no sound caller does."""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_uint64, c_void_p
from typing import Any, NamedTuple

from tests.simulator.control import Simulator
from tests.simulator.loading import opened
from tests.simulator.tree import Generation

FLOAT, FLOAT16, INT8, DOUBLE, BFLOAT16 = 0, 1, 2, 11, 27
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
STOP = 1
EVENT_SYNC, EVENT_TIME_LINE = 0x1, 0x8
FLOATS = 4  # bytes of one
SMALL = 16384  # bytes of workspace where the inputs have none


class Plan(NamedTuple):
    """What phase one answered."""

    status: int
    workspace: int
    executor: int | None


class Cann:
    """The functions of one generation, and of its ``Simulator``; and what most tests need made."""

    def __init__(self, generation: Generation) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._simulator = Simulator.open(generation.lib64)
        libraries = ["libascendcl.so", "libnnopbase.so", "libopapi.so"]
        libraries += [path.name for path in generation.lib64.glob("libopapi_*.so")]
        self.libraries = [opened(generation.lib64 / name) for name in libraries]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("acl"):
            function: Callable[..., Any] = getattr(self._simulator, name)
            return function
        return self._functions.setdefault(name, self._function(name))

    def _function(self, name: str) -> Callable[..., Any]:
        function = next(each for each in self.libraries if hasattr(each, name))[name]
        if name == "aclGetRecentErrMsg":
            function.restype = c_char_p
        elif name.startswith("aclCreate"):
            function.restype = c_void_p
        return wide(function)

    def text(self) -> str:
        """The thread's error text, which this clears."""
        return (self.aclGetRecentErrMsg() or b"").decode()

    def ok(self, status: int) -> None:
        """Fails the test if a call did."""
        assert status == 0, f"{status}: {self.text()}"

    def made(self, function: str, *arguments: Any) -> int:
        """What a function leaves behind its first parameter, a pointer to a pointer."""
        made = c_void_p()
        self.ok(getattr(self, function)(byref(made), *arguments))
        assert made.value
        return made.value

    def number(self, function: str, *arguments: Any) -> int:
        """What a function leaves behind its last parameter, a pointer to an int."""
        number = c_int(-1)
        self.ok(getattr(self, function)(*arguments, byref(number)))
        return number.value

    def device(self, size: int) -> int:
        """Device memory."""
        return self.made("aclrtMalloc", size, 0)

    def pinned(self, content: bytes) -> int:
        """Pinned host memory with this content."""
        address = self.made("aclrtMallocHost", len(content))
        ctypes.memmove(address, content, len(content))
        return address

    def stream(self) -> int:
        """A stream."""
        return self.made("aclrtCreateStream")

    def event(self, flags: int = EVENT_SYNC) -> int:
        """An event of the kind that can be recorded again and again."""
        return self.made("aclrtCreateEventExWithFlag", flags)

    def upload(self, content: bytes) -> int:
        """Device memory with this content."""
        address = self.device(len(content))
        self.ok(self.aclrtMemcpy(address, len(content), content, len(content), TO_DEVICE))
        return address

    def download(self, address: int, size: int) -> bytes:
        """The content of device memory."""
        content = ctypes.create_string_buffer(size)
        self.ok(self.aclrtMemcpy(content, size, address, size, TO_HOST))
        return content.raw

    def tensor(
        self, address: int | None, shape: Sequence[int], dtype: int = FLOAT, *,
        strides: Sequence[int] | None = None, offset: int = 0, storage: Sequence[int] | None = None,
    ) -> int:  # fmt: skip
        """A descriptor; its storage has the view's shape if nothing else is said."""
        storage = shape if storage is None else storage
        steps = None if strides is None else integers(strides)
        where = (integers(storage), len(storage), address)
        return self.aclCreateTensor(integers(shape), len(shape), dtype, steps, offset, 2, *where)

    def tensors(self, count: int, size: int = 8, dtype: int = FLOAT) -> list[int]:
        """Descriptors of so many tensors with memory of their own."""
        return [self.tensor(self.device(size * FLOATS), [size], dtype) for _ in range(count)]

    def double(self, value: float) -> int:
        """A scalar."""
        return self.aclCreateScalar(byref(c_double(value)), DOUBLE)

    def list_of(self, *handles: int | None, kind: str = "Tensor") -> int:
        """A list of descriptors."""
        create = getattr(self, f"aclCreate{kind}List")
        return create((c_void_p * len(handles))(*handles), len(handles))

    def plan(self, operator: str, *arguments: Any) -> Plan:
        """Phase one."""
        size, executor = c_uint64(), c_void_p()
        function = getattr(self, f"{operator}GetWorkspaceSize")
        status = function(*arguments, byref(size), byref(executor))
        return Plan(status, size.value, executor.value)

    def planned(self, operator: str, *arguments: Any) -> Plan:
        """A phase one that must succeed."""
        plan = self.plan(operator, *arguments)
        self.ok(plan.status)
        return plan

    def run(self, operator: str, plan: Plan, stream: int | None = None) -> int:
        """Phase two with a workspace as it was planned."""
        workspace = self.device(plan.workspace) if plan.workspace else None
        return getattr(self, operator)(workspace, plan.workspace, plan.executor, stream)

    def relu(self, size: int = 8) -> tuple[int, int, int, int]:
        """Input, output and their descriptors, for an operator that needs no workspace."""
        source, target = self.device(size * FLOATS), self.device(size * FLOATS)
        return source, target, self.tensor(source, [size]), self.tensor(target, [size])

    def planned_relu(self) -> tuple[int, list[int]]:
        """An executor that needs no workspace, and its descriptors."""
        *_, source, target = self.relu()
        return self.planned("aclnnRelu", source, target).executor or 0, [source, target]

    def relu_once(self, size: int = 8) -> None:
        """Both phases, on descriptors and memory of their own."""
        *_, source, target = self.relu(size)
        self.ok(self.run("aclnnRelu", self.planned("aclnnRelu", source, target)))
        self.ok(self.aclrtSynchronizeStream(None))

    def planned_mul(self) -> Plan:
        """A plan that needs a workspace."""
        return self.planned("aclnnMul", *self.tensors(3))

    def planned_logit(self) -> Plan:
        """A plan of the single-kernel family."""
        source, target = self.tensors(2)
        return self.planned("aclnnLogit", source, 0.1, target)


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, to which numbers are given as they stand in registers."""
    return lambda *arguments: function(*map(_wide, arguments))


def _wide(value: Any) -> Any:
    """A number as wide as a register, of which a function takes as much as it declares."""
    if isinstance(value, float):
        return c_double(value)
    return c_int64(value) if isinstance(value, int) else value


def integers(values: Sequence[int]) -> ctypes.Array[c_int64]:
    """An array of int64_t."""
    return (c_int64 * len(values))(*values)


def host(address: int, size: int) -> bytes:
    """The content of host memory."""
    return ctypes.string_at(address, size)
