"""Planes that get other extents or edges, with torch's signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from npucall.operators import CATALOGUE
from npucall_client.torch.declarations import Steps, function, two_operators

_MODES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
}
"""The numbers of axes that each has."""
_SAMPLED = ("bilinear", "nearest", "bicubic")
_BEYOND = ("zeros", "border", "reflection")
_EDGES = {"reflect": "Reflection", "replicate": "Replication", "circular": "Circular"}


@function()
def interpolate(
    input: Tensor,
    size: Sequence[int] | None = None,
    scale_factor: Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Steps:
    after, scales = _extents(input, size, scale_factor)
    if recompute_scale_factor:
        scales = []
    axes = len(after)
    if axes not in _MODES.get(mode, ()):
        raise ValueError(f"mode: expected one of {tuple(_MODES)} for {axes} axes, found {mode!r}")
    kind = mode.title().replace("-", "") + f"{axes}d" + "AA" * antialias
    back = {"Bilinear2d": "BackwardV2", "Bicubic2dAA": "Grad"}.get(kind, "Backward")
    names = ("scales_d", "scales_h", "scales_w")[-axes:] if axes > 1 else ("scale",)
    told: dict[str, Any] = {"output_size": tuple(after), "align_corners": bool(align_corners)}
    told |= dict(zip(names, scales))  # noqa: B905  # there may be none
    told["scales"] = told.get("scale", 0.0)
    told["input_size"] = tuple(input.shape)
    flat = mode == "nearest" and scales and axes < len(_EDGES)

    def forward(run: Any) -> Any:
        if not flat:
            return run(f"aclnnUpsample{kind}", **_given(f"aclnnUpsample{kind}", input, told))
        ones = (1,) * (3 - axes)  # that along three axes alone takes scales
        planes = input.reshape(*input.shape[:2], *ones, *input.shape[2:])
        given = dict(zip(("scales_w", "scales_h"), reversed(scales)))  # noqa: B905
        deep = run("aclnnUpsampleNearest3d", self=planes, output_size=(*ones, *after), **given)
        return run.tensor(deep).reshape(*input.shape[:2], *after)

    def backward(run: Any, upstream: Tensor) -> Any:
        operator = f"aclnnUpsample{kind}{back}"
        return run(operator, **_given(operator, upstream, told))

    def by_torch() -> Any:
        private = "_" * (antialias or mode == "nearest-exact")
        name = f"{private}upsample_{mode.replace('-', '_')}{axes}d{'_aa' * antialias}"
        aligned = () if "nearest" in mode else (bool(align_corners),)
        given = scales or (None,) * axes
        return getattr(torch.ops.aten, name)(input, after, *aligned, *given)

    return Steps(forward, {("input",): backward}, by_torch)


def _given(operator: str, tensor: Tensor, told: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that an operator of the family has."""
    declared = CATALOGUE[operator]
    names = {each.name for each in declared.attributes}
    return {declared.inputs[0].name: tensor, **{n: v for n, v in told.items() if n in names}}


def _extents(
    input: Tensor, size: Sequence[int] | None, scale_factor: Sequence[float] | None
) -> tuple[list[int], list[float]]:
    """The new extents, and the scales: none where extents say it."""
    if size is not None and scale_factor is None:
        return list(size), []
    if scale_factor is None or size is not None:
        raise ValueError("size: expected it or scale_factor, found both or none")
    pairs = zip(input.shape[2:], scale_factor, strict=True)
    return [int(extent * scale) for extent, scale in pairs], list(scale_factor)


def several(value: Any, input: Tensor) -> Any:
    """A number for each axis of planes; None stays."""
    return [value] * (input.dim() - 2) if isinstance(value, (int, float)) else value


@function()
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Steps:
    if mode not in _EDGES:
        raise ValueError(f"mode: expected one of {tuple(_EDGES)}, found {mode!r}")
    del value
    axes = len(pad) // 2
    flat = mode == "circular" and axes == 1  # circles have no operator along one axis
    planes = input.unsqueeze(-2) if flat else input
    edges = (*pad, 0, 0) if flat else tuple(pad)
    operator = f"aclnn{_EDGES[mode]}Pad{axes + flat}d"

    def forward(run: Any) -> Any:
        found = run(operator, self=planes, padding=edges)
        return run.tensor(found).squeeze(-2) if flat else found

    def backward(run: Any, upstream: Tensor) -> Any:
        grad = upstream.unsqueeze(-2) if flat else upstream
        found = run(f"{operator}Backward", grad_output=grad, self=planes, padding=edges)
        return run.tensor(found).squeeze(-2) if flat else found

    return Steps(
        forward,
        {("input",): backward},
        lambda: torch.nn.functional.pad(input, list(pad), mode),
    )


@function("input", "grid", autocast="float32")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Steps:
    for name, value, known in (("mode", mode, _SAMPLED), ("padding_mode", padding_mode, _BEYOND)):
        if value not in known:
            raise ValueError(f"{name}: expected one of {known}, found {value!r}")
    told = {"input": input, "grid": grid, "interpolation_mode": _SAMPLED.index(mode)}
    told |= {"padding_mode": _BEYOND.index(padding_mode), "align_corners": bool(align_corners)}
    operator = f"aclnnGridSampler{input.dim() - 2}D"
    return two_operators(operator, f"{operator}Backward", told, of=("input", "grid"))


@function()
def unfold(
    input: Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Steps:
    told = _windows(kernel_size, dilation, padding, stride)
    back = {**told, "input_size": tuple(input.shape[-2:])}
    return two_operators("aclnnIm2col", "aclnnIm2colBackward", {**told, "self": input}, back)


@function()
def fold(
    input: Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Steps:
    back = _windows(kernel_size, dilation, padding, stride)
    told = {**back, "grad_output": input, "input_size": tuple(output_size)}
    return two_operators("aclnnIm2colBackward", "aclnnIm2col", told, back, grad="self")


def _windows(*each: Sequence[int]) -> dict[str, Any]:
    names = ("kernel_size", "dilation", "padding", "stride")
    return {name: tuple(numbers) for name, numbers in zip(names, each, strict=True)}
