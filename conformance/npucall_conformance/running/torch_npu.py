"""torch_npu in place of a server: the same cases on the NPU of this host, without npucall.

It uses torch's and torch_npu's public functions. Some cases cannot be expressed with them, and are
not judged, with the reason: null pointers, formats, outputs of other dtypes, shapes or layouts than
torch_npu chooses, and calls that torch's own checks refuse.

The statement of an operator says how it is called, or why not.
"""

from __future__ import annotations

import re
import secrets
from functools import cache
from importlib import import_module
from time import perf_counter_ns
from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BY_NUMPY, DType
from npucall.errors import (
    PARAM_INVALID,
    PARAM_NULLPTR,
    ArgumentError,
    DeviceError,
    DeviceLostError,
    NpucallError,
    OutOfMemoryError,
)
from npucall.products import taken_for
from npucall.tensors import Buffer, Format, TensorSpec
from npucall.wire.replies import Reply, ServerIdentity, Timings
from npucall_client.client import Client
from npucall_conformance.cases.made_call import MadeCall
from npucall_conformance.reporting.report import JudgedServer
from npucall_conformance.running.not_judged import NotJudgedError
from npucall_conformance.statements import statements
from npucall_conformance.stating.npu import InexpressibleError, TorchArguments, Way
from npucall_conformance.wire import WireAnswer

NAME = "torch_npu"
_BUILTIN = "builtin"
_OWN = "torch_npu makes outputs itself, of its own dtype, shape and layout"
_FAMILIES = {
    range(100, 105): "Ascend910A",
    range(200, 206): "Ascend310P3",
    range(220, 226): "Ascend910B1",
    range(240, 244): "Ascend310B1",
    range(250, 257): "Ascend910_9391",
    range(260, 261): "Ascend950",
}
"""A SoC of each family, by the numbers that ``get_soc_version`` returns."""


class TorchNpu:
    """Answers calls on the first NPU that torch sees.

    Raises ValueError if torch or torch_npu is missing, or if the family of the NPU is not known.
    """

    def __init__(self) -> None:
        self._torch, self._npu = _modules()
        soc, product = _soc(self._npu)
        titles = sorted(title for title, way in ways().items() if callable(way))
        self._identity = ServerIdentity(secrets.token_hex(6), f"{NAME}:0", soc)
        self.server = JudgedServer(
            NAME, self._identity.device, soc, product, str(self._npu.__version__),
            self._identity.instance, _BUILTIN, tuple(titles),
        )  # fmt: skip

    @property
    def client(self) -> Client:
        """Raises NotJudgedError: there is no server."""
        raise cannot(f"{NAME} is no server: it has no paths and no listing")

    def answer(self, call: MadeCall, timeout: float) -> WireAnswer:
        """The outputs that torch returns. There is no deadline, since the call cannot be ended.

        Raises NpucallError with the NPU's status, NotJudgedError if torch cannot make the call.
        """
        del timeout
        title = f"{call.operator}.{call.variant}" if call.variant else call.operator
        way = ways().get(title, f"{NAME} has no way to call {title}")
        if isinstance(way, str):
            raise cannot(way)
        _check_outputs(call)
        try:
            given = TorchArguments(self._torch, self._npu, self._values(call))
            start = perf_counter_ns()
            found = way(given)
            self._npu.npu.synchronize()
            run_ns = perf_counter_ns() - start
            outputs = self._outputs(call, found)
        except InexpressibleError as why:
            raise cannot(str(why)) from why
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as raised:
            raise error_of(raised, valid=call.valid) from raised
        reply = Reply(call.variant, None, outputs[0], tuple(outputs[0]), (), self._identity)
        return WireAnswer(reply, outputs[1], Timings(run_ns=run_ns), perf_counter_ns() - start)

    def lives(self) -> bool:
        """Whether the NPU still finishes work."""
        try:
            self._npu.npu.synchronize()
        except RuntimeError:
            return False
        return True

    def _values(self, call: MadeCall) -> dict[str, Any]:
        """Every input and attribute, as torch takes it."""
        values = dict(call.given.values)
        for name, value in values.items():
            sent = call.arguments.get(name)
            if name in call.arguments and sent is None:
                raise cannot("torch passes no null pointers")
            if isinstance(value, np.ndarray) and sent is None:
                raise cannot("torch needs every input")
            if isinstance(sent, TensorSpec):
                values[name] = on_device(self._torch, sent, call.storages[name])
            else:
                values[name] = self._attribute(value if sent is None else sent)
        return values

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, Scalar):  # torch passes on only Python's numbers
            return np.asarray(value.value).astype(value.dtype.numpy).astype(object).item()
        return torch_dtype(self._torch, value) if isinstance(value, DType) else value

    def _outputs(
        self, call: MadeCall, found: Any
    ) -> tuple[dict[str, TensorSpec], dict[str, bytes]]:
        tensors = found if isinstance(found, tuple | list) else (found,)
        if len(tensors) == len(call.dtypes):  # torch has a place for what nobody asks for, too
            answered = zip(call.dtypes, tensors, strict=True)
            tensors = [tensor for name, tensor in answered if name in call.shapes]
        read = [from_device(self._torch, tensor) for tensor in tensors]
        specs = {name: spec for name, (spec, _) in zip(call.shapes, read, strict=True)}
        if not call.valid:
            raise cannot("torch_npu makes a valid call of it, with outputs of its own")
        _check_own(call, specs)
        return specs, {name: data for name, (_, data) in zip(call.shapes, read, strict=True)}


@cache
def ways() -> dict[str, Way | str]:
    """How each operator is called, or why it cannot be, by title."""
    return {each.title: each.npu for each in statements()}


def cannot(why: str) -> NotJudgedError:
    """The error for a call that torch cannot make."""
    return NotJudgedError(why, lowers=False)


def _modules() -> tuple[Any, Any]:
    try:
        return import_module("torch"), import_module(NAME)
    except ImportError as error:
        raise ValueError(
            f"adapter: expected torch and {NAME} in this environment, found none: {error}"
        ) from error


def _soc(npu: Any) -> tuple[str, str]:
    """The SoC and its family; by its number if npucall does not know its name."""
    name = str(npu.npu.get_device_name(0))
    try:
        return name, taken_for(name).product.soc
    except ArgumentError as error:
        number = npu.npu.get_soc_version()
        for numbers, soc in _FAMILIES.items():
            if number in numbers:
                return name, taken_for(soc).product.soc
        raise ValueError(str(error)) from error


def _check_outputs(call: MadeCall) -> None:
    """Raises NotJudgedError for arguments that torch has not, or outputs that it does not make."""
    if call.arguments.keys() - call.given.values.keys() - call.shapes.keys():
        raise cannot("torch has no other arguments than the operator")
    for name, shape in call.shapes.items():
        spec = call.arguments.get(name)
        if name in call.arguments and spec is None:
            raise cannot("torch passes no null pointers")
        wanted = TensorSpec(call.dtypes[name], shape)
        if isinstance(spec, TensorSpec) and spec != wanted:
            raise cannot(_OWN)
    inputs = [v for n, v in call.arguments.items() if n not in call.shapes]
    empty = any(isinstance(v, TensorSpec) and not v.elements for v in inputs)
    if empty and any(0 not in shape for shape in call.shapes.values()):
        raise cannot("torch_npu does not say what an output holds that nothing is computed for")


def _check_own(call: MadeCall, specs: dict[str, TensorSpec]) -> None:
    """Raises NotJudgedError if torch chose other outputs than the case asks for.

    Torch may choose if the case gives the outputs, or if inputs of several dtypes are promoted.
    """
    for name, spec in specs.items():
        if name in call.arguments and spec != call.arguments[name]:
            raise cannot(_OWN)
        if spec.dtype is not call.dtypes[name] and len(set(call.given.dtypes.values())) > 1:
            raise cannot("torch promotes these dtypes otherwise than CANN")


_STATUS = re.compile(r"error code is (\d{6})")
"""In torch_npu's texts: ``call aclnnSilu failed, error code is 161002``."""
_LOST = range(507000, 507100)
"""Statuses of the runtime after which a device answers nothing more in this process."""
_PASSING = (507005, 507006, 507023, 507046, 507047)
"""Those of these statuses after which the device is still usable."""


def error_of(raised: Exception, *, valid: bool) -> NpucallError:
    """The error that a server would have answered.

    Raises NotJudgedError if torch itself refused the call; ``valid``: it should not have done so.
    """
    text = str(raised)
    found = _STATUS.search(text)
    if type(raised).__name__ == "OutOfMemoryError":
        return OutOfMemoryError(text)
    if found is None:
        first = text.strip().partition("\n")[0] or type(raised).__name__
        said = f": {first}" if valid else ""
        raise NotJudgedError(f"torch refuses it before the NPU is asked{said}", lowers=valid)
    status = int(found[1])
    if status in (PARAM_NULLPTR, PARAM_INVALID):
        return ArgumentError(text, aclnn_status=status)
    if status in _LOST and status not in _PASSING:
        return DeviceLostError(text, aclnn_status=status)
    return DeviceError(text, aclnn_status=status)


def torch_dtype(torch: Any, dtype: DType) -> Any:
    """The dtype of torch. Raises NotJudgedError where this torch has none."""
    try:
        return getattr(torch, dtype.numpy.name)
    except AttributeError:
        raise cannot(f"torch has no {dtype}") from None


def on_device(torch: Any, spec: TensorSpec, storage: Buffer) -> Any:
    """The tensor on the NPU. Raises NotJudgedError for a format, since torch has no formats."""
    if spec.format is not Format.ND:
        raise cannot("torch_npu chooses the formats of tensors itself")
    dtype = torch_dtype(torch, spec.dtype)
    data = bytearray(storage)
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.npu().as_strided(spec.shape, spec.strides, spec.offset)


def from_device(torch: Any, tensor: Any) -> tuple[TensorSpec, bytes]:
    """The tensor with its elements row by row: its spec, and its bytes."""
    dense = tensor.detach().cpu().contiguous().reshape(-1)
    storage = dense.view(torch.uint8).numpy().tobytes()
    return TensorSpec(_dtype(torch, tensor.dtype), tuple(tensor.shape)), storage


def _dtype(torch: Any, found: Any) -> DType:
    for dtype in BY_NUMPY.values():
        if found is getattr(torch, dtype.numpy.name, None):
            return dtype
    raise TypeError(f"output: expected a dtype that CANN has, found {found}")
