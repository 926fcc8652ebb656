"""aclnnFusedLinearCrossEntropyLossGrad [src:fused-linear-cross-entropy]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8
from npucall.errors import PARAM_NULLPTR, ArgumentError, ArgumentMissingError, FormatError
from npucall.tensors import Format, Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import FLOAT_INSIDE, Arguments, Terms
from npucall_conformance.stating.domains import Draw, follows, integers, normal
from npucall_conformance.stating.elementwise import capped
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rounding import nearest
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on

NAN, INF = reals.NAN, reals.INFINITY
WORDS, HALVES = 131, (FLOAT16, BF16)
STATISTICS, OUTPUTS = ("logits_max", "sum_exp_logits"), ("input_grad_out", "weight_grad_out")
OF_TOKENS = ("grad", "masked_target", *STATISTICS)
INPUTS = ("grad", "input", "weight", "target_mask", "masked_target")
ERROR_OF_HALF = {FLOAT16: 2.0**14, BF16: 2.0**17}
"""What it costs if a factor is rounded to the neighbour, in units of 2^-24."""


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    """(T, H) is the base shape."""
    tokens, width = base
    return {
        **dict.fromkeys(OF_TOKENS, (tokens,)),
        "input": base,
        "weight": (WORDS, width),
        "target_mask": ((tokens + 7) // 8,),
        "softmax": (tokens, WORDS),
    }


def of(tokens: int, words: int, width: int, note: str, **more: Any) -> Setup:
    """A call with another number of words."""
    own = {"weight": (words, width), **more.pop("shapes", {})}
    return Setup(note, (tokens, width), own, only=HALVES, **more)


def places(draw: Draw) -> Any:
    return draw.random.integers(0, max(draw.shapes["weight"][0], 1), draw.shape)


def logits(draw: Draw) -> Any:
    return draw["input"] @ draw["weight"].T


def probabilities(draw: Draw) -> Any:
    drawn = np.exp(draw.random.normal(0, 2, draw.shape))
    return drawn / drawn.sum(1, keepdims=True)


def hidden(k: Arguments) -> list[bool]:
    """Tokens whose target is of another part; a mask of as many elements has no bits."""
    tokens = k["grad"].shape[0]
    given = [int(each) for each in k["target_mask"]]
    if k.dtypes["target_mask"] is BOOL:
        return [bool(each) for each in given]
    return [bool(given[t // 8] >> t % 8 & 1) for t in range(tokens)]


def cost(k: Arguments) -> float:
    """Sums in FLOAT, and factors that are rounded."""
    return FLOAT_INSIDE + ERROR_OF_HALF.get(k.kernel, 0.0)


def rounded(k: Arguments, factors: Any) -> Any:
    return nearest(factors, FLOAT, k.kernel)


def loops(k: Arguments) -> dict[str, Any]:
    x, weight = k["input"].tolist(), k["weight"].tolist()
    out = np.zeros(k["input"].shape), np.zeros(k["weight"].shape)
    words: list[list[float]] = []
    for t, row in enumerate(x):
        if k["softmax"] is not None:
            p = k["softmax"][t].tolist()
        else:
            high, total = (k[name].tolist()[t] for name in STATISTICS)
            sums = (math.fsum(a * b for a, b in zip(row, word, strict=True)) for word in weight)
            p = [reals.divide(reals.exp(each - high, k.top), total) for each in sums]
        if not hidden(k)[t]:
            p[int(k["masked_target"][t])] -= 1
        words.append(rounded(k, np.array(p) * k["grad"][t]).tolist())
        for h in range(len(row)):
            terms = [g * word[h] for g, word in zip(words[-1], weight, strict=True)]
            out[0][t, h] = reals.total(terms)
    for v, h in np.ndindex(*k["weight"].shape) if x else ():
        out[1][v, h] = reals.total([g[v] * row[h] for g, row in zip(words, x, strict=True)])
    return dict(zip(OUTPUTS, out, strict=True))


def factors_of(k: Arguments) -> tuple[Any, Any]:
    """The gradients of the logits; and of how much the digits are that they lose in FLOAT."""
    tokens, steps = k["grad"].shape[0], 1.0
    if k["softmax"] is not None:
        p = k["softmax"].copy()
    else:
        high, total = (k[name][:, np.newaxis] for name in STATISTICS)
        p = capped(np.exp(k["input"] @ k["weight"].T - high), k.top) / total
        steps = 1 + np.abs(k["input"]) @ np.abs(k["weight"].T) + np.abs(high)
    size = np.abs(p) * steps
    shown = 1.0 - np.array(hidden(k), np.float64)
    for each, sign in ((p, -1), (size, 1)):
        np.add.at(each, (np.arange(tokens), k["masked_target"].astype(np.int64)), sign * shown)
    grad = k["grad"][:, np.newaxis]
    return rounded(k, p * grad), size * np.abs(grad)


def arrays(k: Arguments) -> dict[str, Terms]:
    if not k["input"].size or not k["weight"].size:
        return {name: Terms(np.zeros(k[of].shape)) for name, of in zip(
            OUTPUTS, ("input", "weight"), strict=True)}  # fmt: skip
    found, lost = factors_of(k)
    # Small ones lose digits when they are rounded.
    size = np.abs(found) + 2.0**k.kernel.least_exponent + lost * (FLOAT_INSIDE / cost(k))
    pairs = ((found, size, k["weight"]), (found.T, size.T, k["input"]))
    answers = [Terms(g @ x, s @ np.abs(x)) for g, s, x in pairs]  # whose cost is of sums, too
    return dict(zip(OUTPUTS, answers, strict=True))


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["input"].numel() or not k["weight"].numel():
        return None
    if k["softmax"] is not None:
        p = k["softmax"].clone()
    else:
        exponent = k["input"] @ k["weight"].T - k["logits_max"].unsqueeze(1)
        p = exponent.exp() / k["sum_exp_logits"].unsqueeze(1)
    shown = torch.as_tensor([0.0 if each else 1.0 for each in hidden(k)], dtype=p.dtype)
    p[torch.arange(len(p)), k["masked_target"].long()] -= shown
    found = torch.as_tensor(rounded(k, (p * k["grad"].unsqueeze(1)).numpy()))
    answers = (found @ k["weight"], found.T @ k["input"])
    return dict(zip(OUTPUTS, answers, strict=True))


WITHOUT = Setup(absent=("softmax",))
"""A call with the statistics alone; with softmax nothing looks at them."""


def stranger(value: int) -> Invalid:
    changes = {"masked_target": {"values": (0, value, 1)}}
    return Invalid(f"masked_target-{value}", changes, ("masked_target",), ArgumentError)


def of_format(name: str, **more: Any) -> Invalid:
    return Invalid(f"format-{name}", {name: {"format": Format.NCL}}, (name,), FormatError, **more)


FUSED_LINEAR_CROSS_ENTROPY_LOSS_GRAD = Statement(
    "aclnnFusedLinearCrossEntropyLossGrad",
    prototype=(
        "const aclTensor* grad, const aclTensor* input, const aclTensor* weight, "
        "const aclTensor* targetMask, const aclTensor* maskedTarget, float labelSmoothing, "
        "const aclTensor* logitsMaxOptional, const aclTensor* sumExpLogitsOptional, "
        "const aclTensor* softmaxOptional, aclTensor* inputGradOut, aclTensor* weightGradOut"
    ),
    takes=on(("Ascend910B", "Ascend910_93"), *HALVES),
    legacy=(),
    dtypes=HALVES,
    defaults={"label_smoothing": 0.0},
    inputs=(
        In("grad", normal(), dtypes=(FLOAT,)),
        In("input", normal()),
        In("weight", normal(0.5)),
        In("target_mask", integers(0, 255), dtypes=(UINT8,)),
        In("masked_target", places, dtypes=(INT64, INT32)),
        In("logits_max", follows(lambda d: logits(d).max(1, initial=-9.0)), dtypes=(FLOAT,),
           optional=True, instead="softmax"),
        In("sum_exp_logits", follows(lambda d: np.exp(logits(d) - d["logits_max"][:, None]).sum(1)),
           dtypes=(FLOAT,), optional=True, instead="softmax"),
        In("softmax", probabilities, dtypes=(FLOAT,), optional=True),
    ),
    outputs=(Out(OUTPUTS[0], "input", "input"), Out(OUTPUTS[1], "weight", "input")),
    shapes=shapes,
    loops=loops,
    arrays=arrays,
    kernel=dtype_of("input"),
    cost=cost,
    sprinkled=False,
    npu="a function of torch_npu alone calls it, which torch does not have",
    torch=torch_says,
    base_shapes=((4, 6), (17, 3), (1, 5)),
    layout_shape=(3, 4),
    rank_shapes=((1, 1), (9, 2)),
    empty_shapes=((0, 3), (2, 0)),
    sized=lambda count: (max(count // 64, 1), 64),
    fitted=lambda base: base,
    large_shape=(829, 127),
    large=(
        Setup("many-tokens", (12_503, 8)),
        Setup("wide", (3, 3_001)),
        of(7, 33_013, 3, "many-words", absent=("softmax",)),
        of(521, 1_031, 97, "square", absent=("softmax",)),
    ),
    broadcast=(
        of(5, 1, 3, "one-word", absent=("softmax",)),
        of(5, 7, 3, "a-few-words", absent=("softmax",)),
        of(9, 128, 2, "just-enough-words", shapes={"softmax": (9, 128)}, absent=STATISTICS),
        Setup("long-mask", (3, 4), {"target_mask": (2,)}, only=HALVES),
        Setup("all-of-them", (3, 4), absent=("",), only=HALVES),
    ),
    mixed=(
        Setup("truths", (11, 4), {"target_mask": (11,)}, dtypes={
            "target_mask": BOOL, "input": BF16, "weight": BF16}),
    ),
    edges=(
        of(3, 2, 2, "numbers", absent=("softmax",), values={
            "grad": (1.0, 300.0, 0.0), "input": [[1.0, 2], [100, 0], [INF, NAN]],
            "weight": [[1.0, -1], [0.5, 2]], "logits_max": (5.0, 20, 1),
            "sum_exp_logits": (1.0, 0, 2), "masked_target": (1, 0, 0), "target_mask": (0b010,)}),
    ),
    invalid=(
        *(Invalid(f"null-{name}", {name: None}, (name,), ArgumentMissingError, PARAM_NULLPTR,
                  base=WITHOUT) for name in STATISTICS),
        *defects.nulls(*INPUTS, *OUTPUTS),
        *defects.dtypes("grad", found=FLOAT16),
        *defects.dtypes("input", "weight", found=FLOAT),
        *defects.dtypes("target_mask", found=INT8),
        *defects.dtypes("masked_target", found=UINT8),
        *defects.dtypes("softmax", found=FLOAT16, alone=True),
        *defects.dtypes(*STATISTICS, found=DOUBLE, base=WITHOUT),
        *defects.dtypes("weight", *OUTPUTS, found=BF16),
        *map(of_format, INPUTS),
        of_format("softmax", alone=True),
        *(of_format(name, base=WITHOUT) for name in STATISTICS),
        *map(of_format, OUTPUTS),
        *defects.values("label_smoothing", 0.5, NAN),
        *defects.shapes("grad", (3, 1), ()),
        *defects.shapes("input", (12,), (3, 4, 1)),
        *defects.shapes("weight", (WORDS * 4,)),
        *defects.shapes("target_mask", (1, 1)),
        *defects.shapes("masked_target", (3, 1)),
        *defects.shapes("softmax", (3 * WORDS,), alone=True),
        *(row for n in STATISTICS for row in defects.shapes(n, (3, 1), base=WITHOUT)),
        *(row for n in OUTPUTS for row in defects.shapes(n, (12,))),
        *defects.shapes("input", (2, 4)),
        *defects.shapes("weight", (127, 4), (WORDS, 3)),
        *defects.shapes("target_mask", (0,)),
        *defects.shapes("masked_target", (2,)),
        *defects.shapes("softmax", (3, 130), (2, WORDS), alone=True),
        *(row for n in STATISTICS for row in defects.shapes(n, (2,), base=WITHOUT)),
        *defects.shapes("input_grad_out", (3, 3), (2, 4)),
        *defects.shapes("weight_grad_out", (WORDS, 3), (4, WORDS)),
        stranger(WORDS),
        stranger(-1),
    ),
    empty_before=f"masked_target-{WORDS}",
    empty_spares=("shape-target_mask-0", "shape-masked_target", "shape-input"),
)  # fmt: skip
