"""Gradient of elements that were repeated along an axis."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    Values,
    at_once,
    operator,
    rules,
)
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import DOUBLE, FLOATS, INT32, INT64, AnyArray, Array
from npucall.errors import PARAM_INVALID, TILING_ERROR, ArgumentError
from npucall.products import ASCEND_950
from npucall.tensors import Shape


def _line(draft: Draft) -> Shape:
    """How many cells the axis has, and how many runs; of a single number ``out`` tells it."""
    shape, axis, given = draft.shape("y_grad"), draft.attribute("axis"), draft.tensor("out")
    cells = shape[axis] if shape else 1
    runs = prod(draft.shape("repeats"))
    if runs == 1:
        fits = shape and given and len(given.shape) == len(shape)
        runs = given.shape[axis] if fits and given else cells
    return cells, runs


def _summed(draft: Draft) -> Shape:
    """The shape of ``y_grad`` with its runs as the axis."""
    shape = list(draft.shape("y_grad"))
    if shape:
        shape[draft.attribute("axis")] = draft.shape("line")[1]
    return tuple(shape)


def _checked(facts: Facts, repeats: AnyArray) -> AnyArray:
    """How long each run is; raises ArgumentError unless they are all cells of the axis."""
    cells, runs = facts.shapes["line"]
    lengths = np.asarray(repeats, np.int64).reshape(-1)
    every = np.resize(lengths, runs)
    if ((every < 0) | (every > cells)).any() or every.sum() != cells:  # a sum may wrap around
        expected = f"{runs} runs of 0 or more that have {cells} cells together"
        found = f"{every.sum(dtype=object)} and at least {every.min()}"
        raise ArgumentError(
            f"repeats: expected {expected}, found {found}",
            parameter="repeats",
            aclnn_status=PARAM_INVALID,
        )
    return every


def _held(facts: Facts, _: Mapping[str, Any]) -> int:
    """Bytes of a line, and of where its runs begin and what they sum to."""
    cells, runs = facts.shapes["line"]
    return DOUBLE.itemsize * (cells + 8 * runs)


def _check(facts: Facts, inputs: Mapping[str, Any], _: Mapping[str, Any]) -> None:
    _checked(facts, facts.read(inputs["repeats"], ...))


def _passes(facts: Facts) -> range:
    """What all runs have if they are alike."""
    cells, runs = facts.shapes["line"]
    length = cells // max(runs, 1)
    return range(length, length + _alike(cells, runs))


def _alike(cells: int, runs: int) -> bool:
    """Whether that many runs of one length have these cells."""
    return cells % runs == 0 if runs else not cells


@operator(
    "aclnnRepeatInterleaveGrad",
    Input("y_grad", "gradient of the repeated elements"),
    Input("repeats", "how often each was repeated: numbers, or one for all", as_is=True),
    Attribute("axis", Kind.INT64, "the axis along which they stand"),
    Output("out", "gradient of each element", "summed", "y_grad", const=True),
    products={ASCEND_950: FLOATS},
    checks=(
        rules.present("y_grad", "repeats", "out"),
        rules.supported("y_grad"),
        rules.dtype_in("repeats", INT32, INT64),
        rules.same_dtype("out", as_="y_grad"),
        *rules.with_status(
            TILING_ERROR,
            rules.rank_at_most(8, "y_grad"),
            rules.rank_is("repeats", 0, 1),
            rules.requires(
                "a number, if y_grad has elements",
                "repeats",
                holds=lambda d: 0 in d.shape("y_grad") or 0 not in d.shape("repeats"),
                found=lambda draft: f"shape {draft.shape('repeats')}",
            ),
            rules.requires(
                "one number, if y_grad has no dimensions",
                "repeats",
                holds=lambda d: bool(d.shape("y_grad")) or prod(d.shape("repeats")) == 1,
                found=lambda draft: f"shape {draft.shape('repeats')}",
            ),
            rules.dim_of("y_grad", "axis"),
            rules.requires(
                "a tensor, since one number tells nothing of its extent",
                "out",
                holds=lambda d: d.tensor("out") is not None or prod(d.shape("repeats")) != 1,
                found=lambda _: "none",
                error=ArgumentError,
            ),
            rules.shape_of("y_grad", into="line", make=_line),
            rules.shape_of("y_grad", into="summed", make=_summed),
            rules.same_shape("out", "summed", "that of y_grad with an extent for each run"),
            rules.requires(
                "an extent that divides that of y_grad, if repeats has one number",
                "out",
                holds=lambda d: prod(d.shape("repeats")) != 1 or _alike(*d.shape("line")),
                found=lambda draft: f"shape {draft.shape('summed')}",
            ),
        ),
        rules.succeed_if_empty("y_grad"),
    ),
    kernel_dtype=rules.dtype_of("y_grad"),
    over=at_once(holds=_held),
    values=Values(("repeats",), _check, _passes),
    sample=Sample({"repeats": (2,)}, {"repeats": INT64}, {"axis": 0}),
    area="indexing",
    torch="repeat_interleave",
    source="ops-nn index/repeat_interleave_grad: page aclnnRepeatInterleaveGrad, tiling; the order "
    "behind the dtypes is assumed [src:repeat-interleave]",
)
def repeat_interleave_grad(facts: Facts, y_grad: Array, repeats: Array, axis: int) -> AnyArray:
    """Sums of runs of neighbours along an axis.

    ``repeats`` has the length of each run, 0 or more, which are all cells of the axis together; a
    single number is the length of every run::

        out[i] = sum of y_grad[repeats[0] + ... + repeats[i - 1] :][: repeats[i]]    along axis

    A run of length 0 gives 0. Numbers that do not fit are refused when the call runs (161002): a
    device would read foreign memory. For a single number ``out`` must be given, since its extent
    follows from that number. It has the dimensions of ``y_grad``: the page allows any shape of as
    many elements, but the tiling of a single number takes the axis from ``out``, so that it would
    sum others. Sums are taken in float64 and rounded once.

    As the gradient of ``repeat_interleave`` in torch.
    """
    lengths = _checked(facts, facts.read(repeats, ...))
    out = facts.output("out", facts.shapes["summed"])
    if not y_grad.shape:
        out[...] = facts.read(y_grad, ...)
        return out
    (cells, runs), axis = facts.shapes["line"], axis % len(y_grad.shape)
    some = np.flatnonzero(lengths)
    starts = (np.cumsum(lengths) - lengths)[some]

    def compute(block: tuple[slice, ...]) -> None:
        before, behind = block[:axis], block[axis:]
        given = facts.read(y_grad, (*before, slice(0, cells), *behind))
        total = np.zeros((*given.shape[:axis], runs, *given.shape[axis + 1 :]))
        sums = np.add.reduceat(given, starts, axis, np.float64)
        total[(slice(None),) * axis + (some,)] = sums
        out[(*before, slice(0, runs), *behind)] = total

    lead = (*y_grad.shape[:axis], *y_grad.shape[axis + 1 :])
    facts.each(cut(lead, max(BLOCK // max(cells, runs), 1)), compute)
    return out
