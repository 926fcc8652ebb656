"""Gradient of a bias that the rows of each group share; its second version takes counts, too."""

from __future__ import annotations

from collections.abc import Mapping
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
from npucall.errors import PARAM_INVALID, ArgumentError
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

MOST = 2048
"""Groups whose rows ``group_idx`` tells."""
COUNTS = 1
"""The ``group_idx_type`` of numbers of rows; 0 is of ends."""
GRAD_Y = Input("grad_y", "gradient of the rows, (rows, H); without group_idx (G, rows, H)")
GROUPS = Input(
    "group_idx", "where the rows of each group end, (G,)", optional=True, as_is=True,
    c_name="groupIdxOptional",
)  # fmt: skip
OUT = Output("out", "gradient of the bias of each group, (G, H)", "groups", "grad_y")
WITHOUT = (rules.rank_is("grad_y", 3), "without group_idx")
TYPE = Attribute("group_idx_type", Kind.INT64, "0: group_idx has ends; 1: numbers of rows")


def _grouped(draft: Draft) -> bool:
    return not draft.absent("group_idx")


def _groups(draft: Draft) -> Shape:
    shape = draft.shape("grad_y")
    return (draft.shape("group_idx")[0] if _grouped(draft) else shape[0], shape[-1])


CHECKS = (
    rules.present("grad_y", "out"),
    rules.supported("grad_y", "out"),
    rules.same_dtype("out", as_="grad_y"),
    rules.dtype_in("group_idx", INT32, INT64),
    rules.when(lambda draft: not _grouped(draft), *WITHOUT),
    rules.when(_grouped, rules.rank_is("grad_y", 2), "with group_idx"),
    rules.rank_is("group_idx", 1),
    rules.requires(
        f"at most {MOST} groups",
        "group_idx",
        holds=lambda draft: not _grouped(draft) or draft.shape("group_idx")[0] <= MOST,
        found=lambda draft: draft.shape("group_idx")[0],
    ),
    rules.rank_is("out", 2),
    rules.shape_of("grad_y", into="groups", make=_groups),
    rules.same_shape("out", "groups", "(G, H)"),
)


def ends_of(facts: Facts, groups: Array, kind: int, rows: int) -> AnyArray:
    """Where the rows of each group end; raises ArgumentError unless they have all rows."""
    given = np.asarray(facts.read(groups, ...), np.int64)
    ends = np.cumsum(given) if kind == COUNTS else given
    wrong = np.flatnonzero((np.diff(ends, prepend=0) < 0) | (given > rows))
    if wrong.size or ends[-1:].sum() != rows:
        expected = "numbers that add up" if kind == COUNTS else "ends that rise"
        last = f"{given[wrong[0]]} of group {wrong[0]}" if wrong.size else f"{ends[-1:].sum()}"
        raise ArgumentError(
            f"group_idx: expected {expected} to {rows}, the rows of grad_y, found {last}",
            parameter="group_idx",
            aclnn_status=PARAM_INVALID,
        )
    return ends


def _check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    rows = facts.first("grad_y")
    ends_of(facts, inputs["group_idx"], attributes.get("group_idx_type", 0), rows)


def _values(most: int) -> Values:
    """All rows are a valid end of up to so many groups, and a valid number of rows of one."""

    def passes(facts: Facts) -> range:
        rows = facts.first("grad_y")
        return range(rows, rows + (facts.first("groups") in range(1, most + 1)))

    return Values(("group_idx",), _check, passes)


COMMON: dict[str, Any] = {
    "products": dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    "kernel_dtype": rules.dtype_of("grad_y"),
    "over": at_once(holds=lambda facts, _: DOUBLE.itemsize * facts.count("groups")),
    "sample": Sample({"grad_y": (2, 4, 3)}, without=("group_idx",)),
    "area": "mixtures of experts",
}
SOURCE = "ops-math math/grouped_bias_add_grad: page {}, its checks [src:grouped-bias-add-grad]"


@operator(
    "aclnnGroupedBiasAddGrad",
    GRAD_Y,
    GROUPS,
    OUT,
    checks=(*CHECKS, rules.succeed_if_empty("grad_y")),
    values=_values(MOST),
    source=SOURCE.format("aclnnGroupedBiasAddGrad"),
    **COMMON,
)
def grouped_bias_add_grad(facts: Facts, grad_y: Array, group_idx: Array | None = None) -> AnyArray:
    """Sums of the rows of each group.

    ::

        out[g] = sum of grad_y[group_idx[g - 1] : group_idx[g]]
        out[g] = sum of grad_y[g] over its rows                     without group_idx

    The first group begins with row 0. The numbers of ``group_idx`` must rise, or stay, up to the
    number of rows, which is checked when the call runs: a device would read foreign memory. Sums
    are taken in float64 and rounded once. Without rows the result is 0.

    As ``torch.segment_reduce(grad_y, "sum", ...)``.
    """
    return sums(facts, grad_y, group_idx, 0)


@operator(
    "aclnnGroupedBiasAddGradV2",
    GRAD_Y,
    GROUPS,
    TYPE,
    OUT,
    checks=(*CHECKS, rules.one_of("group_idx_type", 0, COUNTS), rules.succeed_if_empty("grad_y")),
    values=_values(1),
    source=SOURCE.format("aclnnGroupedBiasAddGradV2"),
    **COMMON,
)
def grouped_bias_add_grad_v2(
    facts: Facts, grad_y: Array, group_idx: Array | None = None, group_idx_type: int = 0
) -> AnyArray:
    """``grouped_bias_add_grad``, whose groups may be told by their numbers of rows.

    ::

        out[g] = sum of the rows of group g

    ``group_idx_type`` 0: ``group_idx`` has the ends of the groups. 1: it has the number of rows of
    each, which add up to the rows of ``grad_y``. All else is as there.
    """
    return sums(facts, grad_y, group_idx, group_idx_type)


def sums(facts: Facts, grad: Array, groups: Array | None, kind: int) -> AnyArray:
    """The sums of groups in float64."""
    totals = np.zeros(facts.shapes["groups"])
    ends = None if groups is None else ends_of(facts, groups, kind, grad.shape[0])

    def compute(index: tuple[slice, ...]) -> tuple[Any, AnyArray]:
        block = facts.read(grad, index)
        if ends is None:
            return index[0], np.add.reduce(block, 1, np.float64)
        own = np.searchsorted(ends, np.arange(index[0].start, index[0].stop), side="right")
        starts = np.flatnonzero(np.diff(own, prepend=-1))
        return own[starts], np.add.reduceat(block, starts, 0, np.float64)

    def add(index: tuple[slice, ...], part: tuple[Any, AnyArray]) -> None:
        totals[part[0], index[-1]] += part[1]

    facts.each(cut(grad.shape, BLOCK), compute, add)
    return totals
