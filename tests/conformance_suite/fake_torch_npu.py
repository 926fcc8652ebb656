"""A stand-in for torch_npu: its public functions, as far as the adapter calls them, on the CPU."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def stand_in(torch: Any, soc: str = "Ascend910B1") -> Any:
    """The module. Its attributes may be replaced, to be wrong."""
    functional = torch.nn.functional

    def npu_gelu(input: Any, approximate: str = "none") -> Any:  # noqa: A002  # as torch_npu has it
        return functional.gelu(input, approximate=approximate)

    def npu_dtype_cast(input: Any, dtype: Any) -> Any:  # noqa: A002
        return input.to(dtype)

    def npu_cross_entropy_loss(
        input: Any,  # noqa: A002
        target: Any,
        weight: Any = None,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        lse_square_scale_for_zloss: float = 0.0,
        return_zloss: bool = False,
    ) -> Any:
        if lse_square_scale_for_zloss or return_zloss:
            raise RuntimeError("call aclnnCrossEntropyLoss failed, error code is 161002")
        weight = None if weight is None else weight.to(input.dtype)
        loss = functional.cross_entropy(
            input, target, weight, ignore_index=ignore_index, reduction=reduction,
            label_smoothing=label_smoothing,
        )  # fmt: skip
        loss = loss if reduction == "none" else loss.reshape(1)
        nothing = torch.empty(0, dtype=input.dtype)
        return loss, functional.log_softmax(input, -1), nothing, nothing

    def npu_rotary_mul(input: Any, r1: Any, r2: Any, rotary_mode: str = "half") -> Any:  # noqa: A002
        if rotary_mode == "half":
            a, b = input.chunk(2, -1)
            turned = torch.cat([-b, a], -1)
        else:
            a, b = input[..., ::2], input[..., 1::2]
            turned = torch.stack([-b, a], -1).flatten(-2)
        wide = (each.float() for each in (input, r1, turned, r2))
        x, cos, partner, sin = wide
        return (x * cos + partner * sin).to(input.dtype)

    def npu_rotary_mul_backward(
        grad: Any,
        input: Any,  # noqa: A002
        r1: Any,
        r2: Any,
        rotary_mode: str = "half",
    ) -> Any:
        given = [each.detach().float().requires_grad_() for each in (input, r1, r2)]
        with torch.enable_grad():
            result = npu_rotary_mul(*given, rotary_mode)
        found = torch.autograd.grad(result, given, grad.float())
        return tuple(each.to(grad.dtype) for each in found)

    module: Any = ModuleType("torch_npu")
    module.__version__ = "2.13.0.stand-in"
    module.npu = SimpleNamespace(
        get_device_name=lambda device: soc,
        get_soc_version=lambda: 220,
        synchronize=lambda: None,
        matmul=SimpleNamespace(allow_hf32=False),
    )
    module.npu_gelu = npu_gelu
    module.npu_dtype_cast = npu_dtype_cast
    module.npu_cross_entropy_loss = npu_cross_entropy_loss
    module.npu_rotary_mul = npu_rotary_mul
    module.npu_rotary_mul_backward = npu_rotary_mul_backward
    return module


def install(monkeypatch: pytest.MonkeyPatch, torch: Any, module: Any) -> None:
    """Has ``import torch_npu`` give it, and tensors go to its device, which is this memory."""
    monkeypatch.setitem(__import__("sys").modules, "torch_npu", module)
    monkeypatch.setattr(torch.Tensor, "npu", lambda self: self.clone(), raising=False)
