"""Gradient of the distances of each point from the nearest one of another set."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, Values, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import FLOAT, HALF_AND_SINGLE, INT32, AnyArray, Array
from npucall.operators._labels import check_labels
from npucall.products import A2, A3, ASCEND_950

POINTS, INDICES = ("xyz1", "xyz2"), ("idx1", "idx2")
DISTANCES, GRADIENTS = ("grad_dist1", "grad_dist2"), ("grad_xyz1", "grad_xyz2")
PLANE = 2
"""Numbers of a point."""


def _check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    del attributes
    for name in INDICES:
        for block in facts.blocks(inputs[name].shape):
            check_labels(name, facts.read(inputs[name], block), facts.shapes["xyz1"][1])


def _held(facts: Facts, _: Any) -> int:
    points = facts.shapes["xyz1"][1]
    return 128 * points if PLANE * points > BLOCK else 0


@operator(
    "aclnnChamferDistanceBackward",
    Input("xyz1", "points, (B, N, 2)"),
    Input("xyz2", "other points, as many"),
    Input("idx1", "the nearest of xyz2 for each of xyz1, (B, N)", as_is=True),
    Input("idx2", "the nearest of xyz1 for each of xyz2", as_is=True),
    Input("grad_dist1", "gradient of the squares of distances of xyz1, (B, N)"),
    Input("grad_dist2", "gradient of those of xyz2"),
    Output("grad_xyz1", "gradient of xyz1", "xyz1", "xyz1"),
    Output("grad_xyz2", "gradient of xyz2", "xyz1", "xyz1"),
    products=dict.fromkeys((A2, A3, ASCEND_950), HALF_AND_SINGLE),
    checks=(
        rules.present(*POINTS, *INDICES, *DISTANCES, *GRADIENTS),
        rules.supported(*POINTS),
        *(rules.dtype_in(name, INT32) for name in INDICES),
        rules.supported(*DISTANCES, *GRADIENTS),
        # What follows is the service's: the software looks at no shape.
        rules.same_dtype(*POINTS[1:], *DISTANCES, *GRADIENTS, as_="xyz1"),
        rules.rank_is("xyz1", 3),
        rules.requires(
            "points of two numbers",
            "xyz1",
            holds=lambda draft: draft.shape("xyz1")[-1] == PLANE,
            found=lambda draft: f"shape {draft.shape('xyz1')}",
        ),
        rules.same_shape("xyz2", "xyz1"),
        rules.shape_of("xyz1", into="distances", make=lambda draft: draft.shape("xyz1")[:-1]),
        *(rules.same_shape(name, "distances", "(B, N)") for name in (*INDICES, *DISTANCES)),
        *(rules.same_shape(name, "xyz1") for name in GRADIENTS),
        rules.succeed_if_empty("xyz1"),
    ),
    kernel_dtype=rules.always(FLOAT),
    over=at_once(holds=_held),
    values=Values(INDICES, _check, lambda facts: range(facts.shapes["xyz1"][1])),
    sample=Sample(dict.fromkeys(POINTS, (2, 3, 2)), dict.fromkeys(INDICES, INT32)),
    area="losses",
    source="ops-nn loss/chamfer_distance_grad: page aclnnChamferDistanceBackward, its checks "
    "[src:chamfer]",
)
def chamfer_distance_backward(
    facts: Facts,
    xyz1: Array,
    xyz2: Array,
    idx1: Array,
    idx2: Array,
    grad_dist1: Array,
    grad_dist2: Array,
) -> tuple[AnyArray, AnyArray]:
    """Gradients of the squares of distances between points and their nearest ones.

    With d1[i] = xyz1[i] - xyz2[idx1[i]] and d2[j] = xyz2[j] - xyz1[idx2[j]]::

        grad_xyz1[i] = 2 * grad_dist1[i] * d1[i] - sum of 2 * grad_dist2[j] * d2[j], idx2[j] = i
        grad_xyz2[j] = 2 * grad_dist2[j] * d2[j] - sum of 2 * grad_dist1[i] * d1[i], idx1[i] = j

    Products are computed in float32, sums in float64, and rounded once. An index of no point is
    refused when the call runs (161002): a device would read and write foreign memory. Both sets
    have as many points, as the page's shapes say.

    As the gradient of ``(xyz1 - xyz2[idx1]).square().sum(-1)`` and of its twin in torch.
    """
    count = xyz1.shape[1]
    outs = [facts.output(name, xyz1.shape) for name in GRADIENTS]

    def compute(lead: tuple[slice, ...]) -> None:
        own = [facts.read(each, lead) for each in (xyz1, xyz2)]
        places = [np.asarray(facts.read(each, lead), np.int64) for each in (idx1, idx2)]
        batch = np.arange(len(own[0]))[:, np.newaxis]
        pulls = []
        for name, place, one, other, upstream in zip(
            INDICES, places, own, own[::-1], (grad_dist1, grad_dist2), strict=True
        ):
            check_labels(name, place, count)
            factors = 2 * facts.read(upstream, lead)[..., np.newaxis]
            pulls.append(factors * (one - other[batch, place]))
        places = [place + count * batch for place in places]  # among all of these batches
        for out, pull, other, place in zip(outs, pulls, pulls[::-1], places[::-1], strict=True):
            total = pull.astype(np.float64)
            for axis in range(PLANE):
                weights = other[..., axis].reshape(-1)
                back = np.bincount(place.reshape(-1), weights, prod(place.shape))
                total[..., axis] -= back.reshape(place.shape)
            out[lead] = total

    facts.each(cut(xyz1.shape[:1], max(BLOCK // max(PLANE * count, 1), 1)), compute)
    return outs[0], outs[1]
