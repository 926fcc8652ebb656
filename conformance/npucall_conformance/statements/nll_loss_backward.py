"""aclnnNLLLossBackward [src:nll-loss]."""

from __future__ import annotations

import numpy as np

from npucall.dtypes import BF16, DOUBLE
from npucall.errors import DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _nll_loss as nll
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import HALFWAY, Attributes, Invalid, Out, Setup, halfway
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16, Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE


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
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weight, int64_t reduction, int64_t ignoreIndex, "
        "const aclTensor* totalWeight, aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend310P", "Ascend310B"),
    inputs=nll.INPUTS,
    outputs=(Out("out", shape="self", dtype="self"),),
    loops=nll.loops,
    arrays=nll.arrays,
    shapes=shapes,
    kernel=dtype_of("self"),
    cost=lambda k: 4 if k.scaled else 0,
    npu=aten("nll_loss_backward", *_npu.BOTH, *_npu.CLASSES, "total_weight"),
    torch=nll.torch_says("nll_loss_backward"),
    attributes=nll.ATTRIBUTES,
    base_shapes=((4, 6), (35, 3), (17,), (9, 33)),
    layout_shape=(5, 4),
    rank_shapes=((5,), (1,), (1, 1), (2, 3)),
    empty_shapes=((0,), (0, 3), (2, 0), (0, 0)),
    large_shape=(3169, 32),
    large=(Setup("many-rows", (50_021, 2)), Setup("long-rows", (2, 50_021)),
           Setup("one-row", (100_003,))),
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
    halfway=halfway(
        {
            "grad_output": np.array(HALFWAY), "self": 0.0, "target": np.zeros(len(HALFWAY)),
            "weight": np.array([1.5]), "total_weight": np.ones(1),
        },
        (len(HALFWAY), 1), reduction=0,
    ),
    written=written.NLL_LOSS_BACKWARD,
    invalid=(
        *defects.nulls(*nll.TENSORS),
        *defects.dtypes("weight", "grad_output", "total_weight", found=nll.OTHER),
        *defects.uncastable("out"),
        Invalid("dtype-double-all", nll.all_of(DOUBLE), ("self",), DTypeError),
        Invalid("dtype-bf16-all", nll.all_of(BF16), ("self",), DTypeError,
                products=WITHOUT_BFLOAT16),
        *(row for found in nll.NO_LABELS for row in defects.dtypes("target", found=found)),
        *defects.values("reduction", 3, 7, -1, 2**32, 2**32 + 1, block="reduction"),
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
