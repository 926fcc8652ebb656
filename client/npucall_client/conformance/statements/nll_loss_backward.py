"""aclnnNLLLossBackward, operators.md 2.1, rank 3, and 2.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, INT8
from npucall.errors import DTypeError, ShapeError
from npucall_client.conformance import defects
from npucall_client.conformance.statement import (
    WITHOUT_BFLOAT16,
    Invalid,
    Out,
    Setup,
    Statement,
    dtype_of,
)
from npucall_client.conformance.statements import _nll_loss as nll

if TYPE_CHECKING:
    from npucall.tensors import Shape
    from npucall_client.conformance.statement import Attributes


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    rows = base[:-1]
    return {
        "grad_output": rows if attributes["reduction"] == 0 else (),
        "self": base,
        "target": rows,
        "weight": base[-1:],
        "total_weight": (1,),
    }


ONE_ROW = Setup(base=(4,))
SUM = Setup(attributes={"reduction": 2})

NLL_LOSS_BACKWARD = Statement(
    "aclnnNLLLossBackward",
    inputs=nll.INPUTS,
    outputs=(Out("out", shape="self", dtype="self"),),
    loops=nll.loops,
    arrays=nll.arrays,
    shapes=shapes,
    kernel=dtype_of("self"),
    torch=nll.torch_says("nll_loss_backward"),
    attributes=nll.ATTRIBUTES,
    base_shapes=((4, 6), (35, 3), (17,), (9, 33)),
    layout_shape=(5, 4),
    rank_shapes=((5,), (1,), (1, 1), (2, 3)),
    empty_shapes=((0,), (0, 3), (2, 0), (0, 0)),
    sized=lambda count: (max(count // 16, 1), 16),
    broadcast=(
        *(Setup(f"gradient-of-one-{r}", (3, 4), {"grad_output": (1,)}, attributes={"reduction": r})
          for r in (1, 2)),
        Setup("one-row", (5,), {"grad_output": (1,)}),
        Setup("one-row-one-label", (1,), {"target": (1,)}),
        *(Setup("total-weight", (3, 4), {"total_weight": shape}) for shape in ((), (1, 1, 1))),
    ),
    mixed=(*nll.outputs_of_other_dtypes(), Setup(dtypes={"out": DOUBLE})),
    edges=nll.edges((16,), (1,)),
    invalid=(
        *defects.nulls(*nll.TENSORS),
        *defects.dtypes("weight", "grad_output", "total_weight", found=nll.OTHER),
        *defects.uncastable("out"),
        Invalid("dtype-double-all", nll.all_of(DOUBLE), ("self",), DTypeError),
        Invalid("dtype-bf16-all", nll.all_of(BF16), ("self",), DTypeError,
                products=WITHOUT_BFLOAT16),
        *(row for found in (INT8, BOOL, FLOAT) for row in defects.dtypes("target", found=found)),
        *defects.values("reduction", 3, 7, -1, 2**32, block="reduction"),
        *defects.shapes("self", (2, 3, 4), ()),
        *defects.shapes("target", (5, 1), (4,), (1,), ()),
        Invalid("one-row-four-labels", {"target": {"shape": (4,)}}, ("target",), ShapeError,
                base=ONE_ROW),
        *defects.shapes("weight", (5,), (1,), (1, 4), ()),
        *defects.shapes("total_weight", (2,), (0,)),
        *defects.shapes("grad_output", (4,), (1,), (), (5, 1)),
        Invalid("gradients-summed", {"grad_output": {"shape": (5,)}}, ("grad_output",), ShapeError,
                base=SUM),
        Invalid("gradient-of-rank-2", {"grad_output": {"shape": (1, 1)}}, ("grad_output",),
                ShapeError, base=SUM),
        Invalid("one-row-gradients", {"grad_output": {"shape": (4,)}}, ("grad_output",),
                ShapeError, base=ONE_ROW),
        *defects.shapes("out", (4, 5), (5,), (1, 5, 4)),
    ),
)  # fmt: skip
