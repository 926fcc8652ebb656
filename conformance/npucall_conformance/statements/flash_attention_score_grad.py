"""aclnnFlashAttentionScoreGrad [src:flash-attention]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BOOL, FLOAT, FLOAT16, UINT8
from npucall.errors import AttributeValueError
from npucall.tensors import Shape
from npucall_conformance.statements import _attention as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import follows, normal
from npucall_conformance.stating.npu import TorchArguments
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

GIVEN = ("query", "key_in", "value", "dy", "attention_in")
STATISTICS = ("softmax_max", "softmax_sum")
OUTPUTS = ("dq", "dk", "dv")


class Back(shared.Scores):
    """A call of the gradients."""

    def __init__(self, k: Arguments) -> None:
        super().__init__(k.values, "key_in", "pse_shift")
        heads = k["head_num"]
        self.dy = shared.in_heads(k["dy"], self.layout, heads)
        self.result = shared.in_heads(k["attention_in"], self.layout, heads)
        self.maxima, self.sums = (k[name][..., :1] for name in STATISTICS)
        self.sums = np.where(self.sums == -shared.LOWEST, math.inf, self.sums)  # they saw nothing

    def named(self, dq: Any, dk: Any, dv: Any) -> dict[str, Any]:
        """The gradients in the call's layout; those of keys and values are summed here."""
        own = dq, self.summed(dk), self.summed(dv)
        found = (shared.in_layout(each, self.layout) for each in own)
        return dict(zip(OUTPUTS, found, strict=True))


def loops(k: Arguments) -> dict[str, Any]:
    call = Back(k)
    dq, dk, dv = (np.zeros(each.shape) for each in (call.query, call.key, call.value))
    for place in call.places():
        item, head, _ = place
        dy, query = call.dy[place].tolist(), call.query[place].tolist()
        shift = reals.total([a * b for a, b in zip(dy, call.result[place].tolist(), strict=True)])
        for column in range(call.columns):
            maximum, total = call.maxima[place].item(), call.sums[place].item()
            share = math.exp(call.score(place, column) - maximum) / total
            values = call.value[item, head, column].tolist()
            through = reals.total([a * b for a, b in zip(dy, values, strict=True)]) - shift
            factor = call.scale * share * through
            keys = call.key[item, head, column].tolist()
            for n, (x, y) in enumerate(zip(query, keys, strict=True)):
                dq[(*place, n)] += factor * y
                dk[item, head, column, n] += factor * x
            for n, x in enumerate(dy):
                dv[item, head, column, n] += share * x
    return call.named(dq, dk, dv)


def arrays(k: Arguments) -> dict[str, Terms]:
    call = Back(k)
    scores, sizes = call.scores
    power = np.exp(scores - call.maxima) / call.sums
    size = power * (1 + sizes) + shared.least(k)
    shift = (call.dy * call.result).sum(-1, keepdims=True)
    through = power * (call.dy @ call.value.swapaxes(2, 3) - shift)
    most = np.abs(call.dy * call.result).sum(-1, keepdims=True)
    large = size * (np.abs(call.dy) @ np.abs(call.value).swapaxes(2, 3) + most)

    def all_of(power: Any, through: Any, factor: Any) -> dict[str, Any]:
        key, query, dy, scale = map(factor, (call.key, call.query, call.dy, call.scale))
        dk, dv = through.swapaxes(2, 3) @ query, power.swapaxes(2, 3) @ dy
        return call.named(scale * (through @ key), scale * dk, dv)

    values, largest = all_of(power, through, np.array), all_of(size, large, np.abs)
    return {name: Terms(values[name], largest[name]) for name in OUTPUTS}


def faint(k: Arguments) -> tuple[str, ...]:
    """Shares add up to 1: with equal values scores have no gradient, with equal keys queries."""
    call = Back(k)
    keys, values = ((each == each[:, :, :1]).all() for each in (call.key, call.value))
    return OUTPUTS[: 2 if values else int(keys)]


def torch_says(k: Arguments, torch: Any) -> Any:
    """Its autograd; of rows without anything it says something else."""
    call = Back(Arguments(shared.of_numpy(k.values), k.dtypes))
    maxima, sums, result = call.forward()
    pairs = (maxima, call.maxima), (sums, call.sums), (result, call.result)
    if call.hidden.all(-1).any() or any(abs(a - b).max() > 2.0**-40 for a, b in pairs):
        return None
    own = [torch.from_numpy(e.copy()).requires_grad_() for e in (call.query, call.key, call.value)]
    found = call.by_torch(torch, *own)
    gradients = torch.autograd.grad(found, own, torch.from_numpy(call.dy.copy()))
    named = call.named(*(gradient.numpy() for gradient in gradients))
    return {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in named.items()}


def npu(given: TorchArguments) -> Any:
    found = given.npu.npu_fusion_attention_grad(
        given["query"], given["key_in"], given["value"], given["dy"], given["head_num"],
        given["input_layout"], pse=given["pse_shift"], atten_mask=given["atten_mask"],
        softmax_max=given["softmax_max"], softmax_sum=given["softmax_sum"],
        attention_in=given["attention_in"], scale_value=given["scale_value"],
        pre_tockens=given["pre_tokens"], next_tockens=given["next_tokens"],
        inner_precise=given["inner_precise"], sparse_mode=given["sparse_mode"],
    )  # fmt: skip
    return *found[:3], None


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    found = shared.shapes("key_in", base, attributes)
    found["pse_shift"] = found["bias"]
    found |= dict.fromkeys((*STATISTICS, "softmax_in"), found["statistics"])
    names = (*GIVEN, *STATISTICS, "softmax_in", "pse_shift", "atten_mask")
    return {**{name: found[name] for name in names}, "drop_mask": (32,), "padding_mask": (3,)}


FLASH_ATTENTION_SCORE_GRAD = Statement(
    "aclnnFlashAttentionScoreGrad",
    (
        In("query", normal()),
        In("key_in", normal()),
        In("value", normal(), tiny=False),
        In("dy", normal(), tiny=False),  # d is rounded to the dtype of the kernel
        In("pse_shift", normal(), optional=True),
        In("drop_mask", normal(), optional=True, refused=True),
        In("padding_mask", normal(), optional=True, refused=True),
        In("atten_mask", shared.hides, dtypes=(UINT8, BOOL), optional=True),
        In("softmax_max", follows(shared.maxima), dtypes=(FLOAT,), apart=True),
        In("softmax_sum", follows(shared.sums), dtypes=(FLOAT,), apart=True),
        In("softmax_in", normal(), optional=True, read=False),
        In("attention_in", follows(shared.result)),
    ),
    (
        *(Out(n, like, "query") for n, like in zip(OUTPUTS, GIVEN[:3], strict=True)),
        Out("dpse", "query", "query", asked=lambda _: False),
    ),
    loops,
    arrays,
    sprinkled=False,
    prototype=(
        "const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, "
        "const aclTensor* dy, const aclTensor* pseShiftOptional, "
        "const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, "
        "const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, "
        "const aclTensor* softmaxSumOptional, const aclTensor* softmaxInOptional, "
        "const aclTensor* attentionInOptional, const aclIntArray* prefixOptional, "
        "double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, "
        "int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, "
        "const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, "
        "const aclTensor* dpseOut"
    ),
    takes={soc: FLOATS_WITH_BFLOAT16[soc] for soc in ("Ascend910B", "Ascend910_93")},
    legacy=(),
    renamed={"dqOut": "dq", "dkOut": "dk", "dvOut": "dv", "dpseOut": "dpse"},
    defaults=shared.DEFAULTS,
    attributes=shared.ATTRIBUTES,
    kernel=dtype_of("query"),
    cost=shared.cost,
    faint=faint,
    shapes=shapes,
    torch=torch_says,
    npu=npu,
    **shared.SIZES,
    broadcast=shared.stretched("pse_shift"),
    edges=shared.EDGES,
    invalid=(
        *defects.nulls(*GIVEN, *OUTPUTS, *STATISTICS, "input_layout"),
        *defects.values("head_num", 0, -1),
        *defects.shapes("query", (2, 3, 8)),
        *defects.shapes("key_in", (2, 4, 4)),
        *defects.shapes("value", (2, 4, 1, 3, 1)),
        *defects.shapes("dy", (6,)),
        *defects.shapes("attention_in", (2, 3, 6)),
        *defects.shapes("dq", (2, 3, 8)),
        *defects.shapes("dk", (8, 4)),
        *defects.shapes("dv", (2, 4, 3)),
        *shared.wrong_widths("key_in"),
        *shared.wrong_sizes(
            "key_in", "pse_shift",
            (
                *(Invalid(f"layout-{x}", {"input_layout": x}, ("input_layout",),
                          AttributeValueError, **shared.TILING) for x in ("TND", "")),
                *defects.dtypes("key_in", "value", "dy", "attention_in", "pse_shift",
                                **shared.TILING),
                *defects.dtypes(*OUTPUTS, found=FLOAT16, **shared.TILING),
            ),
            others=("dy", "attention_in", *OUTPUTS),
        ),
        *(
            row
            for name in STATISTICS
            for row in (
                *defects.dtypes(name, found=FLOAT16, **shared.TILING),
                *defects.shapes(name, (2, 2, 3), (2, 2, 3, 1), **shared.TILING),
            )
        ),
        *defects.shapes("attention_in", (2, 2, 3, 4), **shared.TILING),
        *defects.shapes("dy", (2, 2, 3, 4), **shared.TILING),
        *defects.shapes("dq", (2, 2, 3, 3), **shared.TILING),
        *defects.shapes("dk", (2, 2, 4, 4), **shared.TILING),
        *defects.shapes("dv", (2, 2, 4, 3), **shared.TILING),
    ),
)  # fmt: skip
