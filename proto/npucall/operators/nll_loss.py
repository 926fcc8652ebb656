"""Negative log-likelihood."""

from npucall.declare import Attribute, Facts, Input, Kind, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import INT64, AnyArray, Array
from npucall.operators import _nll_loss as shared
from npucall.operators._numerics import NONE, REDUCTION, Reduction
from npucall.tensors import Shape

MATRIX, ROW = 2, 1
"""Ranks of self: rows of classes, or the classes of one row."""


def one_a_row(draft: Draft) -> bool:
    """Whether every row has a loss of its own in the output."""
    return draft.attribute("reduction") == NONE and len(draft.shape("self")) == MATRIX


def result(draft: Draft) -> Shape:
    """The shape of out if the call does not say it."""
    return draft.shape("self")[:1] if one_a_row(draft) else ()


@operator(
    "aclnnNLLLoss",
    Input("self", "log-probabilities (N, C) or (C,)"),
    Input("target", "labels (N,), or one of rank 0 for self of rank 1", as_is=True),
    Input("weight", "weight of each class, (C,); ones for no weighting"),
    REDUCTION,
    Attribute("ignore_index", Kind.INT64, "the label of rows that do not count"),
    *shared.OUTPUTS,
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present("self", "target", "weight", "out", "total_weight_out"),
        rules.same_dtype("weight", as_="self"),
        rules.castable("self", to="out"),
        rules.castable("self", to="total_weight_out"),
        rules.supported("self"),
        rules.dtype_in("target", *shared.LABELS),
        rules.one_of("reduction", 0, 1, 2),
        rules.rank_is("self", MATRIX, ROW),
        rules.rank_at_most(1, "target"),
        rules.requires(
            "the extents of self without its classes",
            "self",
            "target",
            holds=lambda draft: draft.shape("target") == draft.shape("self")[:-1],
            found=lambda draft: f"{draft.shape('self')} with target {draft.shape('target')}",
        ),
        rules.shape_of("self", into="classes", make=lambda draft: draft.shape("self")[-1:]),
        rules.same_shape("weight", "classes", "a weight for each class of self"),
        rules.shape_of("self", into="result", make=result),
        rules.shape_of("self", into="one", make=lambda _: ()),
        rules.one_for_each(
            "out", "target", one_a_row, "if reduction is 0 and self has 2 dimensions"
        ),
        rules.one_element("total_weight_out"),
        rules.requires(
            "no labels, since self has no classes",
            "target",
            holds=lambda draft: draft.shape("self")[-1] > 0 or 0 in draft.shape("target"),
            found=lambda draft: f"shape {draft.shape('target')}",
        ),
        shared.filled_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(),
    unwritten={"total_weight_out": shared.no_total},
    sample=Sample({"target": (2,), "weight": (3,)}, {"target": INT64}),
    area="losses",
    torch="nn.functional.nll_loss",
    source="ops-nn page aclnnNLLLoss",
)
def nll_loss(
    facts: Facts,
    self: Array,
    target: Array,
    weight: Array,
    reduction: Reduction = 1,
    ignore_index: int = -100,
) -> tuple[AnyArray, AnyArray]:
    """Negative log-likelihood of the classes ``target``, given log-probabilities ``self``.

    For each row i of (N, C), ``self`` of shape (C,) being one row, with y = ``target[i]``::

        loss[i] = -weight[y] * self[i, y]

    and 0 if y is ``ignore_index`` or not a class. ``out`` is that, its sum, or its mean, which is
    the sum divided by ``total_weight_out``, the sum of weight[y] over the rows that count. The
    backward operator needs this sum. Without reduction it is 0 here; the device does not write it.
    If no row counts the mean is NaN; without rows the mean is NaN, and the sum and the total weight
    are 0.

    Sums are taken in float64, in the order of the rows, and rounded once to self's dtype, then to
    that of the output. Atlas A2 and A3 do not round FLOAT16 on the way to a wider output, and add
    in no fixed order unless they are set to be deterministic.

    As ``aten.nll_loss_forward`` in torch, except that torch refuses labels that are not a class,
    takes no INT32 labels, and needs no weight. For self of rank 1 with an ignored label the mean is
    NaN, as in torch and on Atlas A2; Ascend 950 gives 0.
    """
    return shared.loss(facts, self, target, weight, reduction, ignore_index)
