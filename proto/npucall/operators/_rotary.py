"""Rotary position embedding: which elements of a row belong together, and what is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from npucall.declare import Attribute, Kind, rules
from npucall.declare.cuts import cut, shared_block
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Rule
from npucall.dtypes import FLOATS, AnyArray
from npucall.errors import TILING_ERROR
from npucall.operators._runs import runs_of, sliced
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

PRODUCTS = dict.fromkeys((A2, A3, ASCEND_950), FLOATS)
HALF, INTERLEAVE, QUARTER, INTERLEAVE_HALF = range(4)
MODE = Attribute("mode", Kind.INT64, "0 halves, 1 neighbours, 2 quarters, 3 neighbours as halves")
RANK = 4
WIDEST, NARROWER = 1024, 896
_MOST = 2
"""Blocks that are computed as one."""
_MOST_ITEMS, _MOST_SUMMED = 1000, 1024


class Turning(NamedTuple):
    """An element j of the result is ``x[order[j]] * cos[j] + sign[j] * x[partner[j]] * sin[j]``."""

    order: AnyArray
    partner: AnyArray
    sign: AnyArray


def picked(rows: AnyArray, order: AnyArray, factors: AnyArray) -> AnyArray:
    """Elements of each row, in an order that comes again and again, times factors."""
    runs = _runs(order.tobytes())
    if not runs:
        return rows[..., order] * factors
    return sliced(rows, len(order), runs, factors)


def put_back(
    rows: AnyArray, order: AnyArray, factors: AnyArray, out: AnyArray | None = None
) -> AnyArray:
    """The other way round: elements of each row, times factors, where an order has them from."""
    found = np.empty(rows.shape, rows.dtype) if out is None else out
    runs = _runs(order.tobytes())
    if not runs:
        found[..., order] = rows * factors
    for to, of in runs:
        np.multiply(rows[..., to], factors[..., to], out=found[..., of])
    return found


@lru_cache(64)
def _runs(order: bytes) -> Sequence[tuple[slice, slice]]:
    return runs_of(np.frombuffer(order, np.int64))


@lru_cache(64)
def turning(mode: int, width: int) -> Turning:
    """That of a mode, of rows of so many elements."""
    order = np.arange(width)
    if mode == INTERLEAVE:
        return Turning(order, order ^ 1, np.where(order % 2, 1, -1))
    if mode == INTERLEAVE_HALF:
        order = np.concatenate([order[::2], order[1::2]])
    part = width // 4 if mode == QUARTER else width // 2
    first = np.arange(width) // max(part, 1) % 2 == 0
    other = np.where(first, np.arange(width) + part, np.arange(width) - part)
    return Turning(order, order[other], np.where(first, -1, 1))


def rows(shape: Shape) -> Sequence[tuple[slice, ...]]:
    """Blocks of whole rows."""
    return cut(shape[:-1], max(1, shared_block(prod(shape), _MOST) // max(shape[-1], 1)))


def within(shape: Shape, index: tuple[slice, ...]) -> tuple[slice, ...]:
    """A block's place in cosines, which may have extents of 1."""
    return tuple(
        slice(0, 1) if extent == 1 else place for extent, place in zip(shape, index, strict=False)
    )


def checks(x: str, *, summed: bool) -> tuple[Rule, ...]:
    """What the tiling checks; ``x`` has the shape of the result. ``summed``: cos has a gradient."""
    return rules.with_status(
        TILING_ERROR,
        rules.rank_is(x, RANK),
        rules.same_rank("cos", "sin", as_=x),
        _shaped("elements", x, fits=lambda d: prod(d.shape(x)) > 0),
        rules.except_on((ASCEND_950,), rules.one_of("mode", HALF, INTERLEAVE)),
        rules.on((ASCEND_950,), rules.one_of("mode", *range(4))),
        _shaped(
            "rows of an even number of elements, in mode 2 of a multiple of 4", x,
            fits=lambda d: d.shape(x)[-1] % (4 if d.attribute("mode") == QUARTER else 2) == 0,
        ),
        _shaped(
            f"rows of at most {WIDEST} elements, of fewer than {NARROWER} but on Ascend950", x,
            fits=lambda d: d.shape(x)[-1] <= (NARROWER - 1 if _is_older(d) else WIDEST),
        ),
        rules.same_shape("sin", "cos"),
        _shaped(
            "a shape that broadcasts to that of the rows", "cos", x,
            fits=lambda d: all(
                own in (1, extent)
                for own, extent in zip(d.shape("cos")[:-1], d.shape(x)[:-1], strict=True)
            ) and d.shape("cos")[-1] == d.shape(x)[-1],
        ),
        rules.when(
            _is_older,
            _shaped(
                "1 along one or two of the first three dimensions, in mode 1 along two", "cos", x,
                fits=lambda d: _is_pattern(d, x),
            ),
            "not on Ascend950",
        ),
        rules.when(
            _is_older,
            _shaped(
                f"extents below {_MOST_ITEMS} where cos has 1"
                + f", and a product of at most {_MOST_SUMMED} of them" * summed, x,
                fits=lambda d: _is_few(d, x, summed=summed and not d.absent("x")),
            ),
            "not on Ascend950",
        ),
    )  # fmt: skip


def _is_older(draft: Draft) -> bool:
    return draft.product is not ASCEND_950


def _shaped(text: str, *names: str, fits: Callable[[Draft], bool]) -> Rule:
    return rules.requires(
        text,
        *names,
        holds=fits,
        found=lambda draft: (
            ", ".join(str(draft.shape(name)) for name in names)
            + f" in mode {draft.attribute('mode')}"
        ),
    )


def _ones(draft: Draft, x: str) -> list[int]:
    """The extents along which cos has 1."""
    pairs = zip(draft.shape("cos")[:-1], draft.shape(x)[:-1], strict=True)
    return [extent for own, extent in pairs if own == 1]


def _is_pattern(draft: Draft, x: str) -> bool:
    ones = _ones(draft, x)
    stretched = sum(extent > 1 for extent in ones)
    least = 2 if draft.attribute("mode") == INTERLEAVE else 1
    return len(ones) >= least and stretched < RANK - 1


def _is_few(draft: Draft, x: str, *, summed: bool) -> bool:
    extents = [extent for extent in _ones(draft, x) if extent > 1]
    return max(extents, default=0) < _MOST_ITEMS and not (summed and prod(extents) > _MOST_SUMMED)
