"""Attention in loops and in arrays, for its statement and that of its gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, INT32
from npucall.errors import AclnnStatus, ArgumentError, AttributeValueError, DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import FLOAT_INSIDE, Arguments, Reals
from npucall_conformance.stating.domains import Draw
from npucall_conformance.stating.parts import Attributes, Invalid, Setup

TILING: dict[str, Any] = {"status": AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR}
LOWEST = -3.4028234663852886e38
"""The lowest FLOAT: the score of what is masked."""
LANES = 8
EVERY = 2**31 - 1
LAYOUTS = ("BNSD", "BSH", "SBH", "BSND")
_ORDERS = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}
"""Of items, heads, rows and elements."""
_HALF_ERRORS = {FLOAT16: 2.0**13, BF16: 2.0**16}
"""What rounding a factor of each term to the kernel's dtype may cost, in units of 2^-24."""


def arranged(shape: Shape, layout: str) -> Shape:
    """The extents (B, N, S, D) in the order of a layout."""
    moved = tuple(shape[axis] for axis in _ORDERS[layout])
    return (*moved[:2], moved[2] * moved[3]) if layout.endswith("H") else moved


def in_heads(array: Any, layout: str, heads: int) -> Reals:
    """A tensor as (B, N, S, D)."""
    if layout.endswith("H"):
        array = array.reshape(*array.shape[:2], heads, -1)
    found: Reals = np.transpose(array, np.argsort(_ORDERS[layout]))
    return found


def in_layout(array: Any, layout: str) -> Reals:
    """(B, N, S, D) as a tensor of a layout."""
    moved: Reals = np.transpose(array, _ORDERS[layout])
    return moved.reshape(*moved.shape[:2], -1) if layout.endswith("H") else moved


def shapes(key: str, base: Shape, attributes: Attributes) -> dict[str, Shape]:
    """From (B, N, S, D): keys have a row more and half as many heads if they are even."""
    items, heads, rows, width = base
    layout, few = attributes["input_layout"], heads // 2 if heads % 2 == 0 else heads
    narrow = max(width - 1, 1)
    mask = (2048, 2048) if attributes["sparse_mode"] > 1 else (rows, rows + 1)
    return {
        "query": arranged(base, layout),
        key: arranged((items, few, rows + 1, width), layout),
        "value": arranged((items, few, rows + 1, narrow), layout),
        "dy": arranged((items, heads, rows, narrow), layout),
        "attention_in": arranged((items, heads, rows, narrow), layout),
        "bias": (1, heads, rows, rows + 1),
        "atten_mask": mask,
        "statistics": (items, heads, rows, LANES),
    }


class Scores:
    """A call's tensors as (B, N, S, D), each head of keys as often as it serves."""

    def __init__(self, values: Any, key: str, bias: str) -> None:
        layout, heads = values["input_layout"], values["head_num"]
        self.layout, self.scale = layout, values["scale_value"]
        self.query = in_heads(values["query"], layout, heads)
        width = self.query.shape[3]
        few = values[key].shape[-1] // width if layout.endswith("H") else None
        keys, own = (in_heads(values[name], layout, few or 0) for name in (key, "value"))
        self.group = heads // keys.shape[1]
        self.few = keys.shape[1]
        self.key, self.value = (np.repeat(each, self.group, 1) for each in (keys, own))
        self.bias, self.late_bias = values[bias], values.get("pse_type", 1) == 0
        self.rows, self.columns = self.query.shape[2], self.key.shape[2]
        self._band(values)

    def _band(self, values: Any) -> None:
        mask, mode = values["atten_mask"], values["sparse_mode"]
        shape = (*self.query.shape[:3], self.columns)
        i, j = np.ogrid[: self.rows, : self.columns]
        last = self.columns - self.rows
        before, after = values["pre_tokens"], values["next_tokens"]
        sees = {
            0: (j >= i - before) & (j <= i + after),
            1: np.full((self.rows, self.columns), fill_value=True),
            2: j <= i,
            3: j <= i + last,
            4: (j >= i - before + last) & (j <= i + after + last),
        }[mode if mask is not None else 1]
        self.hidden = np.broadcast_to(~sees, shape).copy()
        self.blind = np.broadcast_to(~sees.any(-1), shape[:3]).copy()
        if mask is not None and mode < 2:  # those that look at the mask
            dense = np.asarray(mask, bool)
            self.hidden |= dense
            if values["inner_precise"] == 2:  # the number of the page
                self.blind |= self.hidden.all(-1)

    @cached_property
    def scores(self) -> tuple[Reals, Reals]:
        """All scores, and the size of what they are sums of."""
        sums, sizes = (
            self.query @ self.key.swapaxes(2, 3),
            np.abs(self.query) @ np.abs(self.key.swapaxes(2, 3)),
        )
        if self.bias is not None:
            bias = self.bias / self.scale if self.late_bias else self.bias
            sums, sizes = sums + bias, sizes + np.abs(bias)
        found = np.where(self.hidden, LOWEST, sums * self.scale)
        return found, np.where(self.hidden, 0.0, np.abs(sizes * self.scale))

    def score(self, place: tuple[int, int, int], column: int) -> float:
        """One score, in Python."""
        item, head, row = place
        if self.hidden[item, head, row, column]:
            return LOWEST
        pairs = zip(self.query[place].tolist(), self.key[item, head, column].tolist(), strict=True)
        total = reals.total([x * y for x, y in pairs])
        bias = 0.0
        if self.bias is not None:
            bias = float(np.broadcast_to(self.bias, self.hidden.shape)[item, head, row, column])
        return total * self.scale + bias if self.late_bias else (total + bias) * self.scale

    def places(self) -> Iterator[tuple[int, int, int]]:
        """Item, head and row of each query."""
        return iter(np.ndindex(self.query.shape[:3]))

    def summed(self, array: Reals) -> Reals:
        """What belongs to heads of keys, summed over the heads of queries that share one."""
        items, _, rows, width = array.shape
        found: Reals = array.reshape(items, self.few, self.group, rows, width).sum(2)
        return found

    def forward(self) -> tuple[Reals, Reals, Reals]:
        """Maxima and sums of the rows, and the result as (B, N, S, D)."""
        scores, _ = self.scores
        maxima = scores.max(-1, keepdims=True)
        power = np.exp(scores - maxima)
        sums = power.sum(-1, keepdims=True)
        blind = self.blind[..., np.newaxis]
        result = np.where(blind, 0.0, power @ self.value / sums)
        return np.where(blind, LOWEST, maxima), np.where(blind, -LOWEST, sums), result

    def by_torch(self, torch: Any, query: Any, key: Any, value: Any) -> Any:
        """The result by torch's own attention, of these tensors in place of the call's."""
        factor = 1.0 if self.late_bias else self.scale
        bias = np.where(self.hidden, -np.inf, 0 if self.bias is None else self.bias * factor)
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=torch.from_numpy(bias), scale=self.scale
        )


def of_numpy(values: Any) -> dict[str, Any]:
    """A call's arguments, tensors of torch as arrays."""
    return {n: v.numpy() if hasattr(v, "numpy") else v for n, v in values.items()}


def cost(k: Arguments) -> float:
    """Sums in FLOAT; of halves a factor of each term is rounded to them."""
    return FLOAT_INSIDE + 2 * _HALF_ERRORS.get(k.kernel, 0.0)


def least(k: Arguments) -> float:
    """The smallest normal number of the kernel's dtype, below which factors lose digits."""
    return 2.0 ** (k.kernel.least_exponent)


def hides(draw: Draw) -> Any:
    """A third is masked; no row everywhere."""
    hidden = draw.random.random(draw.shape) < 1 / 3
    hidden[..., 0] = False
    return hidden


def _forward(draw: Draw) -> tuple[Reals, Reals, Reals]:
    """What the forward operator gives for what was drawn."""
    return Scores(draw.earlier, "key_in", "pse_shift").forward()


def maxima(draw: Draw) -> Any:
    return np.broadcast_to(_forward(draw)[0], draw.shape)


def sums(draw: Draw) -> Any:
    return np.broadcast_to(_forward(draw)[1], draw.shape)


def result(draw: Draw) -> Any:
    return in_layout(_forward(draw)[2], draw["input_layout"])


def _sized(count: int, width: int) -> Shape:
    return (max(count // (16 * width), 1), 1, 16, width)


ATTRIBUTES: dict[str, Any] = {
    "scale_value": (0.5, 1.25),
    "head_num": (lambda base: base[1],),
    "input_layout": LAYOUTS,
    "sparse_mode": (1, 0),
    "pre_tokens": (2,),
    "next_tokens": (1,),
    "inner_precise": (0,),
}
DEFAULTS: dict[str, Any] = {
    "prefix": None, "scale_value": 1.0, "keep_prob": 1.0, "pre_tokens": EVERY,
    "next_tokens": EVERY, "head_num": 1, "input_layout": "BNSD", "inner_precise": 0,
    "sparse_mode": 0,
}  # fmt: skip
BLIND = ((1, 1, 0, 1), (1, 1, 1, 1), (0, 1, 1, 0))
"""A mask that leaves the second of three rows nothing."""
EDGES = (
    *(
        Setup(
            f"nothing-left-{number}", (2, 2, 3, 4), values={"atten_mask": BLIND},
            attributes={"inner_precise": number, "sparse_mode": 1},
        )
        for number in (0, 1, 2)
    ),
    *(
        Setup(
            f"band-{mode}-{before}-{after}", (1, 2, 6, 3),
            {"atten_mask": (2048, 2048) if mode > 1 else (6, 7)},
            attributes={
                "sparse_mode": mode, "pre_tokens": before, "next_tokens": after,
                "input_layout": LAYOUTS[(before + after) % 4], "scale_value": 0.75,
            },
        )
        for mode, before, after in (
            (0, 0, 0), (0, 2, -1), (0, -1, 3), (0, EVERY, EVERY), (2, 0, 0), (3, 0, 0), (4, 1, 1),
            (4, 3, -1), (4, -2, 4),
        )
    ),
)  # fmt: skip
SIZES: dict[str, Any] = {
    "base_shapes": ((1, 2, 3, 4), (2, 3, 5, 3), (1, 4, 7, 2)),
    "layout_shape": (2, 2, 3, 4),
    "rank_shapes": ((1, 1, 1, 1), (2, 1, 1, 3)),
    "empty_shapes": (),
    "defaulted": Setup(
        base=(2, 1, 3, 4),
        values={"atten_mask": BLIND},
        attributes={"sparse_mode": 0},
        absent=("",),
    ),
    "large_shape": (3, 8, 67, 64),
    "large": (
        Setup("many-rows", (1, 1, 1100, 3), only=(FLOAT,), absent=("",)),
        Setup("many-heads", (3, 40, 37, 23), only=(FLOAT,)),
        Setup("wide", (2, 2, 83, 300), only=(FLOAT,)),
    ),
    "sized": lambda count: _sized(count, min(max(count // 16, 1), 256)),
    "fitted": lambda base: tuple(max(extent, 1) for extent in base),
}


def stretched(bias: str) -> tuple[Setup, ...]:
    """Masks and biases of all their shapes."""
    shapes = [("atten_mask", each) for each in ((2, 1, 3, 4), (1, 1, 3, 4), (2, 2, 3, 4))]
    shapes += [(bias, each) for each in ((2, 2, 3, 4), (1, 2, 3, 4), (2, 2, 1, 4))]
    return tuple(
        Setup(f"{name.replace('_', '-')}-{'x'.join(map(str, shape))}", (2, 2, 3, 4), {name: shape})
        for name, shape in shapes
    )


def wrong_widths(key: str) -> tuple[Invalid, ...]:
    """Rows of the checks of widths; (2, 2, 3, 4) and (2, 1, 4, 4) are queries and keys."""
    heads: dict[str, Any] = {"base": Setup(attributes={"input_layout": "BSH"}), "alone": True}
    return (
        *defects.shapes("query", (2, 3, 1), blames=("query", key), **heads),
        *defects.shapes(key, (2, 4, 3), blames=("query", key), **heads),
        *defects.shapes(key, (2, 1, 4, 5), blames=(key, "query")),
        *defects.shapes("value", (2, 1, 4, 5), blames=("value", key)),
        Invalid(
            "too-wide", {"query": {"shape": (2, 2, 3, 769)}, key: {"shape": (2, 1, 4, 769)}},
            ("query",), ShapeError, alone=True,
        ),
    )  # fmt: skip


def wrong_sizes(
    key: str, bias: str, dtypes: tuple[Invalid, ...] = (), others: tuple[str, ...] = ()
) -> tuple[Invalid, ...]:
    """Rows of the checks of the kernel."""
    heads: dict[str, Any] = {
        "base": Setup(attributes={"input_layout": "BSH"}), "alone": True, **TILING
    }  # fmt: skip
    return (
        *(
            Invalid(f"dtype-all-{found.name.lower()}",
                    {n: {"dtype": found} for n in ("query", key, "value", *others, bias)},
                    ("query",), DTypeError)
            for found in (DOUBLE, INT32)
        ),
        *_shapes(key, (3, 1, 4, 4), blames=(key, "value", "query"), **TILING),
        *_shapes("query", (2, 3, 9), blames=("head_num", "query"), error=AttributeValueError,
                 **heads),
        Invalid("heads-3", {"head_num": 3}, ("head_num", "query"), AttributeValueError, **TILING),
        Invalid(
            "heads-that-share-unequally",
            {key: {"shape": (2, 3, 4, 4)}, "value": {"shape": (2, 3, 4, 3)}}, (key, "query"),
            ShapeError, **TILING,
        ),
        *_shapes("value", (2, 2, 4, 3), (2, 1, 5, 3), blames=("value", key), **TILING),
        *_shapes(key, (2, 4, 9), blames=(key, "value"), **heads),
        *dtypes,
        Invalid("no-rows", {"query": {"shape": (2, 2, 0, 4)}}, ("query", key, "value"), ShapeError,
                **TILING),
        *_shapes(bias, (2, 2, 3, 5), (2, 3, 4), (1, 2, 1, 4), **TILING),
        *left_out(),
        *_shapes("atten_mask", (3, 5), (2, 2, 4), (2, 3, 3, 4), (2048, 2048), **TILING),
        *wrong_tokens(),
    )  # fmt: skip


def left_out() -> tuple[Invalid, ...]:
    """Rows of what the reference does not compute."""
    return (
        *(
            Invalid(f"keep-{p}", {"keep_prob": p}, ("keep_prob",), AttributeValueError, **TILING)
            for p in (0.9, 0.0, math.nan)
        ),
        Invalid("drop-mask", {"drop_mask": {"shape": (32,)}}, ("drop_mask",), ArgumentError,
                base=Setup(shapes={"drop_mask": (32,)}), **TILING),
        Invalid("padding-mask", {"padding_mask": {"shape": (3,)}}, ("padding_mask",), ArgumentError,
                base=Setup(shapes={"padding_mask": (3,)}), **TILING),
        Invalid("prefix", {"prefix": [1, 1]}, ("prefix",), ArgumentError, **TILING),
        *(
            Invalid(f"mode-{m}", {"sparse_mode": m}, ("sparse_mode",), AttributeValueError,
                    **TILING)
            for m in (5, -1)
        ),
        *defects.dtypes("atten_mask", found=FLOAT, **TILING),
    )  # fmt: skip


def wrong_tokens() -> tuple[Invalid, ...]:
    """Rows of masks and bands that do not belong together."""
    return (
        Invalid("mask-not-compressed", {"sparse_mode": 2}, ("atten_mask",), ShapeError, **TILING),
        *(
            Invalid(
                f"tokens-{before}-{after}",
                {"pre_tokens": before, "next_tokens": after, "sparse_mode": 0},
                ("pre_tokens", "next_tokens"), AttributeValueError, **TILING,
            )
            for before, after in ((-1, -1), (-4, 9), (-2, 1), (9, -3), (1, -2))
        ),
    )  # fmt: skip


def _shapes(
    name: str, *found: Shape, blames: Any = (), error: Any = ShapeError, **more: Any
) -> Any:
    return tuple(
        Invalid(f"kernel-{name}-{'x'.join(map(str, shape))}", {name: {"shape": shape}},
                blames or (name,), error, **more)
        for shape in found
    )  # fmt: skip
