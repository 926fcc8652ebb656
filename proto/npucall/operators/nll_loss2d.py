"""Negative log-likelihood of every pixel."""

from npucall.declare import Attribute, Facts, Input, Kind, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import INT64, AnyArray, Array
from npucall.operators import _nll_loss as shared
from npucall.operators._losses import is_reduced
from npucall.operators._numerics import REDUCTION, Reduction
from npucall.tensors import Shape


def pixels(draft: Draft) -> Shape:
    """(N, H, W) of self."""
    batch, _, *image = draft.shape("self")
    return (batch, *image)


@operator(
    "aclnnNLLLoss2d",
    Input("self", "log-probabilities (N, C, H, W)"),
    Input("target", "labels (N, H, W)", as_is=True),
    Input("weight", "weight of each class, (C,); ones for no weighting"),
    REDUCTION,
    Attribute("ignore_index", Kind.INT64, "the label of pixels that do not count"),
    *shared.OUTPUTS,
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present("self", "target", "weight", "out", "total_weight_out"),
        rules.supported("self"),
        rules.same_dtype("self", as_="weight"),
        rules.castable("self", to="out"),
        rules.castable("self", to="total_weight_out"),
        rules.dtype_in("target", *shared.LABELS),
        rules.one_of("reduction", 0, 1, 2),
        rules.rank_is("self", 4),
        rules.shape_of("self", into="classes", make=lambda draft: draft.shape("self")[1:2]),
        rules.same_shape("weight", "classes", "a weight for each class of self"),
        rules.rank_is("target", 3),
        rules.shape_of("self", into="pixels", make=pixels),
        rules.same_shape("target", "pixels", "N, H and W of self"),
        rules.shape_of(
            "self",
            into="result",
            make=lambda draft: () if is_reduced(draft) else draft.shape("target"),
        ),
        rules.shape_of("self", into="one", make=lambda _: ()),
        rules.when(
            lambda draft: not is_reduced(draft),
            rules.same_shape("out", "target"),
            "if reduction is 0",
        ),
        rules.when(is_reduced, rules.one_element("out"), "if reduction is 1 or 2"),
        rules.one_element("total_weight_out"),
        shared.filled_if_empty("self", "target", "weight"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(),
    unwritten={"total_weight_out": shared.no_total},
    sample=Sample({"self": (2, 3, 2, 2), "target": (2, 2, 2), "weight": (3,)}, {"target": INT64}),
    area="losses",
    torch="nn.functional.nll_loss",
    source="ops-nn page aclnnNLLLoss2d",
)
def nll_loss2d(
    facts: Facts,
    self: Array,
    target: Array,
    weight: Array,
    reduction: Reduction = 1,
    ignore_index: int = -100,
) -> tuple[AnyArray, AnyArray]:
    """Negative log-likelihood of the classes ``target`` of pixels, given log-probabilities.

    For each pixel (n, h, w), with y = ``target[n, h, w]``::

        loss[n, h, w] = -weight[y] * self[n, y, h, w]

    and 0 if y is ``ignore_index`` or not a class. ``out`` is that, its sum, or its mean, which is
    the sum divided by ``total_weight_out``, the sum of weight[y] over the pixels that count. The
    backward operator needs this sum. Without reduction it is 0 here; the device does not write it.
    If no pixel counts the mean is NaN; without pixels the mean is NaN, and the sum and the total
    weight are 0.

    Sums are taken in float64, in the order of the pixels, and rounded once to self's dtype, then to
    that of the output. Atlas A2 and A3 do not round FLOAT16 on the way to a wider output, and add
    in no fixed order unless they are set to be deterministic.

    As ``aten.nll_loss2d_forward`` in torch, except that torch refuses labels that are not a class,
    takes no INT32 labels, and needs no weight. The weight has shape (C,); the software checks only
    its first extent.
    """
    return shared.loss(facts, self, target, weight, reduction, ignore_index)
