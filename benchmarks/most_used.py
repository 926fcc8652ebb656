"""The most used operators beside the layers of a GPT and a ResNet, as cases of ``layers``.

Those that public programs call and PyTorch has a function for, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from layers import Layer, LayerCase, Operator, floats

ROWS, PLANES, SPACE = (4096, 2048), (8, 64, 56, 56), (8, 64, 8, 28, 28)
BILINEAR = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": False}
WINDOWS = {"kernel_size": [3], "stride": [2], "padding": [1]}
COLUMNS = {"kernel_size": [3, 3], "dilation": [1, 1], "padding": [1, 1], "stride": [1, 1]}
TRAINING = {"training": True, "eps": 1e-5}


class Used(NamedTuple):
    """An operator and its gradient, beside a function of ``torch.nn.functional``."""

    name: str
    torch: Callable[..., Any]
    given: dict[str, tuple[int, ...]]
    """The shapes of its inputs."""
    told: dict[str, Any]
    back: Callable[[dict[str, Any], list[Any], Any], dict[str, Any]]
    """What the gradient gets, of inputs, outputs, and the gradient of the first of these."""
    backward: str = ""
    """The gradient's name, if it does not end in Backward."""

    def layer(self) -> Layer:
        """Calls of both."""
        given = {name: floats(*shape) for name, shape in self.given.items()}
        forward = Operator(f"aclnn{self.name}", **given, **self.told)
        results = [each.copy() for each in forward.run()]
        upstream = floats(*results[0].shape)
        back = self.back(given, results, upstream)
        backward = Operator(f"aclnn{self.backward or self.name + 'Backward'}", **back)
        return Layer(forward, backward, self.torch, tuple(given.values()), upstream)


def _elementwise(name: str, **told: Any) -> Used:
    function = name.lower()
    return Used(
        name,
        lambda f, x: getattr(f, function)(x, *told.values()),
        {"self": ROWS},
        told,
        lambda given, _, g: {**given, "grad_output": g, **told},
    )


def _pad(mode: str) -> Used:
    told = {"padding": [2, 2, 2, 2]}
    return Used(
        f"{mode.title().replace('cate', 'cation').replace('ect', 'ection')}Pad2d",
        lambda f, x: f.pad(x, (2, 2, 2, 2), mode=mode),
        {"self": PLANES},
        told,
        lambda given, _, g: {**given, "grad_output": g, **told},
    )


def _upsample(mode: str, name: str, gradient: str, **told: Any) -> Used:
    planes = SPACE if name.endswith("3d") else PLANES
    size = [2 * extent for extent in planes[2:]]
    return Used(
        f"Upsample{name}",
        lambda f, x: f.interpolate(x, size=size, mode=mode, **told),
        {"self": planes},
        {"output_size": size, **told},
        lambda _, __, g: {gradient: g, "output_size": size, "input_size": list(planes), **told},
    )


def _swi_glu(f: Any, x: Any) -> Any:
    gate, value = x.chunk(2, -1)
    return f.silu(gate) * value


def _rotated(_: Any, x: Any, cos: Any, sin: Any) -> Any:
    import torch  # noqa: PLC0415  # need not be installed

    one, other = x.chunk(2, -1)
    return x * cos + torch.cat((-other, one), -1) * sin


def _batch_norm(given: dict[str, Any], results: list[Any], g: Any) -> dict[str, Any]:
    of_batch = dict(zip(("save_mean", "save_invstd"), results[-2:], strict=True))
    read = {"input": given["input"], "weight": given["weight"]}
    return {"grad_out": g, **read, **of_batch, **TRAINING, "output_mask": [True] * 3}


def _indexed(told: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    return lambda x, y, g: {**x, **told, "grad_output": g, "indices": y[1]}


USED = (
    Used(
        "BatchNorm",
        lambda f, x, w, b: f.batch_norm(x, None, None, w, b, training=True),
        {"input": PLANES, "weight": PLANES[1:2], "bias": PLANES[1:2]},
        {**TRAINING, "momentum": 0.1},
        _batch_norm,
    ),
    Used(
        "SwiGlu",
        _swi_glu,
        {"x": ROWS},
        {"dim": -1},
        lambda x, _, g: {**x, "y_grad": g, "dim": -1},
        "SwiGluGrad",
    ),
    Used(
        "Glu",
        lambda f, x: f.glu(x),
        {"self": ROWS},
        {"dim": -1},
        lambda x, _, g: {**x, "grad_out": g, "dim": -1},
    ),
    Used(
        "RotaryPositionEmbedding",
        _rotated,
        {"x": (2, 8, 1024, 64), "cos": (1, 1, 1024, 64), "sin": (1, 1, 1024, 64)},
        {"mode": 0},
        lambda given, _, g: {**given, "dy": g, "mode": 0},
        "RotaryPositionEmbeddingGrad",
    ),
    *map(_elementwise, ("Mish",)),
    _elementwise("Softshrink", lambd=0.5),
    _elementwise("Hardshrink", lambd=0.5),
    Used(
        "Selu",
        lambda f, x: f.selu(x),
        {"self": ROWS},
        {},
        lambda _, y, g: {"grad_output": g, "result": y[0]},
    ),
    _upsample("nearest", "Nearest2d", "grad_out"),
    _upsample("bilinear", "Bilinear2d", "grad_out", align_corners=False),
    _upsample("bicubic", "Bicubic2d", "grad_out", align_corners=False),
    _upsample("trilinear", "Trilinear3d", "grad_out", align_corners=False),
    *map(_pad, ("reflect", "replicate")),
    Used(
        "GridSampler2D",
        lambda f, x, grid: f.grid_sample(x, grid.clamp(-1, 1), align_corners=False),
        {"input": PLANES, "grid": (8, 56, 56, 2)},
        BILINEAR,
        lambda given, _, g: {**given, **BILINEAR, "grad_output": g, "output_mask": [True] * 2},
    ),
    Used(
        "Im2col",
        lambda f, x: f.unfold(x, 3, padding=1),
        {"self": PLANES},
        COLUMNS,
        lambda _, __, g: {"grad_output": g, "input_size": [56, 56], **COLUMNS},
    ),
    Used(
        "AvgPool3d",
        lambda f, x: f.avg_pool3d(x, 3, 2, 1),
        {"self": SPACE},
        WINDOWS,
        lambda x, _, g: {**x, "grad_output": g, **WINDOWS},
    ),
    Used(
        "MaxPool3dWithArgmax",
        lambda f, x: f.max_pool3d(x, 3, 2, 1),
        {"self": SPACE},
        {**WINDOWS, "dilation": [1]},
        _indexed({**WINDOWS, "dilation": [1]}),
    ),
    Used(
        "AdaptiveMaxPool2d",
        lambda f, x: f.adaptive_max_pool2d(x, (7, 7)),
        {"self": PLANES},
        {"output_size": [7, 7]},
        _indexed({}),
    ),
    Used(
        "AdaptiveAvgPool2d",
        lambda f, x: f.adaptive_avg_pool2d(x, (7, 7)),
        {"self": PLANES},
        {"output_size": [7, 7]},
        lambda x, _, g: {**x, "grad_output": g},
    ),
)


def used_cases(rounds: int) -> list[LayerCase]:
    """All of them."""
    return [LayerCase(each.name, rounds, each.layer) for each in USED]
