"""Layers in this process, forward and backward, beside the same in PyTorch on as many threads.

The evaluator computes from storages into outputs that are there already; PyTorch's gradients are
those of autograd.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from figures import Figure, Series, compared
from operators import OURS, TORCH, in_turn, on_threads

from npucall.compute import evaluate
from npucall.declare.attributes import attribute_value
from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.dtypes import BY_NUMPY
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.compute.helpers import Helpers
    from npucall.dtypes import AnyArray

THREADS = 2
FORWARD, BACKWARD = "forward", "backward"
_random = np.random.default_rng(1)


class Operator:
    """A call of arrays and attributes, with outputs that are there."""

    def __init__(self, name: str, /, **given: Any) -> None:
        attributes = {each.name: each for each in CATALOGUE.find(name).attributes}
        arrays = {n: a for n, a in given.items() if isinstance(a, np.ndarray)}
        specs = {n: TensorSpec(BY_NUMPY[a.dtype], a.shape) for n, a in arrays.items()}
        values = {
            n: attribute_value(n, attributes[n], value)
            for n, value in given.items()
            if n not in arrays
        }
        call = Call(CATALOGUE.find(name), {**specs, **values}, tuple(specs))
        self._prepared = prepare(call, A2, CATALOGUE)
        self._storages = {n: a.reshape(-1).view(np.uint8).data for n, a in arrays.items()}
        outputs = self._prepared.outputs
        self._targets = {name: bytearray(spec.storage_bytes) for name, spec in outputs.items()}

    def run(self, helpers: Helpers | None = None) -> Any:
        """Computes it; answers an array for each output."""
        evaluate.run(self._prepared, self._storages, targets=self._targets, helpers=helpers)
        return [
            np.frombuffer(self._targets[name], spec.dtype.numpy).reshape(spec.shape)
            for name, spec in self._prepared.outputs.items()
        ]


class Layer(NamedTuple):
    """A forward operator and its gradient, and what they are compared with."""

    forward: Operator
    backward: Operator
    torch: Callable[..., Any]
    """PyTorch's, of its functions and these arrays."""
    arrays: tuple[AnyArray, ...]
    upstream: AnyArray


def floats(*shape: int) -> AnyArray:
    """Drawn numbers."""
    return _random.standard_normal(shape, np.float32)


def _convolution() -> Layer:
    x, g, w, b = floats(8, 64, 56, 56), floats(8, 64, 56, 56), floats(64, 64, 3, 3), floats(64)
    given = {"stride": [1], "padding": [1], "dilation": [1], "transposed": False}
    given |= {"output_padding": [0], "groups": 1, "cube_math_type": 0, "input": x, "weight": w}
    more = {"grad_output": g, "bias_sizes": [64], "output_mask": [True] * 3}
    return Layer(
        Operator("aclnnConvolution", bias=b, **given),
        Operator("aclnnConvolutionBackward", **given, **more),
        lambda f, x, w, b: f.conv2d(x, w, b, padding=1),
        (x, w, b),
        g,
    )


def _attention() -> Layer:
    q, k, v, g = (floats(2, 8, 1024, 64) for _ in range(4))
    given = {"scale_value": 1 / 8, "head_num": 8, "input_layout": "BNSD", "query": q, "value": v}
    forward = Operator("aclnnFlashAttentionScore", key=k, **given)
    maxima, sums, *_, out = forward.run()
    more = {"softmax_max": maxima, "softmax_sum": sums, "attention_in": out}
    return Layer(
        forward,
        Operator("aclnnFlashAttentionScoreGrad", key_in=k, dy=g, **given, **more),
        lambda f, *tensors: f.scaled_dot_product_attention(*tensors),
        (q, k, v),
        g,
    )


def _layer_norm() -> Layer:
    x, g, w, b = floats(4096, 1024), floats(4096, 1024), floats(1024), floats(1024)
    given = {"input": x, "weight": w, "bias": b, "normalized_shape": [1024]}
    forward = Operator("aclnnLayerNorm", eps=1e-5, **given)
    _, mean, rstd = forward.run()
    more = {"mean": mean, "rstd": rstd, "output_mask": [True] * 3}
    return Layer(
        forward,
        Operator("aclnnLayerNormBackward", grad_out=g, **given, **more),
        lambda f, x, w, b: f.layer_norm(x, (1024,), w, b),
        (x, w, b),
        g,
    )


def _rms_norm() -> Layer:
    x, g, w = floats(4096, 1024), floats(4096, 1024), floats(1024)
    forward = Operator("aclnnRmsNorm", x=x, gamma=w, epsilon=1e-6)
    _, rstd = forward.run()
    return Layer(
        forward,
        Operator("aclnnRmsNormGrad", dy=g, x=x, rstd=rstd, gamma=w),
        lambda f, x, w: f.rms_norm(x, (1024,), w, 1e-6),
        (x, w),
        g,
    )


def _group_norm() -> Layer:
    x, g, w, b = floats(8, 256, 56, 56), floats(8, 256, 56, 56), floats(256), floats(256)
    given = {"n": 8, "c": 256, "hxw": 56 * 56, "group": 32, "gamma": w}
    forward = Operator("aclnnGroupNorm", self=x, beta=b, eps=1e-5, **given)
    _, mean, rstd = forward.run()
    more = {"input": x, "mean": mean, "rstd": rstd, "output_mask": [True] * 3}
    return Layer(
        forward,
        Operator("aclnnGroupNormBackward", grad_out=g, **given, **more),
        lambda f, x, w, b: f.group_norm(x, 32, w, b),
        (x, w, b),
        g,
    )


def _embedding() -> Layer:
    w, g, indices = floats(8192, 512), floats(1 << 15, 512), _random.integers(0, 8192, 1 << 15)
    given = {"num_weights": 8192, "padding_idx": 2**64 - 1, "scale_grad_by_freq": False}

    def by_torch(f: Any, w: Any) -> Any:
        import torch  # noqa: PLC0415  # need not be installed

        return f.embedding(torch.from_numpy(indices), w)

    return Layer(
        Operator("aclnnEmbedding", weight=w, indices=indices),
        Operator("aclnnEmbeddingDenseBackward", grad=g, indices=indices, **given),
        by_torch,
        (w,),
        g,
    )


def _max_pool2d() -> Layer:
    x, g = floats(8, 64, 112, 112), floats(8, 64, 56, 56)
    given = {"kernel_size": [3], "stride": [2], "padding": [1], "dilation": [1], "self": x}
    forward = Operator("aclnnMaxPool2dWithIndices", **given)
    _, indices = forward.run()
    return Layer(
        forward,
        Operator("aclnnMaxPool2dWithIndicesBackward", grad_output=g, indices=indices, **given),
        lambda f, x: f.max_pool2d(x, 3, 2, 1),
        (x,),
        g,
    )


def _avg_pool2d() -> Layer:
    x, g = floats(8, 64, 112, 112), floats(8, 64, 56, 56)
    given = {"kernel_size": [3], "stride": [2], "padding": [1], "self": x}
    return Layer(
        Operator("aclnnAvgPool2d", **given),
        Operator("aclnnAvgPool2dBackward", grad_output=g, **given),
        lambda f, x: f.avg_pool2d(x, 3, 2, 1),
        (x,),
        g,
    )


def _adaptive_avg_pool2d() -> Layer:
    x, g = floats(8, 512, 28, 28), floats(8, 512, 1, 1)
    return Layer(
        Operator("aclnnAdaptiveAvgPool2d", self=x, output_size=[1, 1]),
        Operator("aclnnAdaptiveAvgPool2dBackward", grad_output=g, self=x),
        lambda f, x: f.adaptive_avg_pool2d(x, (1, 1)),
        (x,),
        g,
    )


LAYERS = {
    "Convolution 3x3, 8x64x56x56": _convolution,
    "attention, 2x8x1024x64": _attention,
    "LayerNorm, 4096x1024": _layer_norm,
    "RmsNorm, 4096x1024": _rms_norm,
    "GroupNorm, 32 groups of 8x256x56x56": _group_norm,
    "Embedding, 32768x512": _embedding,
    "MaxPool2d 3x3, 8x64x112x112": _max_pool2d,
    "AvgPool2d 3x3, 8x64x112x112": _avg_pool2d,
    "AdaptiveAvgPool2d 1x1, 8x512x28x28": _adaptive_avg_pool2d,
}


@dataclass(frozen=True)
class LayerCase:
    """One of the layers."""

    name: str
    rounds: int
    make: Callable[[], Layer]

    def text(self) -> str:
        """How the names of its series begin."""
        return f"in process, {self.name}, {THREADS} threads"

    def series(self) -> list[Series]:
        """Times the time of PyTorch."""
        return [
            Series(f"{self.text()}, {way} / {TORCH}", "lower", "ms", "in process", way=way)
            for way in (FORWARD, BACKWARD)
        ]

    def figures(self) -> Iterator[Figure]:
        """Measures both in turn."""
        if not find_spec("torch"):
            yield from map(Figure, self.series())
            return
        with on_threads(THREADS) as helpers:
            pairs = _runs(self.make(), helpers)
            for series, (ours, theirs) in zip(self.series(), pairs, strict=True):
                seconds = in_turn({OURS: ours, TORCH: theirs}, self.rounds, 1)
                figure = compared(series, seconds[OURS], seconds[TORCH])
                yield replace(figure, absolute=median(seconds[OURS]) * 1e3)


def layer_cases(rounds: int) -> list[LayerCase]:
    """All of them."""
    return [LayerCase(name, rounds, make) for name, make in LAYERS.items()]


def _runs(
    layer: Layer, helpers: Helpers | None
) -> list[tuple[Callable[[], object], Callable[[], object]]]:
    """Forward and backward, of ours and of PyTorch."""
    import torch  # noqa: PLC0415  # need not be installed

    tensors = [torch.from_numpy(array).requires_grad_() for array in layer.arrays]
    upstream = torch.from_numpy(layer.upstream)
    compute = partial(layer.torch, torch.nn.functional, *tensors)
    result = compute()
    return [
        (partial(layer.forward.run, helpers), torch.no_grad()(compute)),
        (
            partial(layer.backward.run, helpers),
            partial(torch.autograd.grad, result, tensors, upstream, retain_graph=True),
        ),
    ]
