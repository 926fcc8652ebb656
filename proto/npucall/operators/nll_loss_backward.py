"""Gradient of the negative log-likelihood with respect to its input."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, INT64, AnyArray, Array
from npucall.operators import _nll_loss as shared
from npucall.operators._numerics import REDUCTION, Reduction
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

MATRIX, ROW = 2, 1
"""Ranks of self: rows of classes, or the classes of one row."""


def one_label_a_row(draft: Draft) -> bool:
    """Whether there is a label for each row; the label of a single row may have rank 0."""
    allowed = [draft.shape("self")[:1]]
    if len(draft.shape("self")) == ROW:
        allowed = [(), *(shape for shape in allowed if shape == (1,))]
    return draft.shape("target") in allowed


@operator(
    "aclnnNLLLossBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "log-probabilities (N, C) or (C,); only shape and dtype matter", read=False),
    Input("target", "labels (N,), or one of rank 0", as_is=True),
    Input("weight", "weight of each class, (C,); ones for no weighting"),
    REDUCTION,
    Attribute("ignore_index", Kind.INT64, "the label of rows that do not count"),
    Input("total_weight", "one element: the sum of the weights of the labels; read for mean only"),
    Output("out", "gradient with respect to self", shape="self", dtype="self"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    legacy={ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_output", "self", "target", "weight", "total_weight", "out"),
        rules.same_dtype("weight", as_="self"),
        rules.same_dtype("grad_output", as_="self"),
        rules.same_dtype("total_weight", as_="self"),
        rules.castable("self", to="out"),
        rules.supported("self"),
        rules.dtype_in("target", *shared.LABELS),
        rules.one_of("reduction", 0, 1, 2),
        rules.rank_is("self", MATRIX, ROW),
        rules.rank_at_most(1, "target"),
        rules.requires(
            "a label for each row of self",
            "target",
            holds=one_label_a_row,
            found=lambda draft: f"{draft.shape('target')} for self {draft.shape('self')}",
        ),
        rules.shape_of("self", into="classes", make=lambda draft: draft.shape("self")[-1:]),
        rules.same_shape("weight", "classes", "a weight for each class of self"),
        rules.one_element("total_weight"),
        rules.one_for_each(
            "grad_output",
            "target",
            lambda draft: draft.attribute("reduction") == 0 and len(draft.shape("self")) == MATRIX,
            "if reduction is 0 and self has 2 dimensions",
        ),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(),
    sample=Sample(
        {"grad_output": (), "target": (2,), "weight": (3,), "total_weight": (1,)},
        {"target": INT64},
        {"reduction": 1, "ignore_index": -100},
    ),
    area="losses",
    torch="nn.functional.nll_loss",
    source="ops-nn page aclnnNLLLossBackward",
)
def nll_loss_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array,
    reduction: Reduction,
    ignore_index: int,
    total_weight: Array,
) -> AnyArray:
    """Gradient of ``nll_loss(self, target, weight)`` with respect to ``self``.

    For each row i of (N, C), ``self`` of shape (C,) being one row, with y = ``target[i]``::

        out[i, y] = -grad_output[i] * weight[y]                           reduction none
        out[i, y] = -(grad_output / total_weight) * weight[y]             mean
        out[i, y] = -grad_output * weight[y]                              sum

    and 0 elsewhere. A row is all 0 if y is ``ignore_index`` or not a class. ``total_weight`` is the
    value from the forward operator, used as given; 0 gives infinities and NaN. ``out`` may have any
    dtype that self's can be cast to.

    Differs from torch, which refuses labels that are not a class and takes no labels of INT32.
    Devices other than Ascend 950 cut INT64 labels to 32 bits; the reference does not.
    """
    return shared.gradient(
        facts, grad_output, target, weight, reduction, ignore_index, total_weight
    )
