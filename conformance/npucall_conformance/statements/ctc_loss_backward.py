"""aclnnCtcLossBackward [src:ctc-loss]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import ArgumentError, AttributeValueError, DTypeError
from npucall.tensors import Shape
from npucall_conformance.statements import _npu
from npucall_conformance.statements._ctc_loss import TAKES, arrays, loops, states_of, transitions
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import Draw, follows, normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16, Statement

NAN, INF = reals.NAN, reals.INFINITY
WITH_LIMITS = ("Ascend910B", "Ascend910_93")
"""Products whose kernels for short floats have limits."""


def log_softmax(draw: Draw) -> Any:
    logits = draw.random.normal(0, 1, draw.shape)
    return logits - np.log(np.exp(logits).sum(2, keepdims=True))


def labels(draw: Draw) -> Any:
    """Classes that are not blank, which is the first or the last."""
    others = max(draw.shapes["log_probs"][-1] - 1, 1)
    return draw.random.integers(0, others, draw.shape) + (draw["blank"] == 0)


def forward(draw: Draw) -> Any:
    """The forward variables: logarithms of the probabilities of the paths to each state."""
    lp = draw["log_probs"]
    alpha = np.full(draw.shapes["log_alpha"], -np.inf)
    for n, steps in enumerate(draw["input_lengths"]):
        states = np.array(states_of(draw.earlier, n))
        back = transitions(states, draw["blank"]).T
        for t in range(steps):
            into = np.where(np.arange(states.size) < 2, 0.0, -np.inf)
            if t > 0:
                into = np.logaddexp.reduce(alpha[n, t - 1, : states.size] + back, axis=1)
            alpha[n, t, : states.size] = lp[t, n, states] + into
    return alpha


def loss(draw: Draw) -> Any:
    """The losses, from the last two states; without steps, 0 if there is no label either."""
    alpha = forward(draw)
    result = []
    for n, (steps, count) in enumerate(
        zip(draw["input_lengths"], draw["target_lengths"], strict=True)
    ):
        ends = alpha[n, steps - 1, max(2 * count - 1, 0) : 2 * count + 1]
        empty = 0.0 if count == 0 else np.inf
        result.append(-np.logaddexp.reduce(ends) if steps else empty)
    return result


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    steps, items, _ = base
    longest = max(attributes["target_lengths"], default=0)
    return {
        "grad_out": (items,),
        "log_probs": base,
        "targets": (items, longest),
        "neg_log_likelihood": (items,),
        "log_alpha": (items, steps, 2 * longest + 1),
    }


def every_step(base: Shape) -> list[int]:
    return [base[0]] * base[1]


def fewer_steps(base: Shape) -> list[int]:
    """No item has all of them."""
    return [max(base[0] - 1 - n % 3, min(base[0], 1)) for n in range(base[1])]


def short_lengths(base: Shape) -> list[int]:
    """At most half of the fewest steps, so that equal neighbours fit as well."""
    return [min(max(base[0] - 2, 0) // 2, n % 4) for n in range(base[1])]


def long_lengths(base: Shape) -> list[int]:
    return [max(max(base[0] - 2, 0) // 2 - n % 2, 0) for n in range(base[1])]


def sized(count: int) -> Shape:
    """Eight steps, up to 64 items; more classes, whose numbers FLOAT16 still holds."""
    items = max(min(count // 64, 64), 1)
    return (8, items, max(count // (8 * items), 2))


def with_labels(base: Shape) -> Shape:
    """A class beside blank."""
    return (*base[:2], max(base[2], 2))


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.ops.aten._ctc_loss_backward(  # noqa: SLF001  # torch's name for it
        k["grad_out"], k["log_probs"], k["targets"].long(), k["input_lengths"],
        k["target_lengths"], k["neg_log_likelihood"], k["log_alpha"], k["blank"],
        k["zero_infinity"],
    )  # fmt: skip


def special(note: str, steps: list[int], lengths: list[int], **values: Any) -> Setup:
    """Items of up to four steps and four classes, blank first."""
    attributes = {"input_lengths": steps, "target_lengths": lengths, "blank": 0}
    return Setup(note, (4, len(steps), 4), values=values, attributes=attributes)


def flat(*lengths: int, note: str = "flat-targets") -> Setup:
    """Targets one after the other."""
    attributes = {"target_lengths": list(lengths)}
    return Setup(note, (7, len(lengths), 5), {"targets": (sum(lengths),)}, attributes=attributes)


def lengths(row: str, blames: tuple[str, ...], *found: int) -> Invalid:
    return Invalid(row, {blames[0]: list(found)}, blames, AttributeValueError)


VALID = (6, 3, 5)
"""Steps, items and classes of the valid call; its items have 2, 1 and 2 labels, five states."""
LEVEL = [[-1.5] * 4] * 2
"""Two items that could be in any class."""
IMPOSSIBLE = special("impossible", [4, 2, 1], [2, 2, 1], targets=[[1, 2], [3, 3], [2, 0]])
"""Two equal labels need three steps."""

CTC_LOSS_BACKWARD = Statement(
    "aclnnCtcLossBackward",
    prototype=(
        "const aclTensor* gradOut, const aclTensor* logProbs, const aclTensor* targets, "
        "const aclIntArray* inputLengths, const aclIntArray* targetLengths, "
        "const aclTensor* negLogLikelihood, const aclTensor* logAlpha, int64_t blank, "
        "bool zeroInfinity, aclTensor* out"
    ),
    takes=TAKES,
    defaults={"blank": 0, "zero_infinity": False},
    defaulted=IMPOSSIBLE,
    inputs=(
        In("grad_out", normal()),
        In("log_probs", log_softmax),
        In("targets", labels, dtypes=(INT64, INT32, BOOL, FLOAT, FLOAT16)),
        In("neg_log_likelihood", follows(loss)),
        In("log_alpha", follows(forward)),
    ),
    outputs=(Out("out", shape="log_probs", dtype="log_probs"),),
    loops=loops,
    arrays=arrays,
    dtypes=(FLOAT, FLOAT16, BF16, DOUBLE),
    kernel=dtype_of("log_probs"),
    shapes=shapes,
    npu=aten(
        "_ctc_loss_backward", "grad_out", "log_probs", "targets", *_npu.LENGTHS,
        "neg_log_likelihood", "log_alpha", "blank", "zero_infinity",
    ),
    torch=torch_says,
    attributes={
        "input_lengths": (every_step, fewer_steps),
        "target_lengths": (long_lengths, short_lengths),
        "blank": (0, lambda base: max(base[2] - 1, 0)),
        "zero_infinity": (False, True),
    },
    base_shapes=((6, 3, 5), (12, 4, 9), (3, 2, 2), (7, 5, 3)),
    layout_shape=VALID,
    rank_shapes=((1, 1, 1), (2, 1, 2), (5, 1, 3)),
    empty_shapes=((3, 0, 4), (1, 0, 1)),
    large_shape=(8, 64, 201),
    large=(Setup("many-steps", (101, 2, 499), only=(FLOAT,)), Setup("many-items", (3, 1201, 29)),
           Setup("many-classes", (2, 3, 16_411))),
    sized=sized,
    fitted=with_labels,
    broadcast=(
        flat(3, 1, 2), flat(0, 2, 0, 1), flat(0, 0, note="flat-and-none"),
        Setup("targets-wider", (6, 2, 5), {"targets": (2, 5)},
             attributes={"target_lengths": [2, 1]}),
        Setup("alpha-wider", (6, 2, 5), {"log_alpha": (2, 6, 8)},
             attributes={"target_lengths": [2, 1]}),
    ),
    edges=(
        IMPOSSIBLE,
        special("repeated-labels", [4, 4, 4], [2, 2, 3], targets=[[1, 1, 0], [1, 2, 0], [3, 3, 1]]),
        special("no-steps", [0, 4, 0], [0, 1, 1], targets=[[1], [2], [3]]),
        special("exactly-one-path", [3, 1], [3, 1], targets=[[1, 2, 3], [2, 0, 0]]),
        special("gradients", [4] * 5, [2] * 5, grad_out=[0.0, -0.0, INF, NAN, 300.0],
                targets=[[1, 2]] * 5),
        special("losses", [4] * 4, [1] * 4, neg_log_likelihood=[INF, NAN, 0.0, 3.0],
                grad_out=[INF, 1.0, 1.0, NAN]),
        special("certain", [2, 2], [1, 1], targets=[[1], [2]], log_probs=np.array([
            [[-INF, 0.0, -INF, -INF]] * 2, [[0.0, -INF, -INF, -INF]] * 2, LEVEL, LEVEL,
        ])),
        special("not-a-number", [4, 4], [1, 1], log_probs=np.array([
            [[NAN, -1.0, -1.0, -2.0], [-1.5] * 4], LEVEL, LEVEL, LEVEL,
        ])),
    ),
    empty_spares=(
        "more-steps", "target-lengths", "label", "shape-targets-3x1", "alpha-too-narrow",
    ),
    invalid=(
        *defects.nulls("grad_out", "log_probs", "targets", "input_lengths", "target_lengths",
                       "neg_log_likelihood", "log_alpha", "out"),
        *defects.shapes("log_probs", (0, 3, 5), ()),
        *defects.shapes("grad_out", (), (3, 1)),
        *defects.shapes("neg_log_likelihood", (), (3, 1)),
        *defects.shapes("log_probs", (6, 3), (6, 3, 5, 1)),
        *defects.shapes("log_alpha", (3, 6), (3, 6, 5, 1)),
        *defects.shapes("targets", (), (3, 2, 1)),
        *defects.shapes("out", (6, 15), (6, 3, 5, 1)),
        *defects.values("blank", -1, 5),
        lengths("labels-beyond-alpha", ("target_lengths", "log_alpha"), 1, 3, 2),
        Invalid("alpha-too-narrow", {"log_alpha": {"shape": (3, 6, 4)}},
                ("target_lengths", "log_alpha"), AttributeValueError),
        *defects.shapes("targets", (3, 1), blames=("targets", "target_lengths")),
        *defects.shapes("grad_out", (2,), (1,)),
        *defects.shapes("out", (6, 1, 5)),
        *defects.shapes("neg_log_likelihood", (4,)),
        *defects.shapes("log_alpha", (2, 6, 5)),
        lengths("input-lengths-of-two", ("input_lengths",), 6, 6),
        lengths("target-lengths-of-four", ("target_lengths",), 1, 2, 0, 1),
        *defects.shapes("targets", (2, 2)),
        *defects.shapes("out", (5, 3, 5)),
        *defects.shapes("log_alpha", (3, 7, 5)),
        lengths("more-steps-than-there-are", ("input_lengths", "log_probs"), 6, 7, 6),
        *defects.shapes("out", (6, 3, 4)),
        *defects.shapes("targets", (7,), blames=("targets", "target_lengths")),
        *defects.dtypes("log_probs", found=INT32),
        *defects.dtypes("log_probs", found=BF16, products=WITHOUT_BFLOAT16),
        *defects.dtypes("log_probs", found=FLOAT16, products=WITHOUT_BFLOAT16),
        Invalid("short-floats-for-1001-labels", {"log_probs": {"dtype": FLOAT16}}, ("log_probs",),
                DTypeError, base=Setup(shapes={"log_alpha": (3, 6, 2003)}), products=WITH_LIMITS),
        *defects.dtypes("grad_out", "neg_log_likelihood", "log_alpha", "out", found=DOUBLE),
        *defects.dtypes("targets", found=INT8),
        *defects.dtypes("targets", found=DOUBLE),
        lengths("steps-below-0", ("input_lengths",), 6, -1, 6),
        lengths("labels-below-0", ("target_lengths",), 1, 2, -1),
        Invalid("label-beyond", {"targets": {"values": [[1, 5], [3, 4], [1, 1]]}}, ("targets",),
                ArgumentError),
        Invalid("label-below", {"targets": {"values": [[1, 2], [-1, 4], [1, 1]]}}, ("targets",),
                ArgumentError),
    ),
)  # fmt: skip
