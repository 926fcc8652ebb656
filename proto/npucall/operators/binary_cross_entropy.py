"""Binary cross entropy."""

from math import prod

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import AnyArray, Array
from npucall.errors import DTypeError
from npucall.operators import _losses as shared
from npucall.operators._numerics import REDUCTION, Reduction

OTHERS = ("target", "weight", "out")
LEAST = -100.0
"""What a logarithm is at least, as in torch."""


def others(draft: Draft) -> list[str]:
    """The dtypes of the given tensors except self."""
    return [str(spec.dtype) for _, spec in draft.tensors(OTHERS)]


def as_self(draft: Draft) -> bool:
    """Whether the output has the shape of self, or both have one element."""
    shapes = {draft.shape("self"), *(spec.shape for _, spec in draft.tensors(("out",)))}
    return len(shapes) == 1 or set(map(prod, shapes)) == {1}


SAME_ELEMENTS = rules.requires(
    "the shape of self, or one element as self has",
    "out",
    holds=as_self,
    found=lambda draft: f"{draft.shape('out')} for self {draft.shape('self')}",
)


@operator(
    "aclnnBinaryCrossEntropy",
    Input("self", "probabilities"),
    Input("target", "labels, 0 to 1"),
    Input("weight", "factor of each element; 1 if absent", optional=True),
    REDUCTION,
    Output("out", "the loss", shape="result", dtype="self"),
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present("self", "target", "out"),
        rules.supported("self", "target", "out", "weight"),
        rules.requires(
            "the dtype of target, weight and out",
            "self",
            holds=lambda draft: {*others(draft)} <= {str(draft.dtype("self"))},
            found=lambda draft: f"{draft.dtype('self')} with {', '.join(others(draft))}",
            error=DTypeError,
        ),
        rules.same_shape("self", "target"),
        rules.same_shape("weight", "self"),
        rules.one_of("reduction", 0, 1, 2),
        *shared.reduced("self"),
        shared.filled_if_empty("self"),
        rules.when(shared.is_whole, SAME_ELEMENTS, "reduction 0"),
        shared.single("out"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self", sum_to="kept", factor=shared.factor_of("self")),
    area="losses",
    torch="nn.functional.binary_cross_entropy",
    source="ops-nn page aclnnBinaryCrossEntropy",
)
def binary_cross_entropy(
    facts: Facts,
    self: Array,
    target: Array,
    weight: Array | None = None,
    reduction: Reduction = 1,
) -> AnyArray:
    """Binary cross entropy of the probabilities ``self`` and ``target``.

    ::

        -weight * (target * max(ln(self), -100) + (1 - target) * max(ln(1 - self), -100))

    for each element; their sum, or their mean, which is the sum times 1 / element count. Nothing is
    rounded before the sum, which is rounded once. NaN where ``self`` is not within 0 to 1; the
    operator does not check this. All tensors have one dtype; the software checks this only if
    ``weight`` is given, and has no kernel for others. ``target`` and ``weight`` have the shape of
    ``self``. With a reduction, ``out`` has one element and any rank. Without elements the mean is
    NaN and the sum is 0; they fill all of ``out``, which may have any shape. A missing tensor gives
    161001 here; CANN's library gives 561103.

    Differs from torch, which refuses values beyond 0 to 1, and broadcasts ``weight``. The old
    Atlas 910 clamps to 1e-12 instead: 27.63 at most, not 100.
    """
    del reduction
    one = np.maximum(np.log(self), LEAST) * target
    zero = np.maximum(np.log1p(-self), LEAST) * np.subtract(1, target)
    return np.multiply(one + zero, -1 if weight is None else -weight, out=facts.out)
