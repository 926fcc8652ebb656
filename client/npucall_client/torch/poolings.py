"""Poolings of planes with two axes, and with depth; with torch's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from npucall_client.torch.declarations import Function, Run, Steps, function, two_operators

_FLAT = 2


def _maxima(axes: int) -> Function[...]:
    name = "MaxPool2dWithIndices" if axes == _FLAT else "MaxPool3dWithArgmax"

    def max_pool(
        input: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> Steps:
        told = {"kernel_size": tuple(kernel_size), "stride": tuple(stride), "ceil_mode": ceil_mode}
        told |= {"padding": tuple(padding), "dilation": tuple(dilation)}
        # With two axes most products have no gradient but in float32.
        wide = torch.promote_types(input.dtype, torch.float32) if axes == _FLAT else input.dtype

        def backward(run: Run, upstream: Tensor, indices: Any) -> Any:
            given = {"grad_output": upstream.to(wide), "self": input.to(wide), "indices": indices}
            return run(f"aclnn{name}Backward", **given, **told)

        def by_torch() -> tuple[Tensor, Tensor]:
            pool = getattr(torch.nn.functional, f"max_pool{axes}d")
            result, indices = pool(input, **told, return_indices=True)
            return result, indices.int()

        return Steps(
            lambda run: run(f"aclnn{name}", self=input, **told), {("input",): backward}, by_torch
        )

    torchs = getattr(torch, f"max_pool{axes}d")
    return _named(max_pool, "max_pool", axes, ("indices",), torchs)


def _averages(axes: int) -> Function[...]:
    def avg_pool(
        input: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Steps:
        if divisor_override == 0:
            raise ValueError("divisor_override: expected None or another number than 0, found 0")
        told = {"self": input, "kernel_size": tuple(kernel_size), "stride": tuple(stride)}
        told |= {"padding": tuple(padding), "ceil_mode": ceil_mode}
        told |= {"count_include_pad": count_include_pad, "divisor_override": divisor_override or 0}
        return two_operators(f"aclnnAvgPool{axes}d", f"aclnnAvgPool{axes}dBackward", told)

    return _named(avg_pool, "avg_pool", axes)


def _shared_averages(axes: int) -> Function[...]:
    def adaptive_avg_pool(input: Tensor, output_size: Sequence[int]) -> Steps:
        told = {"self": input, "output_size": tuple(output_size)}
        name = f"aclnnAdaptiveAvgPool{axes}d"
        return two_operators(name, f"{name}Backward", told, {"self": input})

    return _named(adaptive_avg_pool, "adaptive_avg_pool", axes)


def _shared_maxima(axes: int) -> Function[...]:
    name = f"aclnnAdaptiveMaxPool{axes}d"

    def adaptive_max_pool(input: Tensor, output_size: Sequence[int]) -> Steps:
        def backward(run: Run, upstream: Tensor, indices: Any) -> Any:
            return run(f"{name}Backward", grad_output=upstream, self=input, indices=indices)

        def by_torch() -> tuple[Tensor, Tensor]:
            pool = getattr(torch.nn.functional, f"adaptive_max_pool{axes}d")
            result, indices = pool(input, output_size, return_indices=True)
            return result, indices if axes == _FLAT else indices.int()

        return Steps(
            lambda run: run(name, self=input, output_size=tuple(output_size)),
            {("input",): backward},
            by_torch,
        )

    def torchs(input: Tensor, output_size: Any) -> Any:
        """Torch's own takes any arguments."""
        return getattr(torch.nn.functional, f"adaptive_max_pool{axes}d")(input, output_size)

    return _named(adaptive_max_pool, "adaptive_max_pool", axes, ("indices",), torchs)


def _unpooled(axes: int) -> Function[...]:
    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        output_size: Sequence[int],
    ) -> Steps:
        wide = torch.float32 if input.dtype is torch.bfloat16 else input.dtype
        told = {"self": input.to(wide), "indices": indices, "output_size": tuple(output_size)}
        if axes != _FLAT:
            told |= {"stride": tuple(stride), "padding": tuple(padding)}
        name = f"aclnnMaxUnpool{axes}d"

        def forward(run: Run) -> Any:
            found = run(name, **told)
            return found if wide is input.dtype else run.tensor(found).to(input.dtype)

        def backward(run: Run, upstream: Tensor) -> Any:
            return run(f"{name}Backward", grad_output=upstream.to(wide), **told)

        return Steps(forward, {("input",): backward})

    max_unpool.__name__ = f"max_unpool{axes}d"
    return function("input", autocast="float32")(max_unpool)


def _named(
    steps: Callable[..., Steps],
    name: str,
    axes: int,
    hidden: tuple[str, ...] = (),
    by_torch: Callable[..., Any] | None = None,
) -> Function[...]:
    """Torch's autocast computes those with depth in float32."""
    steps.__name__ = f"{name}{axes}d"
    autocast = "" if axes == _FLAT else "float32"
    return function("input", hidden=hidden, autocast=autocast, by_torch=by_torch)(steps)


max_pool2d, max_pool3d = _maxima(2), _maxima(3)
avg_pool2d, avg_pool3d = _averages(2), _averages(3)
adaptive_avg_pool2d, adaptive_avg_pool3d = _shared_averages(2), _shared_averages(3)
adaptive_max_pool2d, adaptive_max_pool3d = _shared_maxima(2), _shared_maxima(3)
max_unpool2d, max_unpool3d = _unpooled(2), _unpooled(3)
