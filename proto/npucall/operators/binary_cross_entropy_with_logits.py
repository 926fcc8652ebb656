"""Binary cross entropy with logits."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT, AnyArray, Array, can_cast
from npucall.errors import DTypeError
from npucall.operators import _losses as shared
from npucall.operators._numerics import REDUCTION, Reduction, log_sigmoid

TENSORS = ("self", "target", "weight", "pos_weight")


def fits_target(name: str) -> rules.Rule:
    """The input, if it is given, broadcasts to a target that has elements."""
    rule = rules.expandable(name, to="target", meaning="the shape of target")
    return rules.when(rules.not_empty("target"), rule, "target not empty")


def castable(name: str) -> rules.Rule:
    """The input, if it is given, can be converted to what is computed in."""

    def holds(draft: Draft) -> bool:
        return draft.absent(name) or can_cast(draft.dtype(name), draft.dtype("promotion"))

    return rules.requires(
        "a dtype that can be cast to that of self and target",
        name,
        holds=holds,
        found=lambda draft: draft.dtype(name),
        error=DTypeError,
    )


@operator(
    "aclnnBinaryCrossEntropyWithLogits",
    Input("self", "logits"),
    Input("target", "labels, 0 to 1"),
    Input("weight", "factor of each element; 1 if absent", optional=True,
          c_name="weightOptional", dtype="promotion"),
    Input("pos_weight", "factor of the positive labels; 1 if absent", optional=True,
          c_name="posWeightOptional", dtype="promotion"),
    REDUCTION,
    Output("out", "the loss", shape="result", dtype="target"),
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present("self", "target", "out"),
        rules.supported("self", "target", "out"),
        rules.same_dtype("out", as_="target"),
        rules.one_of("reduction", 0, 1, 2),
        rules.rank_at_most(8, *TENSORS),
        rules.same_shape("self", "target"),
        fits_target("weight"),
        fits_target("pos_weight"),
        *shared.reduced("self"),
        shared.filled_if_empty("self"),
        shared.whole("out", "self"),
        shared.single("out"),
        rules.promoted("self", "target", into="promotion"),
        castable("weight"),
        castable("pos_weight"),
    ),
    kernel_dtype=rules.always(FLOAT),
    over=elementwise("self", sum_to="kept", factor=shared.factor_of("self")),
    area="losses",
    torch="nn.functional.binary_cross_entropy_with_logits",
    source="ops-nn page aclnnBinaryCrossEntropyWithLogits",
)  # fmt: skip
def binary_cross_entropy_with_logits(
    facts: Facts,
    self: Array,
    target: Array,
    weight: Array | None = None,
    pos_weight: Array | None = None,
    reduction: Reduction = 1,
) -> AnyArray:
    """Binary cross entropy of the logits ``self`` and ``target``.

    With ``logs = ln(sigmoid(self)) = min(self, 0) - ln(1 + exp(-abs(self)))``::

        weight * ((1 - target) * self - (1 + (pos_weight - 1) * target) * logs)

    for each element; their sum, or their mean, which is the sum times 1 / element count. Computed
    and added up in FLOAT whatever the dtypes are, and rounded once to that of ``target``, which is
    that of ``out``: a sum of FLOAT16 numbers is right in a FLOAT ``out``. ``weight`` and
    ``pos_weight`` may have any real dtype, and are converted to that of ``self`` and ``target``;
    they broadcast to ``target``; larger ones are refused, although the software would take them.
    NaN where ``self`` is -inf, and where it is inf and ``target`` 1. With a reduction, ``out`` has
    one element and any rank. Without elements the mean is NaN and the sum is 0; they fill all of
    ``out``, which may have any shape.

    As in torch, except that torch refuses inputs of different dtypes.
    """
    del reduction
    logarithm = log_sigmoid(np.asarray(self))
    if pos_weight is not None:
        logarithm = (1 + (pos_weight - 1) * target) * logarithm
    loss = np.subtract(1, target) * self - logarithm
    return loss if weight is None else np.multiply(loss, weight, out=facts.out)
