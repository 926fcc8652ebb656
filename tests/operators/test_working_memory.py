"""What evaluating a call takes of memory, measured, beside what its operator declares."""

import math
import re
import tracemalloc
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from npucall.compute import evaluate
from npucall.compute.work import Work
from npucall.declare.call import Call
from npucall.declare.declaration import Operator
from npucall.declare.domain import LANE_BYTES, Elementwise
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BOOL, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8
from npucall.operators import CATALOGUE
from npucall.products import A2, ASCEND_950
from npucall.tensors import TensorSpec

from .defects import table_of

MANY = 1 << 22
"""Elements of a large tensor: one of FLOAT beside it exceeds what a lane may take."""
ABSURD = 3
"""So many times what is taken is too much to declare."""


NOTHING: Mapping[str, Any] = MappingProxyType({})


class Large(NamedTuple):
    """A large call: shapes of the tensors by name, attributes, dtypes other than FLOAT16."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    attributes: Mapping[str, Any] = NOTHING
    dtypes: Mapping[str, Any] = NOTHING
    variant: str = ""
    product: Any = A2
    dense: str = ""
    """An input that must have no gaps; it is zeros."""

    def __str__(self) -> str:
        sizes = "/".join("x".join(map(str, shape)) for shape in self.shapes.values())
        return f"{self.name} {self.variant} {sizes}"


def softmax(name: str, *shape: int) -> Large:
    return Large(name, {"grad_output": shape, "output": shape}, {"dim": -1})


def forward(name: str, *shape: int) -> Large:
    return Large(name, {"self": shape}, {"dim": -1})


def glu(*shape: int) -> Large:
    return Large(
        "aclnnGluBackward", {"grad_out": (*shape[:-1], shape[-1] // 2), "self": shape}, {"dim": -1}
    )


def swi_glu(*shape: int) -> list[Large]:
    half = (*shape[:-1], shape[-1] // 2)
    return [
        Large("aclnnSwiGlu", {"x": shape}, {"dim": -1}),
        Large("aclnnSwiGluGrad", {"y_grad": half, "x": shape}, {"dim": -1}),
    ]


def dropout(*shape: int) -> tuple[Large, Large]:
    mask, bits = {"mask": (math.prod(shape) // 8,)}, {"mask": UINT8}
    return (
        Large("aclnnDropoutDoMask", {"self": shape, **mask}, {"prob": 0.5}, bits),
        Large("aclnnDropoutBackward", {"grad_output": shape, **mask}, {"scale": 2.0}, bits),
    )


def embedding(count: int, width: int) -> list[Large]:
    of_indices = {"indices": INT64}
    return [
        Large("aclnnEmbedding", {"weight": (9, width), "indices": (count,)}, {}, of_indices),
        Large(
            "aclnnEmbeddingDenseBackward",
            {"grad": (count, width), "indices": (count,)},
            {"num_weights": 9},
            of_indices,
        ),
    ]


def indexed(*shape: int) -> list[Large]:
    """Each place along the first dimension, or each element, is named twice."""
    twice, of_index = (2 * shape[0], *shape[1:]), {"index": INT64}
    along: dict[str, Any] = {"self": shape, "index": twice[:1]}
    return [
        Large("aclnnIndexSelect", along, {"dim": 0}, of_index),
        Large("aclnnIndexAdd", {**along, "source": twice}, {"dim": 0, "alpha": 1}, of_index),
        Large("aclnnIndexFill", along, {"dim": 0, "value": 1}, of_index),
        Large("aclnnIndexFillTensor", {"self": shape}, {"dim": 0, "index": (0,), "value": 1}),
        Large("aclnnGather", {"self": shape, "index": twice}, {"dim": 0}, of_index),
        Large(
            "aclnnScatterAdd", {**dict.fromkeys(("index", "src"), twice), "self": shape},
            {"dim": 0}, of_index,
        ),
        Large("aclnnPermute", {"self": (*shape, 1)}, {"dims": (2, 1, 0)}),
    ]  # fmt: skip


def routed(tokens: int, width: int) -> list[Large]:
    """Two experts of each token."""
    rows, of_index = {"sorted_indices": (2 * tokens,)}, {"sorted_indices": INT32}
    both = {"permuted_tokens": (2 * tokens, width), **rows, "probs": (tokens, 2)}
    grads: dict[str, Any] = {"permuted_output_grad": (2 * tokens, width), **rows}
    experts = {"tokens": (tokens, width), "indices": (tokens, 2)}
    return [
        Large("aclnnMoeTokenPermute", experts, {}, {"indices": INT32}),
        Large("aclnnMoeTokenPermuteGrad", grads, {"num_topk": 2}, of_index),
        Large("aclnnMoeTokenUnpermute", both, {}, of_index),
        Large(
            "aclnnMoeTokenUnpermuteGrad", {**both, "unpermuted_tokens_grad": (tokens, width)},
            {}, of_index,
        ),
    ]  # fmt: skip


def batch_norm(*shape: int) -> list[Large]:
    names = ("weight", "running_mean", "running_var")
    forward: dict[str, Any] = {"input": shape, "weight": shape[1:2], "bias": shape[1:2]}
    shapes = {"grad_out": shape, "input": shape}
    shapes |= dict.fromkeys((*names, "save_mean", "save_invstd"), shape[1:2])
    return [
        Large("aclnnBatchNorm", forward, {"training": True}),
        Large("aclnnBatchNormBackward", shapes, {"training": True}),
        *sync_batch_norm(*shape),
    ]


def sync_batch_norm(*shape: int) -> list[Large]:
    of = dict.fromkeys(("mean", "invstd", "weight", "bias"), shape[1:2])
    sums = dict.fromkeys(("sum_dy", "sum_dy_xmu"), shape[1:2])
    back = {"grad_out": shape, "input": shape, **of}
    gathered = {"input": shape, "mean": shape[:2], "invstd": shape[:2], "counts": shape[:1]}
    planes = (*shape[:2], *(math.prod(shape[2:]), 1))
    return [
        Large("aclnnBatchNormReduce", {"x": planes}, {}),
        Large("aclnnBatchNormGatherStatsWithCounts", gathered, {}),
        Large("aclnnBatchNormElemt", {"input": shape, **of}, {}),
        Large(
            "aclnnBatchNormReduceBackward",
            {name: extents for name, extents in back.items() if name != "bias"},
            dict.fromkeys(("input_g", "weight_g", "bias_g"), True),
        ),
        Large(
            "aclnnBatchNormElemtBackward",
            {name: e for name, e in {**back, **sums, "counter": (2,)}.items() if name != "bias"},
            {},
            {**dict.fromkeys((*back, *sums), FLOAT), "counter": INT32},
        ),
    ]


def pool3d(*shape: int) -> list[Large]:
    """In windows of two cells along each of three axes, and in one window."""
    windows = {"kernel_size": (2,), "stride": (2,), "padding": (0,)}
    apart = {**windows, "dilation": (1,)}
    pooled = (*shape[:-3], *(extent // 2 for extent in shape[-3:]))
    one, shapes = (*shape[:-3], 1, 1, 1), {"grad_output": pooled, "self": shape}
    dtypes = {"grad_output": FLOAT, "self": FLOAT, "indices": INT32}
    return [
        Large("aclnnAvgPool3d", {"self": shape}, windows),
        Large("aclnnAvgPool3dBackward", shapes, windows),
        Large("aclnnAdaptiveAvgPool3d", {"self": shape}, {"output_size": (1, 1, 1)}),
        Large("aclnnAdaptiveAvgPool3dBackward", {"grad_output": one, "self": shape}, {}),
        Large("aclnnMaxPool3dWithArgmax", {"self": shape}, apart),
        Large("aclnnMaxPool3dWithArgmaxBackward", {**shapes, "indices": pooled}, apart, dtypes),
        *scattered(3, shape, pooled),
    ]


def scattered(axes: int, planes: Any, pooled: Any) -> list[Large]:
    """Largest numbers of adaptive windows, put back where they stood."""
    shapes = {"grad_output": pooled, "self": planes, "indices": pooled}
    back = {"grad_output": planes, "self": pooled, "indices": pooled}
    dtypes = {"grad_output": FLOAT, "self": FLOAT, "indices": INT64}
    size = {"output_size": planes[-axes:]}
    old = {**dtypes, "indices": INT32}
    less = {name: value for name, value in back.items() if name != "grad_output"}
    return [
        Large(f"aclnnAdaptiveMaxPool{axes}d", {"self": planes}, {"output_size": pooled[-axes:]}),
        Large(f"aclnnAdaptiveMaxPool{axes}dBackward", shapes, {}, old),
        Large(f"aclnnMaxUnpool{axes}d", less, size, dtypes),
        Large(f"aclnnMaxUnpool{axes}dBackward", back, size, dtypes),
    ]


def max_pool(*shape: int) -> list[Large]:
    windows = {"kernel_size": (2,), "stride": (2,), "padding": (0,), "dilation": (1,)}
    pooled = (*shape[:-2], shape[-2] // 2, shape[-1] // 2)
    shapes = {"grad_output": pooled, "self": shape, "indices": pooled}
    dtypes = {"grad_output": FLOAT, "self": FLOAT, "indices": INT32}
    length = 32 * (-(-math.prod(pooled[-2:]) // 16) + 1)
    in_bytes = {**shapes, "indices": (*shape[:-2], 4, length)}
    return [
        Large("aclnnMaxPool2dWithMask", {"self": shape}, windows),
        Large(
            "aclnnMaxPool2dWithMaskBackward", in_bytes, windows, {"indices": INT8}, dense="indices"
        ),
        Large("aclnnMaxPool2dWithIndices", {"self": shape}, windows),
        Large("aclnnMaxPool2dWithIndicesBackward", shapes, windows, dtypes),
        *scattered(2, shape, pooled),
    ]


def upsample(name: str, *planes: int) -> list[Large]:
    """Planes that become twice as long along each axis, or the gradient of that."""
    operator = CATALOGUE[f"aclnnUpsample{name}"]
    after = tuple(2 * extent for extent in planes[2:])
    told: dict[str, Any] = {"output_size": after, "align_corners": True, "input_size": planes}
    given = {each.name: told[each.name] for each in operator.attributes if each.name in told}
    shape = (*planes[:2], *after) if "input_size" in given else planes
    return [Large(operator.name, {operator.inputs[0].name: shape}, given)]


def sampled(channels: int, *sides: int, cells: int) -> list[Large]:
    """Planes that are sampled at so many places along each axis."""
    axes, places = len(sides), (cells,) * len(sides)
    shapes = {"input": (1, channels, *sides), "grid": (1, *places, axes)}
    name = f"aclnnGridSampler{axes}D"
    grads = {"grad_output": (1, channels, *places), **shapes}
    return [Large(name, shapes), Large(f"{name}Backward", grads)]


def im2col(*planes: int) -> list[Large]:
    """Windows of four cells that meet but do not overlap."""
    windows = {"kernel_size": (2, 2), "dilation": (1, 1), "padding": (0, 0), "stride": (2, 2)}
    lead, sides = planes[:-3], planes[-2:]
    columns = (*lead, 4 * planes[-3], sides[0] * sides[1] // 4)
    told = {**windows, "input_size": sides}
    return [
        Large("aclnnIm2col", {"self": planes}, windows),
        Large("aclnnIm2colBackward", {"grad_output": columns}, told),
    ]


def unfold(*sizes: int) -> Large:
    """Slices of two cells that meet."""
    told = {"input_sizes": sizes, "dim": len(sizes) - 1, "size": 2, "step": 2}
    return Large("aclnnUnfoldGrad", {"grad_out": (*sizes[:-1], sizes[-1] // 2, 2)}, told)


def roi_align(*planes: int, cells: int) -> list[Large]:
    """Boxes of one cell, pooled to so many along each axis."""
    boxes, pooled = (4, 5), (4, planes[1], cells, cells)
    told = {"pooled_height": cells, "pooled_width": cells, "spatial_scale": 1.0}
    grad = {**told, "input_shape": planes}
    dtypes = dict.fromkeys(("grad_output", "boxes"), FLOAT)
    return [
        Large("aclnnRoiAlignV2", {"self": planes, "boxes": boxes}, told),
        Large("aclnnRoiAlignV2Backward", {"grad_output": pooled, "boxes": boxes}, grad, dtypes),
    ]


def pad(operator: Operator[Any, Any]) -> Large:
    """Planes with edges of a cell, or the gradient of that."""
    name = operator.name.removeprefix("aclnn")
    axes = next(int(each) for each in name if each.isdigit())
    planes = PLANES[str(axes)][1:]
    edges = {"self": planes, "grad_output": (*planes[:1], *(n + 2 for n in planes[1:]))}
    shapes = {each.name: edges[each.name] for each in operator.inputs}
    return Large(operator.name, shapes, {"padding": (1, 1) * axes})


UPSAMPLED = [each.name.removeprefix("aclnnUpsample") for each in CATALOGUE if "Upsa" in each.name]
PLANES = {"1": (1, 1, MANY // 8), "2": (1, 2, 512, 512), "3": (MANY // 4096, 1, 8, 8, 8)}
"""Planes by their axes."""


def avg_pool(*shape: int) -> list[Large]:
    """In windows of two cells, and in one window."""
    windows = {"kernel_size": (2,), "stride": (2,), "padding": (0,)}
    pooled = (*shape[:-2], shape[-2] // 2, shape[-1] // 2)
    one = (*shape[:-2], 1, 1)
    return [
        Large("aclnnAvgPool2d", {"self": shape}, windows),
        Large("aclnnAvgPool2dBackward", {"grad_output": pooled, "self": shape}, windows),
        Large("aclnnAdaptiveAvgPool2d", {"self": shape}, {"output_size": (1, 1)}),
        Large("aclnnAdaptiveAvgPool2dBackward", {"grad_output": one, "self": shape}, {}),
    ]


def cross_entropy(rows: int, classes: int, *, forward: bool = False, **more: Any) -> Large:
    shapes: dict[str, Any] = {"target": (rows,), "weight": (classes,)}
    dtypes = {"target": INT64, "weight": FLOAT}
    if forward:
        shapes = {"input": (rows, classes)} | shapes
        return Large("aclnnCrossEntropyLoss", shapes, more, dtypes)
    shapes = {"grad_loss": (), "log_prob": (rows, classes)} | shapes
    return Large("aclnnCrossEntropyLossGrad", shapes, more, dtypes, "", ASCEND_950)


def nll(*shape: int, forward: bool = False, reduction: int = 1) -> Large:
    image = len(shape) > 2
    shapes: dict[str, Any] = {
        "self": shape,
        "target": (shape[0], *shape[2:]) if image else shape[:-1],
        "weight": (shape[1] if image else shape[-1],),
    }
    if not forward:
        shapes = {"grad_output": (), **shapes, "total_weight": (1,)}
    attributes = {"reduction": reduction, "ignore_index": -100}
    name = f"aclnnNLLLoss{'2d' * image}{'' if forward else 'Backward'}"
    return Large(name, shapes, attributes, {"target": INT64})


def prelu(*shape: int) -> list[Large]:
    shapes = {"self": shape, "weight": shape[1:2]}
    return [
        Large("aclnnPrelu", shapes),
        Large("aclnnPreluBackward", {"grad_output": shape, **shapes}),
    ]


def ctc(steps: int, items: int, classes: int, labels: int, *, forward: bool = False) -> Large:
    shapes: dict[str, Any] = {
        "grad_out": (items,),
        "log_probs": (steps, items, classes),
        "targets": (items, labels),
        "neg_log_likelihood": (items,),
        "log_alpha": (items, steps, 2 * labels + 1),
    }
    if forward:
        shapes = {name: shapes[name] for name in ("log_probs", "targets")}
    attributes = {
        "input_lengths": (steps,) * items,
        "target_lengths": (labels,) * items,
        "blank": 0,
        "zero_infinity": False,
    }
    dtypes = dict.fromkeys(shapes, FLOAT) | {"targets": INT64}
    return Large(f"aclnnCtcLoss{'' if forward else 'Backward'}", shapes, attributes, dtypes)


def kl(name: str, variant: str, small: str, large: str) -> Large:
    half = MANY // 2
    shapes: dict[str, Any] = {"grad_output": (), large: (2, half), small: (1, half)}
    ordered = {n: shapes[n] for n in ("grad_output", "self", "target")}
    return Large(name, ordered, {"reduction": 1, "log_target": False}, {}, variant)


def layer_norm(rows: int, length: int) -> list[Large]:
    of_row = {"weight": (length,), "bias": (length,)}
    forward: dict[str, Any] = {"input": (rows, length), **of_row}
    shapes = {"grad_out": (rows, length), **forward, "mean": (rows, 1), "rstd": (rows, 1)}
    return [
        Large("aclnnLayerNorm", forward, {"normalized_shape": (length,)}),
        Large("aclnnLayerNormBackward", shapes, {"normalized_shape": (length,)}),
    ]


def rms_norm(rows: int, length: int) -> list[Large]:
    forward: dict[str, Any] = {"x": (rows, length), "gamma": (length,)}
    shapes = {"dy": (rows, length), "x": (rows, length), "rstd": (rows, 1), "gamma": (length,)}
    return [
        Large("aclnnRmsNorm", forward),
        Large("aclnnRmsNormGrad", shapes, {}, {"rstd": FLOAT}),
    ]


def add_layer_norm(rows: int, length: int) -> list[Large]:
    sums, of_row = dict.fromkeys(("x1", "x2"), (rows, length)), {"gamma": (length,)}
    statistics = dict.fromkeys(("rstd", "mean"), (rows, 1))
    gradient: dict[str, Any] = {"dy": (rows, length), **sums, **statistics, **of_row}
    dtypes = dict.fromkeys(statistics, FLOAT)
    return [
        Large("aclnnAddLayerNorm", {**sums, **of_row, "beta": (length,), "bias": (length,)}),
        Large("aclnnAddLayerNormGrad", {**gradient, "dsum": (rows, length)}, {}, dtypes),
    ]


def deep_norm(rows: int, length: int) -> list[Large]:
    sums: dict[str, Any] = {**dict.fromkeys(("x", "gx"), (rows, length)), "gamma": (length,)}
    statistics = dict.fromkeys(("mean", "rstd"), (rows, 1))
    dtypes = dict.fromkeys(statistics, FLOAT)
    return [
        Large("aclnnDeepNorm", {**sums, "beta": (length,)}),
        Large("aclnnDeepNormGrad", {"dy": (rows, length), **sums, **statistics}, {}, dtypes),
    ]


def clipped_swiglu(*shape: int) -> list[Large]:
    given: dict[str, Any] = {"x": shape, "group_index": (9,)}
    half, dtypes = (*shape[:-1], shape[-1] // 2), {"group_index": INT64}
    return [
        Large("aclnnClippedSwiglu", given, {}, dtypes),
        Large("aclnnClippedSwigluGrad", {"grad_y": half, **given}, {}, dtypes),
    ]


def ge_glu(*shape: int) -> list[Large]:
    half = (*shape[:-1], shape[-1] // 2)
    given: dict[str, Any] = {"grad_output": half, "self": shape, "gelu": half}
    return [
        case
        for version in ("", "V3")
        for case in (
            Large(f"aclnnGeGlu{version}", {"self": shape}, {"approximate": 0}),
            Large(f"aclnnGeGlu{version}Backward", given, {"approximate": 1}),
        )
    ]


def lstm_cell(items: int, hidden: int) -> list[Large]:
    gates, of_gates = (items, 4 * hidden), (4 * hidden,)
    given = ("grad_hy", "grad_c", "cx", "cy")
    forward: dict[str, Any] = {"input_gates": gates, "hidden_gates": gates, "cx": (items, hidden)}
    backward: dict[str, Any] = {**dict.fromkeys(given, (items, hidden)), "storage": gates}
    return [
        Large(
            "aclnnThnnFusedLstmCell", {**forward, "input_bias": of_gates, "hidden_bias": of_gates}
        ),
        Large("aclnnThnnFusedLstmCellBackward", backward, {"has_bias": True}),
    ]


def masked_softmax(*shape: int) -> list[Large]:
    mask: dict[str, tuple[int, ...]] = {"mask": (1, 1, *shape[2:])}
    dtypes = {"mask": BOOL}
    given: dict[str, Any] = {"grad_output": shape, "y": shape, **mask}
    return [
        Large("aclnnScaledMaskedSoftmax", {"x": shape, **mask}, {}, dtypes),
        Large("aclnnScaledMaskedSoftmaxBackward", given, {}, dtypes),
    ]


def attention(items: int, heads: int, rows: int, width: int) -> list[Large]:
    shape = (items, heads, rows, width)
    forward: dict[str, Any] = dict.fromkeys(("query", "key", "value"), shape)
    given = ("query", "key_in", "value", "dy", "softmax_max", "softmax_sum", "attention_in")
    statistics = dict.fromkeys(("softmax_max", "softmax_sum"), (*shape[:3], 8))
    attributes = {"head_num": heads, "input_layout": "BNSD"}
    return [
        Large("aclnnFlashAttentionScore", forward, attributes),
        Large(
            "aclnnFlashAttentionScoreGrad", dict.fromkeys(given, shape) | statistics, attributes,
            dict.fromkeys(statistics, FLOAT),
        ),
    ]  # fmt: skip


def convolution(images: tuple[int, ...], weight: tuple[int, ...], *extents: int) -> list[Large]:
    """A convolution along two axes that leaves the extents as they are, in groups."""
    groups = images[1] // weight[1]
    shapes = {"input": images, "weight": weight}
    gradient = {"grad_output": (images[0], weight[0], *images[2:]), **shapes}
    attributes = {"groups": groups, "padding": extents, "cube_math_type": 0}
    return [
        Large("aclnnConvolution", shapes, attributes),
        Large("aclnnConvolutionBackward", gradient, attributes),
    ]


def group_norm(*shape: int) -> list[Large]:
    """With two groups."""
    of_groups = dict.fromkeys(("mean", "rstd"), (shape[0], 2))
    told = {"n": shape[0], "c": shape[1], "hxw": math.prod(shape[2:]), "group": 2}
    both = {"grad_out": shape, "input": shape, **of_groups, "gamma": shape[1:2]}
    weights = dict.fromkeys(("gamma", "beta"), shape[1:2])
    return [
        Large("aclnnGroupNorm", {"self": shape, **weights}, told),
        Large("aclnnGroupNormBackward", both, told),
        Large("aclnnGroupNormSwish", {"x": shape, **weights}, {"num_groups": 2}),
        Large(
            "aclnnGroupNormSwishGrad",
            {"dy": shape, "x": shape, **of_groups, **weights},
            {"num_groups": 2},
        ),
    ]


def rotary(*shape: int) -> list[Large]:
    angles = dict.fromkeys(("cos", "sin"), (1, 1, *shape[2:]))
    return [
        Large("aclnnRotaryPositionEmbedding", {"x": shape, **angles}, {"mode": 1}),
        Large("aclnnRotaryPositionEmbeddingGrad", {"dy": shape, **angles, "x": shape}, {"mode": 1}),
    ]


def of_one_shape(operator: Operator[Any, Any]) -> Large:
    names = [p.name for p in operator.given]
    given = table_of(operator).call().arguments
    attributes = {a.name: given[a.name] for a in operator.attributes if a.name in given}
    updated = "".join(output.name for output in operator.outputs if output.in_place)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(names, (MANY,))
    return Large(operator.name, shapes, attributes, {}, operator.variant, dense=updated)


CASES = [
    *(of_one_shape(operator) for operator in CATALOGUE if isinstance(operator.over, Elementwise)),
    kl("aclnnKlDivBackward", "", "self", "target"),
    kl("aclnnKlDivTargetBackward", "builtin", "target", "self"),
    Large("aclnnMseLoss", {"self": (MANY,), "target": (MANY,)}, {"reduction": 1}),
    Large("aclnnL1Loss", {"self": (2048, 1), "target": (1, MANY // 2048)}, {"reduction": 2}),
    *(
        softmax(name, *shape)
        for name in ("aclnnSoftmaxBackward", "aclnnLogSoftmaxBackward")
        for shape in ((1, MANY), (MANY // 100_000, 100_000), (MANY // 10, 10))
    ),
    *(
        forward(name, *shape)
        for name in ("aclnnSoftmax", "aclnnLogSoftmax", "aclnnGlu")
        for shape in ((1, MANY), (MANY // 100_000, 100_000), (MANY // 10, 10))
    ),
    *(glu(*shape) for shape in ((1, MANY), (MANY // 200_000, 200_000), (MANY // 10, 10))),
    *(case for shape in ((1, MANY), (MANY // 10, 10)) for case in swi_glu(*shape)),
    *(case for shape in ((4, MANY), (MANY, 4), (MANY // 8, 8)) for case in embedding(*shape)),
    *(case for shape in ((MANY,), (MANY // 8, 8)) for case in dropout(*shape)),
    *(
        case
        for shape in ((1, 1, MANY), (4, MANY // 4), (64, 4, MANY // 256))
        for case in batch_norm(*shape)
    ),
    *(
        case
        for shape in ((1, 2, MANY // 2), (1, 2048, 2048), (MANY // 64, 8, 8))
        for case in (*max_pool(*shape), *avg_pool(*shape))
    ),
    *(
        case
        for shape in ((1, 2, MANY // 4, 2), (1, 128, 128, 256), (MANY // 512, 8, 8, 8))
        for case in pool3d(*shape)
    ),
    *sampled(1, 2, 2, cells=2048),
    *sampled(1, 2048, 2048, cells=2),
    *sampled(MANY // 8, 1, 2, 2, cells=2),
    *(unfold(*sizes) for sizes in ((1, MANY), (MANY // 8, 8))),
    *roi_align(1, 1, 2048, 2048, cells=2),
    *roi_align(1, 1, 4, 4, cells=1024),
    *roi_align(1, MANY // 16, 4, 4, cells=2),
    *(case for planes in ((1, 2048, 2048), (MANY // 64, 4, 4, 4)) for case in im2col(*planes)),
    *(pad(operator) for operator in CATALOGUE if re.search(r"Pad\dd", operator.name)),
    *(
        case
        for name in UPSAMPLED
        for axes, planes in PLANES.items()
        if f"{axes}d" in name
        for case in upsample(name, *planes)
    ),
    cross_entropy(1, MANY, reduction="sum"),
    cross_entropy(MANY // 8, 8),
    cross_entropy(64, MANY // 64, label_smoothing=0.25),
    *(nll(*shape) for shape in ((MANY,), (1, MANY), (MANY // 8, 8))),
    *(nll(*shape) for shape in ((2, 4, 1024, 1024), (1, MANY, 1, 1), (MANY, 1, 1, 1))),
    *(case for shape in ((2, MANY // 2), (64, 64, 2048), (MANY, 1)) for case in prelu(*shape)),
    *(case for shape in ((MANY, 1), (4, MANY // 4)) for case in indexed(*shape)),
    *(case for shape in ((MANY // 2, 1), (4, MANY // 8)) for case in routed(*shape)),
    Large(
        "aclnnBatchMatMul", {"self": (MANY // 64, 2, 3), "mat2": (1, 3, 4)}, {"cube_math_type": 0}
    ),
    Large("aclnnMm", {"self": (MANY // 2, 2), "mat2": (2, 3)}, {"cube_math_type": 0}),
    *(
        Large("aclnnMatmul", {"self": (*lead, n, k), "mat2": (k, m)}, {"cube_math_type": 0})
        for lead, n, k, m in (
            ((), 1024, 2048, 1025),
            ((), 4, MANY // 4, 4),
            ((), 2, 1, MANY // 2),
            ((MANY // 64,), 2, 3, 4),
        )
    ),
    *(
        case
        for shape in ((1, MANY), (MANY // 60_000, 60_000), (MANY // 8, 8))
        for case in (
            *layer_norm(*shape),
            *rms_norm(*shape),
            *add_layer_norm(*shape),
            *deep_norm(*shape),
        )
    ),
    *(case for shape in ((1, MANY), (MANY // 10, 10)) for case in ge_glu(*shape)),
    *(case for shape in ((1, MANY), (MANY // 10, 10)) for case in clipped_swiglu(*shape)),
    *(case for shape in ((1, MANY // 4), (MANY // 16, 4)) for case in lstm_cell(*shape)),
    *(case for shape in ((1, 8, 128, 4096), (8, 64, 1024, 8)) for case in masked_softmax(*shape)),
    *(case for shape in ((1, 1, MANY // 4, 4), (32, 32, 64, 64)) for case in rotary(*shape)),
    *(case for shape in ((MANY // 8, 8), (1, 4, MANY // 4)) for case in group_norm(*shape)),
    *convolution((1, 4, 1024, 1024), (4, 4, 3, 3), 1),
    *convolution((2, 2048, 4, 4), (2048, 2048, 1, 1), 0),
    *convolution((1, 1024, 64, 64), (1024, 1, 5, 5), 2),
    *convolution((1, 1, 128, 256), (256, 1, 1, 1), 0),
    *(case for shape in ((1, 1, 4096, 768), (256, 8, 8, 256)) for case in attention(*shape)),
    ctc(1, 1, 4, MANY // 2),
    ctc(1, 1, MANY, 4),
    ctc(2, MANY // 512, 4, 3),
    *(nll(*shape, forward=True) for shape in ((MANY,), (MANY // 8, 8), (2, 4, 1024, 1024))),
    nll(MANY // 8, 8, forward=True, reduction=0),
    nll(MANY, 1, 1, 1, forward=True, reduction=0),
    *(
        cross_entropy(*shape, forward=True, reduction=reduction)
        for shape, reduction in (((1, MANY), "sum"), ((MANY // 8, 8), "none"))
    ),
    cross_entropy(64, MANY // 64, forward=True, label_smoothing=0.25),
    ctc(1, 1, 4, MANY // 2, forward=True),
    ctc(1, 1, MANY, 4, forward=True),
    ctc(2, MANY // 512, 4, 3, forward=True),
]
"""Of every operator: long rows and many short ones, many sums and few, many classes and few."""


def prepared(case: Large) -> tuple[Prepared, dict[str, bytes]]:
    """The call and its storages: one element each, which all of the tensor is."""
    operator = CATALOGUE.find(case.name, case.variant)
    specs, storages = {}, {}
    for name, shape in case.shapes.items():
        dtype = case.dtypes.get(name, FLOAT16)
        specs[name] = TensorSpec(dtype, shape, (0,) * len(shape))
        storages[name] = np.full(1, 0.5).astype(dtype.numpy).tobytes()
        if name == case.dense:
            specs[name] = TensorSpec(dtype, shape)
            storages[name] = bytes(specs[name].storage_bytes)
    call = Call(operator, {**specs, **case.attributes}, tuple(specs))
    return prepare(call, case.product, CATALOGUE), storages


def taken(call: Prepared, storages: dict[str, bytes]) -> int:
    """The most bytes that evaluating a call holds at a time, without its answer."""
    evaluate._keep_memory_of_blocks()  # once a process, and given back at once
    tracemalloc.start()
    try:
        answers = evaluate.run(call, storages)
        return tracemalloc.get_traced_memory()[1] - sum(map(len, answers))
    finally:
        tracemalloc.stop()


def test_every_operator_is_measured() -> None:
    measured = {CATALOGUE.find(case.name, case.variant) for case in CASES}
    assert measured == set(CATALOGUE)


@pytest.mark.alone
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(CASES[::48], id="some"),
        pytest.param(CASES[::6], marks=pytest.mark.more, id="a sixth"),
        pytest.param(CASES, marks=pytest.mark.long, id="all"),
    ],
)
def test_a_call_takes_what_is_declared_and_no_more_than_a_lane_may(cases: list[Large]) -> None:
    wrong = []
    for case in cases:
        call, storages = prepared(case)
        held = taken(call, storages)
        absurd = call.working_bytes > max(LANE_BYTES, ABSURD * held)
        if held > call.working_bytes + LANE_BYTES or absurd:
            wrong.append((str(case), held, call.working_bytes))
    assert not wrong


@pytest.mark.alone
@pytest.mark.more
def test_the_measure_sees_a_copy_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Work, "block", MANY)
    case = next(case for case in CASES if case.name == "aclnnHardswishBackward")
    call, storages = prepared(case)
    assert taken(call, storages) > LANE_BYTES
