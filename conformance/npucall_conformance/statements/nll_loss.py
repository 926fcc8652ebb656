"""aclnnNLLLoss [src:nll-loss]."""

from __future__ import annotations

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16
from npucall.errors import DTypeError, ShapeError
from npucall_conformance.statements import _nll_loss_forward as nll
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _written as written
from npucall_conformance.statements._nll_loss import NO_LABELS
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import HALFWAY, Contradiction, Invalid, Setup, halfway
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16, Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

ONE_ROW = Setup(base=(4,))
BOTH = ("self", "target")

NLL_LOSS = Statement(
    "aclnnNLLLoss",
    prototype=(
        "const aclTensor* self, const aclTensor* target, const aclTensor* weight, "
        "int64_t reduction, int64_t ignoreIndex, aclTensor* out, aclTensor* totalWeightOut"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1, "ignore_index": -100},
    inputs=nll.INPUTS,
    outputs=nll.OUTPUTS,
    loops=nll.loops,
    arrays=nll.arrays,
    shapes=nll.shapes,
    kernel=dtype_of("self"),
    cost=nll.cost,
    faint=nll.faint,
    npu=aten("nll_loss_forward", "self", *_npu.CLASSES),
    torch=nll.torch_says("nll_loss_forward"),
    attributes=nll.ATTRIBUTES,
    base_shapes=((4, 6), (35, 3), (17,), (9, 33)),
    layout_shape=(5, 4),
    rank_shapes=((5,), (1,), (1, 1), (2, 3)),
    empty_shapes=((0, 3), (0, 0)),
    large_shape=(3169, 32),
    large=(Setup("many-rows", (50_021, 2)), Setup("long-rows", (2, 50_021)),
           Setup("one-row", (100_003,))),
    sized=lambda count: (max(count // 16, 1), 16),
    broadcast=(
        Setup("one-row", (5,)), Setup("one-class", (1,)),
        Setup("one-row-ignored", (4,), values={"target": np.array(2)},
             attributes={"ignore_index": 2}),
        Setup("one-row-no-class", (4,), values={"target": np.array(4)}),
    ),
    mixed=(*nll.outputs_of_other_dtypes(), Setup(dtypes={"out": DOUBLE})),
    edges=nll.edges((16,)),
    halfway=halfway(
        {"self": HALFWAY, "target": np.zeros(len(HALFWAY)), "weight": np.array([1.5])},
        (len(HALFWAY), 1), reduction=0,
    ),
    empty_spares=("no-classes",),
    written=written.NLL_LOSS,
    invalid=(
        *defects.nulls(*nll.TENSORS),
        *defects.dtypes("weight", found=nll.OTHER),
        *defects.uncastable("out"),
        *defects.uncastable("total_weight_out"),
        Invalid("dtype-double-all", defects.all_of(DOUBLE, "self", "weight"), ("self",),
                DTypeError),
        Invalid("dtype-bf16-all", defects.all_of(BF16, "self", "weight"), ("self",), DTypeError,
                products=WITHOUT_BFLOAT16),
        *(row for found in NO_LABELS for row in defects.dtypes("target", found=found)),
        *defects.values("reduction", 3, 7, -1, 2**32, 2**32 + 1, block="reduction"),
        *defects.shapes("self", (2, 3, 4), ()),
        *defects.shapes("target", (5, 1)),
        *defects.shapes("target", (4,), (1,), (), blames=BOTH),
        Invalid("one-row-four-labels", {"target": {"shape": (4,)}}, BOTH, ShapeError,
                base=ONE_ROW),
        Invalid("one-row-one-label", {"target": {"shape": (1,)}}, BOTH, ShapeError,
                base=ONE_ROW),
        *defects.shapes("weight", (5,), (1,), (1, 4), ()),
        *defects.shapes("out", (4,), (5, 1), (5, 4)),
        *defects.shapes("out", (), (1,), alone=True),
        Invalid("one-row-four-losses", {"out": {"shape": (4,)}}, ("out",), ShapeError,
                base=ONE_ROW),
        *(Invalid(f"reduced-{reduction}-of-rank-2", {"out": {"shape": (1, 1)}}, ("out",),
                  ShapeError, base=Setup(attributes={"reduction": reduction}))
          for reduction in (1, 2)),
        *defects.shapes("total_weight_out", (2,), (0,), (5,)),
        Invalid("no-classes", {"self": {"shape": (5, 0)}, "weight": {"shape": (0,)}}, ("target",),
                ShapeError),
    ),
    contradictions=(
        Contradiction(
            "F17", "the mean of one row with an ignored label",
            Setup(base=(4,), values={"target": np.array(1)},
                  attributes={"reduction": 1, "ignore_index": 1}),
            {"kernel 950": 0.0, "kernels A2, A3; torch": reals.NAN}, "kernels A2, A3; torch",
        ),
        Contradiction(
            "F18", "whether FLOAT16 is rounded on its way to a FLOAT output",
            Setup(base=(2, 1), values={"self": [[-35000.0]] * 2, "weight": [1.0]},
                  attributes={"reduction": 2},
                  dtypes={"self": FLOAT16, "weight": FLOAT16, "out": FLOAT}),
            {"kernel 950": reals.INFINITY, "kernels A2, A3": 70000.0}, "kernel 950",
        ),
    ),
)  # fmt: skip
