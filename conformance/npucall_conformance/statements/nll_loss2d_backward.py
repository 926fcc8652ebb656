"""aclnnNLLLoss2dBackward [src:nll-loss]."""

from __future__ import annotations

from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _nll_loss as nll
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    batch, classes, *image = base
    pixels = (batch, *image)
    return {
        "grad_output": pixels if attributes["reduction"] == 0 else (),
        "self": base,
        "target": pixels,
        "weight": (classes,),
        "total_weight": (1,),
    }


SUM = Setup(attributes={"reduction": 2})
"""One gradient, so that the shape of target does not matter to it."""

NLL_LOSS2D_BACKWARD = Statement(
    "aclnnNLLLoss2dBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weight, int64_t reduction, int64_t ignoreIndex, aclTensor* totalWeight, "
        "aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    kernel_said=dtype_of("self"),
    legacy=("Ascend310P", "Ascend310B"),
    inputs=nll.INPUTS,
    outputs=(Out("out", shape="self", dtype="self"),),
    loops=nll.loops,
    arrays=nll.arrays,
    shapes=shapes,
    cost=lambda k: 4 if k.scaled else 0,
    npu=aten("nll_loss2d_backward", *_npu.BOTH, *_npu.CLASSES, "total_weight"),
    torch=nll.torch_says("nll_loss2d_backward"),
    attributes=nll.ATTRIBUTES,
    base_shapes=((2, 3, 4, 5), (1, 6, 3, 3), (3, 5, 1, 7), (5, 2, 4, 1)),
    layout_shape=(2, 4, 3, 5),
    rank_shapes=((1, 1, 1, 1), (1, 3, 1, 1), (2, 3, 1, 2)),
    empty_shapes=((0, 3, 2, 2), (2, 0, 2, 2), (2, 3, 0, 2), (2, 3, 2, 0), (0, 0, 0, 0)),
    large_shape=(3, 8, 83, 53),
    large=(Setup("many-rows", (10_007, 3, 2, 2)), Setup("many-classes", (2, 12_503, 2, 2)),
           Setup("images", (2, 3, 131, 137))),
    sized=lambda count: (2, 8, max(count // 64, 1), 4),
    broadcast=(
        *(Setup(f"gradient-of-one-{r}", (2, 3, 2, 2), {"grad_output": (1,)},
               attributes={"reduction": r}) for r in (1, 2)),
        *(Setup("weight", (2, 4, 3, 1), {"weight": shape}) for shape in ((4, 1), (1, 4), (2, 2))),
        Setup("one-class", (2, 1, 3, 2), {"weight": ()}),
        *(Setup("total-weight", (2, 3, 2, 2), {"total_weight": shape})
          for shape in ((), (1, 1, 1))),
    ),
    edges=nll.edges((2, 2, 4), (1, 1, 1)),
    written=written.NLL_LOSS2D_BACKWARD,
    invalid=(
        *defects.nulls("grad_output", "self", "target", "weight", "out", "total_weight"),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("grad_output", "weight", "out", "total_weight", found=nll.OTHER),
        *(row for found in nll.NO_LABELS for row in defects.dtypes("target", found=found)),
        *defects.shapes("grad_output", (2, 3, 4), (2, 4, 3, 5)),
        *defects.shapes("grad_output", (), (1,), alone=True),  # as the rows below need it
        Invalid("gradients-summed", {"grad_output": {"shape": (2, 3, 5)}}, ("grad_output",),
                ShapeError, base=SUM),
        Invalid("gradient-of-rank-2", {"grad_output": {"shape": (1, 1)}}, ("grad_output",),
                ShapeError, base=SUM),
        *defects.shapes("self", (2, 4), (2, 4, 15), (2, 4, 3, 5, 1), base=SUM),
        *defects.shapes("target", (2, 15), (2, 3, 5, 1), (1, 3, 5), (2, 5, 3), (2, 3, 4), base=SUM),
        *defects.shapes("weight", (5,), (1,), (), (2, 4)),
        *defects.shapes("out", (2, 3, 5, 4), (2, 4, 15), (1, 4, 3, 5)),
        *defects.shapes("total_weight", (2,), (0,)),
        *defects.values("reduction", 3, 7, -1, 2**32, 2**32 + 1, block="reduction", base=SUM),
    ),
)  # fmt: skip
