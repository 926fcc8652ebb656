"""aclnnFlashAttentionScore [src:flash-attention]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BOOL, FLOAT, FLOAT16, UINT8, DType
from npucall.tensors import Shape
from npucall_conformance.statements import _attention as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import TorchArguments
from npucall_conformance.stating.parts import Attributes, DTypes, In, Out
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

OUTPUTS = ("softmax_max_out", "softmax_sum_out", "attention_out")


def loops(k: Arguments) -> dict[str, Any]:
    call = shared.Scores(k.values, "key", "real_shift")
    maxima, sums = np.empty(call.blind.shape), np.empty(call.blind.shape)
    result = np.zeros((*call.blind.shape, call.value.shape[3]))
    for place in call.places():
        scores = [call.score(place, column) for column in range(call.columns)]
        maxima[place], sums[place] = shared.LOWEST, -shared.LOWEST
        if call.blind[place]:
            continue
        maxima[place] = max(scores)
        power = [math.exp(score - max(scores)) for score in scores]
        sums[place] = reals.total(power)
        values = call.value[place[:2]].T.tolist()
        result[place] = [
            reals.total([p * v for p, v in zip(power, column, strict=True)]) / sums[place]
            for column in values
        ]
    return {
        "softmax_max_out": _copies(maxima),
        "softmax_sum_out": _copies(sums),
        "attention_out": shared.in_layout(result, call.layout),
    }


def arrays(k: Arguments) -> dict[str, Terms]:
    call = shared.Scores(k.values, "key", "real_shift")
    maxima, sums, result = call.forward()
    scores, sizes = call.scores
    power = np.exp(scores - maxima) * ~call.blind[..., np.newaxis] / sums
    most = sizes.max(-1, keepdims=True)
    size = (power * (1 + sizes)) @ np.abs(call.value)
    return {
        "softmax_max_out": Terms(_copies(maxima[..., 0]), _copies((np.abs(maxima) + most)[..., 0])),
        "softmax_sum_out": Terms(_copies(sums[..., 0]), _copies((sums * (1 + most))[..., 0])),
        "attention_out": Terms(
            shared.in_layout(result, call.layout), shared.in_layout(size, call.layout)
        ),
    }


def _copies(rows: Any) -> Any:
    return np.repeat(rows[..., np.newaxis], shared.LANES, -1)


def of_rows(k: Arguments) -> Shape:
    call = shared.Scores(k.values, "key", "real_shift")
    return (*call.blind.shape, shared.LANES)


def of_result(k: Arguments) -> Shape:
    call = shared.Scores(k.values, "key", "real_shift")
    return shared.arranged((*call.blind.shape, call.value.shape[3]), call.layout)


def torch_says(k: Arguments, torch: Any) -> Any:
    """Its own scaled_dot_product_attention; of rows without anything it says something else."""
    call = shared.Scores(shared.of_numpy(k.values), "key", "real_shift")
    if call.hidden.all(-1).any() or call.blind.any():
        return None
    given = (torch.from_numpy(each.copy()) for each in (call.query, call.key, call.value))
    found = call.by_torch(torch, *given)
    return {"attention_out": torch.from_numpy(shared.in_layout(found.numpy(), call.layout))}


def npu(given: TorchArguments) -> Any:
    result, maxima, sums, *_ = given.npu.npu_fusion_attention(
        given["query"], given["key"], given["value"], given["head_num"], given["input_layout"],
        pse=given["real_shift"], atten_mask=given["atten_mask"], scale=given["scale_value"],
        pre_tockens=given["pre_tokens"], next_tockens=given["next_tokens"],
        inner_precise=given["inner_precise"], sparse_mode=given["sparse_mode"],
    )  # fmt: skip
    return maxima, sums, None, result


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    found = shared.shapes("key", base, attributes)
    found["real_shift"] = found["bias"]
    names = ("query", "key", "value", "real_shift", "atten_mask")
    return {**{name: found[name] for name in names}, "drop_mask": (32,), "padding_mask": (3,)}


def single(_: DTypes) -> DType:
    return FLOAT


FLASH_ATTENTION_SCORE = Statement(
    "aclnnFlashAttentionScore",
    (
        In("query", normal()),
        In("key", normal()),
        In("value", normal()),
        In("real_shift", normal(), optional=True),
        In("drop_mask", normal(), optional=True, refused=True),
        In("padding_mask", normal(), optional=True, refused=True),
        In("atten_mask", shared.hides, dtypes=(UINT8, BOOL), optional=True),
    ),
    (
        Out("softmax_max_out", of_rows, single, own=True),
        Out("softmax_sum_out", of_rows, single, own=True),
        Out("softmax_out_out", of_rows, single, asked=lambda _: False),
        Out("attention_out", of_result, "query"),
    ),
    loops,
    arrays,
    sprinkled=False,
    prototype=(
        "const aclTensor* query, const aclTensor* key, const aclTensor* value, "
        "const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional, "
        "const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, "
        "const aclIntArray* prefixOptional, double scaleValue, double keepProb, "
        "int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, "
        "int64_t innerPrecise, int64_t sparseMode, const aclTensor* softmaxMaxOut, "
        "const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut, "
        "const aclTensor* attentionOutOut"
    ),
    takes={soc: FLOATS_WITH_BFLOAT16[soc] for soc in ("Ascend910B", "Ascend910_93")},
    legacy=(),
    renamed={"attentionOutOut": "attention_out"},
    defaults=shared.DEFAULTS,
    attributes=shared.ATTRIBUTES,
    kernel=dtype_of("query"),
    cost=shared.cost,
    shapes=shapes,
    torch=torch_says,
    npu=npu,
    **shared.SIZES,
    broadcast=shared.stretched("real_shift"),
    edges=shared.EDGES,
    invalid=(
        *defects.nulls("query", "key", "value", "input_layout", *OUTPUTS),
        *defects.dtypes("key", "value", "real_shift"),
        *defects.values("head_num", 0, -1),
        *defects.values("input_layout", "TND", "bsh"),
        *defects.shapes("query", (2, 3, 8)),
        *defects.shapes("key", (2, 4, 4)),
        *defects.shapes("value", (2, 4, 1, 3, 1)),
        *shared.wrong_widths("key"),
        *shared.wrong_sizes("key", "real_shift"),
        *defects.dtypes("softmax_max_out", found=FLOAT16, **shared.TILING),
        *defects.shapes("softmax_max_out", (2, 2, 3), (2, 3, 2, 8), **shared.TILING),
        *defects.dtypes("softmax_sum_out", found=FLOAT16, **shared.TILING),
        *defects.shapes("softmax_sum_out", (2, 2, 3, 1), **shared.TILING),
        *defects.dtypes("attention_out", found=FLOAT16, **shared.TILING),
        *defects.shapes("attention_out", (2, 2, 3, 4), (2, 3, 6), **shared.TILING),
    ),
)  # fmt: skip
