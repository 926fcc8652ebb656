"""aclnnNLLLoss2d [src:nll-loss]."""

from __future__ import annotations

from npucall.dtypes import DOUBLE
from npucall.errors import ShapeError
from npucall_conformance.statements import _nll_loss_forward as nll
from npucall_conformance.statements import _npu
from npucall_conformance.statements._nll_loss import NO_LABELS
from npucall_conformance.stating import defects
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Invalid, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

NLL_LOSS2D = Statement(
    "aclnnNLLLoss2d",
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
    npu=aten("nll_loss2d_forward", "self", *_npu.CLASSES),
    torch=nll.torch_says("nll_loss2d_forward"),
    attributes=nll.ATTRIBUTES,
    base_shapes=((2, 3, 4, 5), (1, 6, 3, 3), (3, 5, 1, 7), (5, 2, 4, 1)),
    layout_shape=(2, 4, 3, 5),
    rank_shapes=((1, 1, 1, 1), (1, 3, 1, 1), (2, 3, 1, 2)),
    empty_shapes=((0, 3, 2, 2), (2, 0, 2, 2), (2, 3, 0, 2), (2, 3, 2, 0), (0, 0, 0, 0)),
    large_shape=(3, 8, 83, 53),
    large=(Setup("many-rows", (10_007, 3, 2, 2)), Setup("many-classes", (2, 12_503, 2, 2)),
           Setup("images", (2, 3, 131, 137))),
    sized=lambda count: (2, 8, max(count // 64, 1), 4),
    broadcast=(Setup("one-class", (2, 1, 3, 2)), Setup("one-pixel", (2, 3, 1, 1))),
    mixed=(*nll.outputs_of_other_dtypes(), Setup(dtypes={"out": DOUBLE})),
    edges=nll.edges((2, 2, 4)),
    invalid=(
        *defects.nulls(*nll.TENSORS),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("self", found=nll.OTHER),
        *defects.uncastable("out"),
        *defects.uncastable("total_weight_out"),
        *(row for found in NO_LABELS for row in defects.dtypes("target", found=found)),
        *defects.values("reduction", 3, 7, -1, 2**32, 2**32 + 1, block="reduction"),
        *defects.shapes("self", (2, 4), (2, 4, 15), (2, 4, 3, 5, 1)),
        *defects.shapes("weight", (5,), (1,), (), (4, 1), (1, 4), (2, 2)),
        *defects.shapes("target", (2, 15), (2, 3, 5, 1), (1, 3, 5), (2, 5, 3), (2, 3, 4)),
        *defects.shapes("out", (2, 5, 3), (2, 15), (1, 3, 5)),
        *defects.shapes("out", (), (1,), alone=True),
        *(Invalid(f"reduced-{reduction}-to-two", {"out": {"shape": (2,)}}, ("out",), ShapeError,
                  base=Setup(attributes={"reduction": reduction})) for reduction in (1, 2)),
        *defects.shapes("total_weight_out", (2,), (0,)),
    ),
)  # fmt: skip
