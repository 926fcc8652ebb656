"""Tensors of a call on the NPU, by torch: the same storage, strides and offset; and back again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.dtypes import BY_NUMPY, DType
from npucall.tensors import Format, TensorSpec
from npucall_conformance.running.not_judged import NotJudgedError

if TYPE_CHECKING:
    from npucall.tensors import Buffer


def torch_dtype(torch: Any, dtype: DType) -> Any:
    """The dtype of torch. Raises NotJudgedError where this torch has none."""
    try:
        return getattr(torch, dtype.numpy.name)
    except AttributeError:
        raise NotJudgedError(f"torch has no {dtype}", lowers=False) from None


def on_device(torch: Any, spec: TensorSpec, storage: Buffer) -> Any:
    """The tensor on the NPU. Raises NotJudgedError for a format, since torch has no formats."""
    if spec.format is not Format.ND:
        raise NotJudgedError("torch_npu chooses the formats of tensors itself", lowers=False)
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
