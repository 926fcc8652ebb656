"""What the statements of both softmaxes and of their gradients share [src:softmax]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npucall.dtypes import INT32
from npucall.errors import AttributeValueError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import Draw
from npucall_conformance.stating.parts import PAIRS_OF_FLOATS, Invalid, Setup
from npucall_conformance.stating.statement import BEFORE_950

INPUTS = ("grad_output", "output")
NAN, INF = reals.NAN, reals.INFINITY


def probabilities(draw: Draw) -> Any:
    """A softmax along ``dim``."""
    shape = draw.shape or (1,)
    weights = np.exp(draw.random.normal(0, 2, shape))
    return (weights / weights.sum(draw["dim"], keepdims=True)).reshape(draw.shape)


def log_probabilities(draw: Draw) -> Any:
    """A log-softmax along ``dim``."""
    return np.log(probabilities(draw))


def faint(name: str) -> Callable[[Arguments], tuple[str, ...]]:
    """Along an extent of 1 a probability is 1, so that its logarithm and gradients are 0."""
    return lambda k: ("out",) if np.atleast_1d(k[name]).shape[k["dim"]] == 1 else ()


def gradients(draw: Draw) -> Any:
    """So large that also along a long row they show, after they are multiplied by probabilities."""
    extent = max(draw.shape, default=1)
    return draw.random.normal(0, 1, draw.shape) * min(max(extent, 1), 1024)


def logits(draw: Draw) -> Any:
    """Numbers of which few are so large that also a long row has probabilities that show."""
    peaks = 12.0 * (draw.random.random(draw.shape) < 1e-3)
    return draw.random.normal(0, 2, draw.shape) + peaks


def log_softmax_of(x: Any) -> Any:
    """Along rows. The largest of numbers and NaN is NaN, which makes its row NaN."""
    below = x - x.max(-1, keepdims=True)
    return below - np.log(np.exp(below).sum(-1, keepdims=True))


def middle(base: Shape) -> int:
    return len(base) // 2 if len(base) > 1 else 0


def first_from_the_end(base: Shape) -> int:
    return -max(len(base), 1)


DIMS = {"dim": (0, -1, middle, first_from_the_end)}
CONVERTED = tuple(
    Setup(dtypes={**dict.fromkeys(INPUTS, one), "out": other}) for one, other in PAIRS_OF_FLOATS
)
# Before Ascend 950 an empty input ends the checks at once; there it ends them after the last.
EMPTY = (
    Setup("output-of-another-shape", shapes={"grad_output": (0, 3), "output": (2, 3)},
         products=BEFORE_950),
    Setup("output-empty-alone", shapes={"grad_output": (2, 3), "output": (0, 3)},
         products=BEFORE_950, filled=0.0),
    Setup("dim-out-of-range", shapes={"grad_output": (0, 3)}, values={"output": np.empty((0, 3))},
         attributes={"dim": 7}, products=BEFORE_950),
)  # fmt: skip
# On Ascend 950 the checks of an empty call do not end before these.
EMPTY_OF_ANOTHER_SHAPE = Invalid(
    "empty-output-of-another-shape", {"output": {"shape": (0, 3)}}, ("grad_output",), ShapeError,
    products=("Ascend950",),
)  # fmt: skip
EMPTY_DIM = Invalid(
    "empty-dim-out-of-range", {"dim": 7}, ("dim",), AttributeValueError,
    base=Setup(base=(0, 4)), products=("Ascend950",),
)  # fmt: skip
SHAPES = (
    # A step blames the tensor that it names first, gradOutput in both.
    *defects.shapes("grad_output", (4, 3), (1, 4)),
    *defects.shapes("output", (4, 3), (1, 4), (1, 3, 4), blames=("grad_output",)),
    *defects.shapes("out", (4, 3), (1, 3, 4), blames=("grad_output",)),
    EMPTY_OF_ANOTHER_SHAPE,
)
# Outside of both two and nine dimensions, so that a pair with nine has both defects.
BAD_DIMS = defects.values("dim", 2, -3, 9, -10)
BAD_OUT = (*defects.dtypes("out"), *defects.dtypes("out", found=INT32), *defects.no_bfloat16("out"))
ROWS = Setup("rows", values={"self": [
    [0, 0, 0], [1, 2, 3], [-1, -2, 4], [300, 300, -300], [12, -INF, 12], [-INF, -INF, 7],
    [-INF, -INF, -INF], [INF, 0, 0], [INF, INF, -INF], [NAN, 0, 0], [NAN, INF, -INF],
    [6e4, 6e4, -6e4], [1e-4, 0, -1e-4],
]})  # fmt: skip
FORWARD_EDGES = (
    ROWS,
    Setup("largest", values={"self": [[3e38, -3e38, 3e38]]}),
    Setup("one-far-above", values={"self": [[-20, -40, 20]]}),
)
