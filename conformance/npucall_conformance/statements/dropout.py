"""aclnnDropoutDoMask and aclnnDropoutBackward [src:dropout]."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, FLOAT16, FLOATS, INT8, UINT8
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import integers, normal
from npucall_conformance.stating.parts import Attributes, In, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rounding import nearest
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on
from npucall_conformance.stating.written import WrittenCall, of

NAN, INF = reals.NAN, reals.INFINITY
TAKES = {**FLOATS_WITH_BFLOAT16, **on(("Ascend910",), FLOAT, FLOAT16)}
MASK = In("mask", integers(0, 255), dtypes=(UINT8,))


def length(shape: Shape) -> int:
    return (prod(shape) + 127) // 128 * 16


def after_prob(k: Arguments) -> float:
    return 1.0 - float(k["prob"])


def by_scale(k: Arguments) -> float:
    return 1.0 / float(k["scale"]) if k["scale"] else 0.0


def share(k: Arguments, keep: float) -> float:
    """The share that stays, as the kernel has it."""
    return float(nearest(keep, FLOAT, k.kernel))


def loops(x: Any, mask: Any, keep: float, share: float) -> Any:
    data, found = [int(byte) for byte in mask.reshape(-1).tolist()], []
    for number, each in enumerate(x.reshape(-1).tolist()):
        stays = keep == 1 or (keep and data[number // 8] // 2 ** (number % 8) % 2)
        found.append(each / share if stays else 0.0)
    return np.reshape(np.array(found, np.float64), x.shape)


def arrays(x: Any, mask: Any, keep: float, share: float) -> Terms:
    if keep in (0, 1):
        return Terms(x * 1.0 if keep else np.zeros(x.shape))
    bits = np.unpackbits(mask.astype(np.uint8).reshape(-1), bitorder="little")
    kept = bits[: x.size].reshape(x.shape) == 1
    return Terms(np.where(kept, x / share, 0.0))


def torch_says(k: Arguments, torch: Any) -> Any:
    del torch
    return None  # its own mask is no tensor of bits


COMMON: dict[str, Any] = {
    "takes": TAKES,
    "legacy": (),
    "torch": torch_says,
    "large_shape": (331, 307),
    "large": (Setup("many-rows", (50_021, 3)), Setup("long-rows", (3, 50_021))),
}


def statement(
    name: str,
    x: str,
    number: str,
    keep: Callable[[Arguments], float],
    values: tuple[float, ...],
    **more: Any,
) -> Statement:
    """Of one of the two."""

    def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
        return {x: base, "mask": (length(base),)}

    c_name = "gradOutput" if x == "grad_output" else x
    invalid = (
        *defects.nulls(x, "mask", "out"),
        *defects.uncastable("out"),
        *defects.dtypes(x, found=DOUBLE),
        *defects.no_bfloat16(x),
        *defects.dtypes("mask", found=INT8),
        *defects.dtypes("mask", found=BOOL),
        *more.pop("wrong"),
        *defects.ranks(x, "mask", "out"),
        *defects.shapes("out", (4, 3), (1, 3, 4)),
        *defects.shapes("mask", (15,), *more.pop("longer"), blames=("mask", x)),
    )
    return Statement(
        name,
        (In(x, normal()), MASK),
        (Out("out", shape=x, dtype=x),),
        prototype=f"const aclTensor* {c_name}, const aclTensor* mask, double {number}, "
        "aclTensor* out",
        loops=lambda k: loops(k[x], k["mask"], keep(k), share(k, keep(k))),
        arrays=lambda k: arrays(k[x], k["mask"], keep(k), share(k, keep(k))),
        shapes=shapes,
        kernel=dtype_of(x),
        attributes={number: values},
        faint=lambda k: () if keep(k) else ("out",),
        mixed=tuple(Setup(dtypes={x: one, "out": other}) for one in FLOATS for other in FLOATS),
        edges=(
            Setup("numbers", (8,), values={
                x: (INF, -INF, NAN, 0.0, -0.0, 1e30, -2.0, 3.0), "mask": [0b10111111] * 16,
            }, only=(FLOAT,)),
        ),
        invalid=invalid,
        npu="torch_npu calls it where it has drawn the mask itself",
        **COMMON,
        **more,
    )  # fmt: skip


DROPOUT_DO_MASK = statement(
    "aclnnDropoutDoMask", "self", "prob", after_prob, (0.5, 0.0, 1.0, 0.75),
    wrong=defects.values("prob", -0.1, 1.5, NAN),
    longer=(),
    empty_before="cast-out-int32",
    written=(
        WrittenCall("a-share-of-bfloat16",
                    {"self": of(BF16, 1, 3), "mask": of(UINT8, 2, *[0] * 15)},
                    (of(BF16, 0, 3.34375),), {"prob": 0.1}),
    ),
)  # fmt: skip

DROPOUT_BACKWARD = statement(
    "aclnnDropoutBackward", "grad_output", "scale", by_scale, (2.0, 1.0, 0.0, 4.0),
    wrong=defects.values("scale", -1.0, 0.5, INF, NAN),
    longer=((17,), (32,)),
    reductions=(Setup("a-share-that-is-rounded", attributes={"scale": 3.75}),),
)  # fmt: skip
