"""aclnnCtcLoss [src:ctc-loss]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import ArgumentError, AttributeValueError, DTypeError
from npucall.tensors import Shape
from npucall_conformance.statements import _npu
from npucall_conformance.statements._ctc_loss import TAKES, log_sum, states_of, transitions
from npucall_conformance.statements.ctc_loss_backward import (
    IMPOSSIBLE,
    LEVEL,
    WITH_LIMITS,
    every_step,
    fewer_steps,
    labels,
    log_softmax,
    long_lengths,
    short_lengths,
    sized,
    with_labels,
)
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, Contradiction, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import BEFORE_950, ONLY_950, WITHOUT_BFLOAT16, Statement

NAN, INF = reals.NAN, reals.INFINITY
NEG, ALPHA = OUTPUTS = ("neg_log_likelihood_out", "log_alpha_out")


def items_of(k: Arguments) -> int:
    """Log-probabilities of rank 2 are of one item."""
    return k["log_probs"].shape[1] if k["log_probs"].ndim > 2 else 1


def loss_shape(k: Arguments) -> Shape:
    shape: Shape = k["log_probs"].shape[1:-1]
    return shape


def alpha_shape(k: Arguments) -> Shape:
    states = 2 * max(k["target_lengths"], default=0) + 1
    if k.product != "Ascend950":
        states = (states + 7) // 8 * 8
    return (items_of(k), k["log_probs"].shape[0], states)


def end(k: Arguments, loss: float) -> float:
    """The loss; an infinite one becomes zero if asked for, but never on Ascend 950."""
    return 0.0 if k["zero_infinity"] and loss == INF and k.product != "Ascend950" else loss


def loops(k: Arguments) -> dict[str, Any]:
    lp = k["log_probs"].reshape(k["log_probs"].shape[0], items_of(k), -1).tolist()
    alpha = np.full(alpha_shape(k), -INF)
    losses = []
    for n, (steps, count) in enumerate(zip(k["input_lengths"], k["target_lengths"], strict=True)):
        states = states_of(k, n)
        row: list[float] = []
        for t in range(steps):
            if t == 0:
                row = [lp[0][n][c] if s < len(states[:2]) else -INF for s, c in enumerate(states)]
            else:
                row = [
                    lp[t][n][c] + log_sum([row[f] for f in before(states, s)])
                    for s, c in enumerate(states)
                ]
            alpha[n, t, : len(states)] = row
        ends = row[-2:] if count else row
        losses.append(end(k, -log_sum(ends) if steps else (INF if count else 0.0)))
    return {NEG: np.reshape(losses, loss_shape(k)), ALPHA: alpha}


def before(states: list[int], s: int) -> list[int]:
    """The states before state ``s``: itself, the one before, and another label's before that."""
    found = [s, s - 1]
    if s > 1 and states[s] != states[s - 2]:
        found.append(s - 2)
    return [each for each in found if each >= 0]


def arrays(k: Arguments) -> dict[str, Terms]:
    lp = k["log_probs"].reshape(k["log_probs"].shape[0], items_of(k), -1)
    alpha, size = np.full(alpha_shape(k), -np.inf), np.zeros(alpha_shape(k))
    losses, sizes = [], []
    for n, (steps, count) in enumerate(zip(k["input_lengths"], k["target_lengths"], strict=True)):
        states = np.array(states_of(k, n))
        into = transitions(states, blank=-1)  # a label may be blank, if someone gives that
        row, held = np.full(states.size, -np.inf), np.zeros(states.size)
        for t in range(steps):
            emitted = lp[t, n, states]
            if t == 0:
                row[:2] = emitted[:2]
            else:
                ways = np.where(into == 0, row[:, None], -np.inf)
                row = np.logaddexp.reduce(ways, axis=0) + emitted
            # Of both signs, logarithms cancel.
            near = np.abs(np.nan_to_num((emitted, row), neginf=0.0, posinf=0.0))
            held = np.maximum(np.where(into == 0, held[:, None], 0.0).max(0) + near[0], near[1])
            alpha[n, t, : states.size], size[n, t, : states.size] = row, held
        ends = row[-2:] if count else row[-1:]
        loss = -np.logaddexp.reduce(ends) if steps else (np.inf if count else 0.0)
        losses.append(end(k, float(loss)))
        sizes.append(0.0 if np.isinf(loss) else max(held.max(), abs(float(loss))))
    shape = loss_shape(k)
    return {NEG: Terms(np.reshape(losses, shape), np.reshape(sizes, shape)),
            ALPHA: Terms(alpha, size)}  # fmt: skip


def torch_says(k: Arguments, torch: Any) -> Any:
    """Torch never sets losses to zero, and does not write elements that no state has."""
    loss, _ = torch.ops.aten._ctc_loss(  # noqa: SLF001  # torch's name for it
        k["log_probs"], k["targets"].long(), k["input_lengths"], k["target_lengths"], k["blank"],
        False,  # noqa: FBT003
    )  # fmt: skip
    zeroed = torch.where(torch.isinf(loss), 0.0, loss)
    return {NEG: zeroed if k["zero_infinity"] and k.product != "Ascend950" else loss}


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    longest = max(attributes["target_lengths"], default=0)
    return {"log_probs": base, "targets": (base[1], longest)}


def special(note: str, steps: list[int], lengths: list[int], **values: Any) -> Setup:
    """Items of up to four steps and four classes, blank first."""
    attributes = {"input_lengths": steps, "target_lengths": lengths, "blank": 0}
    return Setup(note, (4, len(steps), 4), values=values, attributes=attributes)


def flat(*lengths: int, note: str = "flat-targets") -> Setup:
    """Targets one after the other."""
    attributes = {"target_lengths": list(lengths)}
    return Setup(note, (7, len(lengths), 5), {"targets": (sum(lengths),)}, attributes=attributes)


def one_item(*targets: int) -> Setup:
    """Log-probabilities of rank 2."""
    return Setup(f"one-item-{len(targets)}", (6, 1, 4),
                 {"log_probs": (6, 4), "targets": targets},
                 values={"log_probs": np.log(np.arange(1.0, 25).reshape(6, 4) / 40)},
                 attributes={"input_lengths": [5], "target_lengths": [2], "blank": 0})  # fmt: skip


def lengths(row: str, blames: tuple[str, ...], *found: int) -> Invalid:
    return Invalid(row, {blames[0]: list(found)}, blames, AttributeValueError)


VALID = (6, 3, 5)
"""Steps, items and classes of the valid call; its items have 2, 1 and 2 labels, five states."""
BOTH = ("targets", "target_lengths")
AS_INT64 = Setup(dtypes={"targets": INT64})
"""Of BOOL every label is a class."""

CTC_LOSS = Statement(
    "aclnnCtcLoss",
    prototype=(
        "const aclTensor* logProbs, const aclTensor* targets, const aclIntArray* inputLengths, "
        "const aclIntArray* targetlengths, int64_t blank, bool zeroInfinity, "
        "aclTensor* negLogLikelihoodOut, aclTensor* logAlphaOut"
    ),
    takes=TAKES,
    renamed={"targetlengths": "target_lengths"},
    defaults={"blank": 0, "zero_infinity": False},
    defaulted=IMPOSSIBLE,
    inputs=(
        In("log_probs", log_softmax),
        In("targets", labels, dtypes=(INT64, INT32, BOOL, FLOAT, FLOAT16)),
    ),
    outputs=(
        Out(NEG, shape=loss_shape, dtype="log_probs"),
        Out(ALPHA, shape=alpha_shape, dtype="log_probs"),
    ),
    loops=loops,
    arrays=arrays,
    dtypes=(FLOAT, FLOAT16, BF16, DOUBLE),
    kernel=dtype_of("log_probs"),
    shapes=shapes,
    npu=aten("_ctc_loss", "log_probs", "targets", *_npu.LENGTHS, "blank", "zero_infinity"),
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
        one_item(2), one_item(1, 2), one_item(1, 3),
        Setup("targets-wider", (6, 2, 5), {"targets": (2, 5)},
             attributes={"target_lengths": [2, 1]}),
    ),
    edges=(
        IMPOSSIBLE,
        special("repeated-labels", [4, 4, 4], [2, 2, 3], targets=[[1, 1, 0], [1, 2, 0], [3, 3, 1]]),
        special("no-steps", [0, 4, 0], [0, 1, 1], targets=[[1], [2], [3]]),
        special("no-steps-at-all", [0, 0], [0, 1], targets=[[1], [2]]),
        special("exactly-one-path", [3, 1], [3, 1], targets=[[1, 2, 3], [2, 0, 0]]),
        special("labels-that-are-blank", [4, 4], [2, 3], targets=[[0, 2, 0], [1, 0, 2]]),
        special("certain", [2, 2], [1, 1], targets=[[1], [2]], log_probs=np.array([
            [[-INF, 0.0, -INF, -INF]] * 2, [[0.0, -INF, -INF, -INF]] * 2, LEVEL, LEVEL,
        ])),
        special("not-a-number", [4, 4], [1, 1], targets=[[1], [2]], log_probs=np.array([
            [[NAN, -1.0, -1.0, -2.0], [-1.5] * 4], LEVEL, LEVEL, LEVEL,
        ])),
        special("large", [4, 4], [1, 2], targets=[[1, 0], [2, 3]],
                log_probs=np.full((4, 2, 4), -20000.0)),
    ),
    empty_spares=("more-steps", "target-lengths", "label", "shape-targets-3x1", "short-floats"),
    invalid=(
        *defects.nulls("log_probs", "targets", "input_lengths", "target_lengths", *OUTPUTS),
        *defects.shapes("log_probs", (0, 3, 5), ()),
        *defects.shapes("log_probs", (6,), (6, 3, 5, 1)),
        *defects.values("blank", -1, 5),
        lengths("input-lengths-of-two", ("input_lengths",), 6, 6),
        lengths("more-steps-than-there-are", ("input_lengths", "log_probs"), 6, 7, 6),
        lengths("target-lengths-of-four", ("target_lengths",), 1, 2, 0, 1),
        *defects.shapes("targets", (), (3, 2, 1)),
        *defects.shapes("targets", (2, 2)),
        *defects.shapes("targets", (3, 1), blames=BOTH),
        *defects.shapes("targets", (7,), blames=BOTH),
        *defects.shapes(NEG, (2,), (4,), (), (3, 1)),
        *defects.shapes(ALPHA, (3, 6, 6), (3, 5, 8), (2, 6, 8), (3, 6, 16), (144,)),
        *defects.shapes(ALPHA, (3, 6, 5), products=BEFORE_950),
        *defects.shapes(ALPHA, (3, 6, 8), products=ONLY_950),
        *defects.dtypes("log_probs", found=INT32),
        *defects.dtypes("log_probs", found=BF16, products=WITHOUT_BFLOAT16),
        *defects.dtypes("log_probs", found=FLOAT16, products=WITHOUT_BFLOAT16),
        Invalid("short-floats-for-1001-labels", {
            "log_probs": {"dtype": FLOAT16}, "targets": {"shape": (3, 1001)},
            "target_lengths": [1001, 1, 2], ALPHA: {"shape": (3, 6, 2008)},
        }, ("log_probs",), DTypeError, products=WITH_LIMITS),
        *defects.dtypes("targets", found=INT8),
        *defects.dtypes("targets", found=DOUBLE),
        *defects.dtypes(*OUTPUTS, found=DOUBLE),
        lengths("steps-below-0", ("input_lengths",), 6, -1, 6),
        lengths("labels-below-0", ("target_lengths",), 1, 2, -1),
        Invalid("label-beyond", {"targets": {"values": [[1, 5], [3, 4], [1, 1]]}}, ("targets",),
                ArgumentError, base=AS_INT64),
        Invalid("label-below", {"targets": {"values": [[1, 2], [-1, 4], [1, 1]]}}, ("targets",),
                ArgumentError, base=AS_INT64),
    ),
    contradictions=(
        Contradiction(
            "F19", "whether zeroInfinity zeroes the loss of an impossible item",
            Setup(base=(2, 1, 3), values={"targets": [[1, 1]]},
                  attributes={"input_lengths": [2], "target_lengths": [2], "blank": 0,
                              "zero_infinity": True}, products=BEFORE_950),
            {"page; kernels A2, A3": [0.0], "torch": [INF]}, "page; kernels A2, A3",
        ),
        Contradiction(
            "F19", "whether zeroInfinity zeroes the loss of an impossible item on Ascend 950",
            Setup(base=(2, 1, 3), values={"targets": [[1, 1]]},
                  attributes={"input_lengths": [2], "target_lengths": [2], "blank": 0,
                              "zero_infinity": True}, products=ONLY_950),
            {"page": [0.0], "kernel; torch": [INF]}, "kernel; torch",
        ),
    ),
)  # fmt: skip
