"""Boxes of planes, pooled to planes of one extent; and the gradient of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from npucall.dtypes import DOUBLE, FLOAT, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._boxes import Boxes, check_boxes, of_one
from npucall.operators._weighted_sums import added_up
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Format, Shape

NUMBERS = 5
"""Of a box: its image, and the places of two corners."""
_MANY = 64
"""Boxes of a block, at the most."""
ATTRIBUTES = (
    Attribute("pooled_height", Kind.INT64, "rows of a pooled plane"),
    Attribute("pooled_width", Kind.INT64, "its columns"),
    Attribute("spatial_scale", Kind.FLOAT, "cells for each unit of the boxes"),
    Attribute("sampling_ratio", Kind.INT64, "samples along each axis of a cell; 0: by its extent"),
    Attribute("aligned", Kind.BOOL, "whether boxes move by half a cell, and may be small"),
)
BOXES = Input("boxes", "(K, 5): an image, and x and y of two corners", as_is=True)


def _check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    del attributes
    boxes = inputs["boxes"]
    for block in facts.blocks(boxes.shape):
        whole = (block[0], slice(None))
        check_boxes(facts.read(boxes, whole), facts.shapes["planes"][0])


VALUES = Values(("boxes",), _check, lambda facts: range(facts.shapes["planes"][0]))


def _computes(facts: Facts, given: Mapping[str, Any]) -> int:
    """Every sample."""
    cells = given["pooled_height"] + given["pooled_width"]
    return int(facts.shapes["pooled"][0] * cells * max(given["sampling_ratio"], 1))


def _samples(_: Facts, given: Mapping[str, Any]) -> int:
    """Bytes of the samples of a box."""
    ratio = given["sampling_ratio"]
    return 128 * ratio * int(given["pooled_height"] + given["pooled_width"]) if ratio > 1 else 0


def _holds(facts: Facts, given: Mapping[str, Any]) -> int:
    """And of the sums of a plane that is longer than a block."""
    plane = prod(facts.shapes["planes"][2:])
    return _samples(facts, given) + (2 * DOUBLE.itemsize * plane if plane > BLOCK else 0)


def formats(*planes: str) -> tuple[rules.Rule, ...]:
    """Planes have channels first, and boxes no format of their own."""
    nchw = [rules.format_in(name, Format.NCHW) for name in planes]
    return (nchw[0], rules.format_in("boxes", Format.ND), *nchw[1:])


def _pooled(draft: Draft) -> Shape:
    """The shape of the pooled planes."""
    names = ("pooled_height", "pooled_width")
    sizes = (draft.attribute(name) for name in names)
    return (draft.shape("boxes")[0], draft.shape("planes")[1], *sizes)


POOLED = (
    rules.positive("pooled_height"),
    rules.positive("pooled_width"),
    rules.shape_of("boxes", into="pooled", make=_pooled),
)
LAST = (
    rules.not_negative("sampling_ratio"),
    rules.value_fits("more than 2^-126", "spatial_scale", lambda scale: scale > 2.0**-126),
)
FIVE = rules.requires(
    "5 numbers of each box",
    "boxes",
    holds=lambda draft: draft.shape("boxes")[1] == NUMBERS,
    found=lambda draft: f"shape {draft.shape('boxes')}",
)
SAMPLE: dict[str, Any] = {"pooled_height": 2, "pooled_width": 2, "spatial_scale": 1.0}


@operator(
    "aclnnRoiAlignV2",
    Input("self", "planes, (B, C, H, W)"),
    BOXES,
    *ATTRIBUTES,
    Output("out", "pooled planes, (K, C, ...)", "pooled", "self", format="self"),
    products=dict.fromkeys((A2, A3, ASCEND_910, ASCEND_310P), HALF_AND_SINGLE),
    checks=(
        rules.present("self", "boxes", "out"),
        rules.supported("self"),
        rules.same_dtype("boxes", "out", as_="self"),
        *formats("self", "out"),
        rules.rank_is("self", 4),
        rules.rank_is("boxes", 2),
        rules.rank_is("out", 4),
        rules.requires(
            "images with cells",
            "self",
            holds=lambda draft: 0 not in (draft.shape("self")[0], *draft.shape("self")[2:]),
            found=lambda draft: f"shape {draft.shape('self')}",
        ),
        FIVE,
        rules.shape_of("self", into="planes", make=lambda draft: draft.shape("self")),
        *POOLED,
        rules.same_shape("out", "pooled", "that of the pooled planes"),
        *LAST,
        rules.succeed_if_empty("self", "boxes"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=_samples, computes=_computes),
    values=VALUES,
    sample=Sample({"self": (1, 2, 4, 4), "boxes": (2, NUMBERS)}, attributes=SAMPLE),
    formats_by_rank=True,
    area="images",
    source="ops-cv objdetect/roi_align: page aclnnRoiAlignV2, its checks [src:roi-align]",
)
def roi_align_v2(
    facts: Facts,
    self: Array,
    boxes: Array,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int = 0,
    aligned: bool = False,
) -> AnyArray:
    """Boxes of planes, pooled to planes of one extent.

    The first number of a box, rounded down, is its image; the others are x and y of two corners,
    which ``spatial_scale`` times are cells, with ``aligned`` less 1/2. A box has at least one cell
    along each axis, unless it is aligned. It is cut into ``pooled_height`` by ``pooled_width``
    parts. Each gives the mean of ``sampling_ratio`` samples along each axis, or of as many as the
    part has cells, rounded up. A sample at p of n cells is a sum of the two cells beside it, by
    their distance; beyond the middles of the end cells it is the end cell, and below -1 or above n
    it is 0. Samples are weighed in float64; sums are taken in float32, and rounded once.

    As ``torchvision.ops.roi_align``. A box of no image, or with numbers that are not finite, is
    refused (161002) when the call runs; a device does not look.
    """
    given = Boxes(
        facts, boxes, (pooled_height, pooled_width), spatial_scale, sampling_ratio, aligned
    )
    shape = facts.shapes["pooled"]
    out = facts.output("out", shape)

    def compute(block: tuple[slice, ...]) -> None:
        some, channels, *rest = block
        for number, box in enumerate(given.read(some), start=some.start):
            one = (slice(0, 1), channels, *rest)
            part = added_up(of_one(facts, self, int(box[0])), given.sums(box), (0, 1), one)
            out[(slice(number, number + 1), channels, *rest)] = part

    facts.each(cut(shape, min(BLOCK, _MANY * prod(shape[1:]))), compute)
    return out


@operator(
    "aclnnRoiAlignV2Backward",
    Input("grad_output", "gradient of the pooled planes, (K, C, ...)"),
    BOXES,
    Attribute("input_shape", Kind.INT_ARRAY, "the shape of the planes"),
    *ATTRIBUTES,
    Output("grad_input", "gradient of the planes", "planes", "grad_output", format="grad_output"),
    products=dict.fromkeys((A2, A3, ASCEND_950, ASCEND_910), (FLOAT,)),
    checks=(
        rules.present("grad_output", "boxes", "input_shape", "grad_input"),
        rules.supported("grad_output"),
        rules.same_dtype("boxes", "grad_input", as_="grad_output"),
        *formats("grad_output", "grad_input"),
        rules.rank_is("grad_output", 4),
        rules.rank_is("boxes", 2),
        FIVE,
        rules.value_fits(
            "4 numbers of 1 or more; channels may be 0",
            "input_shape",
            lambda value: len(value) == 4 and min(value[0], *value[2:]) > 0 <= value[1],  # noqa: PLR2004
        ),
        rules.shape_of("input_shape", into="planes", make=lambda d: d.attribute("input_shape")),
        *POOLED,
        rules.same_shape("grad_output", "pooled", "that of the pooled planes"),
        rules.same_shape("grad_input", "planes", "input_shape"),
        *LAST,
        rules.succeed_if_empty("grad_output", "boxes"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=at_once(holds=_holds, computes=_computes),
    values=VALUES,
    sample=Sample(
        {"grad_output": (2, 2, 2, 2), "boxes": (2, NUMBERS)},
        attributes={"input_shape": [1, 2, 4, 4], **SAMPLE},
    ),
    formats_by_rank=True,
    area="images",
    source="ops-cv objdetect/roi_align_grad: page aclnnRoiAlignV2Backward [src:roi-align]",
)
def roi_align_v2_backward(
    facts: Facts,
    grad_output: Array,
    boxes: Array,
    input_shape: tuple[int, ...],
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int = 0,
    aligned: bool = False,
) -> AnyArray:
    """Gradient of ``roi_align_v2`` with respect to its planes.

    Each cell gets the sum of the gradients of the samples that it is part of, times its weights in
    them. Sums over boxes are taken in float64, and rounded once. A box of no image, or with numbers
    that are not finite, is refused (161002) when the call runs; a device does not look.
    """
    given = Boxes(
        facts, boxes, (pooled_height, pooled_width), spatial_scale, sampling_ratio, aligned
    )
    out = facts.output("grad_input", input_shape)

    def of_images(images: slice) -> Iterator[tuple[int, int, AnyArray]]:
        """The boxes of some images: image, number, and the box."""
        for some, _ in cut(boxes.shape, BLOCK):
            for number, box in enumerate(given.read(some), start=some.start):
                if images.start <= int(box[0]) < images.stop:
                    yield int(box[0]) - images.start, number, box

    def compute(lead: tuple[slice, ...]) -> None:
        images, channels = lead
        total = np.zeros((*(piece.stop - piece.start for piece in lead), *input_shape[2:]))
        for image, number, box in of_images(images):
            sums = given.sums(box)
            reach = [
                each.reach(slice(0, cells)) for each, cells in zip(sums, given.pooled, strict=True)
            ]
            back = [
                each._replace(cells=each.cells - there.start).transposed(there.stop - there.start)
                for each, there in zip(sums, reach, strict=True)
            ]
            extents = [slice(0, there.stop - there.start) for there in reach]
            if all(extent.stop for extent in extents):
                one = (slice(0, 1), channels, *extents)
                place: tuple[Any, ...] = (slice(image, image + 1), slice(None), *reach)
                total[place] += added_up(of_one(facts, grad_output, number), back, (0, 1), one)
        out[lead] = total

    facts.each(cut(input_shape[:2], max(BLOCK // prod(input_shape[2:]), 1)), compute)
    return out
