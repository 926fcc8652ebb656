"""aclnnAdd and aclnnSub [src:add-sub]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BOOL, COMPLEX64, DOUBLE, INT8, INT32
from npucall.errors import DTypeError
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.statements import _written_arithmetic as written
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    EVEN,
    SIGNS,
    Invalid,
    Setup,
    crossed,
    halfway,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import ARITHMETIC_EVERYWHERE
from npucall_conformance.stating.written import WrittenCall

PAIR = shared.PAIR
WHOLE = {"alpha": 1}
"""A number that every dtype takes."""


def statement(
    operator: str, sign: float, legacy: tuple[str, ...], results: tuple[WrittenCall, ...]
) -> Statement:
    """``legacy`` is a field of it, and ``results`` are written."""

    def scalar(k: Arguments, s: float, o: float) -> float:
        total = s + (o if k["alpha"] == 1 else o * k["alpha"]) * sign
        if k.kernel is BOOL:
            return float(bool(s) or bool(total)) if sign > 0 else float(total != 0)
        return total

    def vector(k: Arguments, s: Any, o: Any) -> Any:
        scaled = k["alpha"] * o
        if k.kernel is BOOL:
            return np.where(sign > 0, np.maximum(s, scaled), np.not_equal(s, scaled))
        return np.subtract(s, -sign * scaled), np.abs(s) + np.abs(scaled)

    torch_name = "add" if sign > 0 else "sub"

    def torch_says(k: Arguments, torch: Any) -> Any:
        return getattr(torch, torch_name)(k["self"], k["other"], alpha=k["alpha"])

    return elementwise(
        operator,
        prototype=(
            "const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out"
        ),
        takes=ARITHMETIC_EVERYWHERE,
        legacy=legacy,
        in_kernel=("alpha",),
cost=lambda k: 0 if k["alpha"] == 1 else 1,
        inputs=shared.operands(),
        output=shared.result(promotion(*PAIR)),
        scalar=scalar,
        vector=vector,
        space=PAIR,
        kernel=promotion(*PAIR),
        npu=aten(f"{torch_name}.Tensor", *PAIR, alpha="alpha"),
        torch=torch_says,
        attributes={"alpha": (1.0, -0.75)},
        mixed=(
            *mixed_floats(*PAIR, output="out"),
            *shared.beside(*shared.EVERY_PAIR, attributes=WHOLE),
            *shared.complex_pairs(),
            *shared.beside((INT32, INT8), attributes={"alpha": Scalar(INT8, 3)}),
            *shared.beside((DOUBLE, DOUBLE), attributes={"alpha": 0.1}),
            *shared.beside((BOOL, BOOL), attributes={"alpha": Scalar(BOOL, value=False)}),
        ),
        edges=(crossed(dict.fromkeys(PAIR, shared.EDGES)),),
        reductions=tuple(
            Setup(attributes={"alpha": alpha}) for alpha in (0.0, 2.0, Scalar(INT32, -3), 1e-3)
        ),
        halfway=halfway(
            {"self": EVEN, "other": tuple(sign * n for n in SIGNS)}, alpha=1.0
        ),
        written=results,
        invalid=(
            *defects.nulls(*PAIR, "alpha", "out"),
            *shared.listed(*PAIR),
            Invalid("complex-alpha", {"alpha": Scalar(COMPLEX64, 1)}, ("alpha",), DTypeError),
            Invalid(
                "alpha-of-integers",
                {"alpha": Scalar(DOUBLE, 1.0), **defects.all_of(INT32, *PAIR)}, ("alpha",),
                DTypeError,
            ),
            Invalid(
                "alpha-of-bool", {"alpha": Scalar(DOUBLE, 1.0), **defects.all_of(BOOL, *PAIR)},
                ("alpha",), DTypeError,
            ),
            *shared.complex_beside(),
            *defects.uncastable("out"),
            *defects.uncastable("out", BOOL),
            *shared.shapes(),
        ),
    )  # fmt: skip


ADD = statement("aclnnAdd", 1.0, ("Ascend310P", "Ascend310B"), written.ADD)
SUB = statement("aclnnSub", -1.0, ("Ascend310P",), written.SUB)
INPLACE_ADD = in_place(ADD, shapes_first=True, const=True)
INPLACE_SUB = in_place(SUB)
