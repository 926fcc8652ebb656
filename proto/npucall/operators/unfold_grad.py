"""Gradient of slices along an axis."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import DOUBLE, FLOAT, FLOATS, AnyArray, Array
from npucall.errors import TILING_ERROR, AclnnStatus, AttributeValueError
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

LONGEST = {1: (49_088, 32_720), 2: (88, 72)}
"""Of a slice and a step, of FLOAT and of shorter dtypes, by the axis from the end."""


def _unfolded(draft: Draft) -> Shape:
    """The shape of the slices."""
    sizes, dim = draft.attribute("input_sizes"), draft.attribute("dim")
    count = (sizes[dim] - draft.attribute("size")) // draft.attribute("step") + 1
    return (*sizes[:dim], count, *sizes[dim + 1 :], draft.attribute("size"))


def _limit(draft: Draft) -> int:
    """The longest slice and step of an axis, and 0 of another one than the last two."""
    place = len(draft.attribute("input_sizes")) - draft.attribute("dim")
    return LONGEST.get(place, (0, 0))[draft.dtype("grad_out") is not FLOAT]


def _short(name: str) -> rules.Rule:
    return rules.requires(
        "what fits the device: along the last axis 49088, of FLOAT16 32720; 88 or 72 before",
        name,
        holds=lambda draft: draft.attribute(name) <= _limit(draft),
        found=lambda draft: draft.attribute(name),
        error=AttributeValueError,
    )


@operator(
    "aclnnUnfoldGrad",
    Input("grad_out", "gradient of the slices, whose cells are its last axis"),
    Attribute("input_sizes", Kind.INT_ARRAY, "the shape of what had the slices"),
    Attribute("dim", Kind.INT64, "the axis of the slices"),
    Attribute("size", Kind.INT64, "cells of a slice"),
    Attribute("step", Kind.INT64, "cells from slice to slice"),
    Output("grad_in", "gradient of what had the slices", "sizes", "grad_out", const=True),
    products=dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    checks=(
        *rules.with_status(
            AclnnStatus.ACLNN_ERR_INNER_NULLPTR,
            rules.present("grad_out", "input_sizes", "grad_in"),
        ),
        rules.supported("grad_out", "grad_in"),
        rules.rank_at_most(8, "grad_out", "grad_in"),
        rules.rank_is("grad_out", *range(2, 9)),
        rules.requires(
            "an extent for each axis but the last",
            "input_sizes",
            holds=lambda d: len(d.attribute("input_sizes")) == len(d.shape("grad_out")) - 1,
            found=lambda draft: draft.attribute("input_sizes"),
            error=AttributeValueError,
        ),
        rules.value_fits("numbers of 0 or more", "input_sizes", lambda value: min(value) >= 0),
        rules.shape_of("input_sizes", into="sizes", make=lambda d: d.attribute("input_sizes")),
        rules.same_shape("grad_in", "sizes", "input_sizes"),
        rules.requires(
            "an axis, counted from 0",
            "dim",
            holds=lambda d: 0 <= d.attribute("dim") < len(d.attribute("input_sizes")),
            found=lambda draft: draft.attribute("dim"),
            error=AttributeValueError,
        ),
        rules.positive("size"),
        rules.positive("step"),
        rules.public_format("grad_out"),
        rules.succeed_if_empty("grad_out", "grad_in"),
        *rules.with_status(
            TILING_ERROR,
            rules.requires(
                "the last axis, or the one before",
                "dim",
                holds=lambda draft: _limit(draft) > 0,
                found=lambda draft: draft.attribute("dim"),
                error=AttributeValueError,
            ),
            rules.requires(
                "at most the cells of the axis",
                "size",
                holds=lambda d: d.attribute("size") <= d.shape("sizes")[d.attribute("dim")],
                found=lambda draft: draft.attribute("size"),
                error=AttributeValueError,
            ),
            rules.shape_of("grad_out", into="unfolded", make=_unfolded),
            rules.same_shape("grad_out", "unfolded", "that of the slices"),
            _short("size"),
            _short("step"),
        ),
    ),
    kernel_dtype=rules.dtype_of("grad_out"),
    over=at_once(
        holds=lambda facts, given: 2 * DOUBLE.itemsize * facts.shapes["sizes"][given["dim"]]
    ),
    sample=Sample(
        {"grad_out": (2, 3, 2)}, attributes={"input_sizes": [2, 4], "dim": 1, "size": 2, "step": 1}
    ),
    area="indexing",
    torch="Tensor.unfold",
    source="ops-math conversion/unfold_grad: page aclnnUnfoldGrad, its checks [src:unfold-grad]",
)
def unfold_grad(
    facts: Facts,
    grad_out: Array,
    input_sizes: tuple[int, ...],
    dim: int,
    size: int,
    step: int,
) -> AnyArray:
    """Gradient of slices of ``size`` cells along an axis, which begin every ``step`` cells.

    Cell n of the axis gets the sum of the cells j of slices i with i step + j = n. Sums are taken
    in float64 and rounded once. The axis is the last one, or the one before; slices and steps of
    it are at most 49088 or 88 long, of FLOAT16 and BF16 32720 or 72, as on a device.

    As ``aten.unfold_backward`` in torch. A null pointer is 561103.
    """
    out = facts.output("grad_in", input_sizes)
    cells, count = input_sizes[dim], grad_out.shape[dim]
    lead = (*input_sizes[:dim], *input_sizes[dim + 1 :])

    def compute(block: tuple[slice, ...]) -> None:
        before, behind = block[:dim], block[dim:]
        extents = [piece.stop - piece.start for piece in block]
        total = np.zeros((*extents[:dim], cells, *extents[dim:]))
        for j in range(size):
            place = slice(j, j + (count - 1) * step + 1, step)
            index = (*before, slice(0, count), *behind, j)
            total[(*(slice(None),) * dim, place)] += facts.read(grad_out, index)
        out[(*before, slice(0, cells), *behind)] = total

    facts.each(cut(lead, max(BLOCK // cells, 1)), compute)
    return out
