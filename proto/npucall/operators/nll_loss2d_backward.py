"""Gradient of the negative log-likelihood of every pixel with respect to its input."""

from math import prod

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, INT64, AnyArray, Array
from npucall.operators import _nll_loss as shared
from npucall.operators._numerics import REDUCTION, Reduction
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950
from npucall.tensors import Shape


def pixels(draft: Draft) -> Shape:
    """(N, H, W) of self."""
    batch, _, *image = draft.shape("self")
    return (batch, *image)


@operator(
    "aclnnNLLLoss2dBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "log-probabilities (N, C, H, W); only shape and dtype matter", read=False),
    Input("target", "labels (N, H, W)", as_is=True),
    Input("weight", "weight of each class, C elements; ones for no weighting"),
    REDUCTION,
    Attribute("ignore_index", Kind.INT64, "the label of pixels that do not count"),
    Input(
        "total_weight",
        "one element: the sum of the weights of the labels; read for mean only",
        const=False,
    ),
    Output("out", "gradient with respect to self", shape="self", dtype="self"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    legacy={ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_output", "self", "target", "weight", "out", "total_weight"),
        rules.supported("self"),
        rules.same_dtype("grad_output", "weight", "out", "total_weight", as_="self"),
        rules.dtype_in("target", *shared.LABELS),
        rules.one_for_each(
            "grad_output",
            "target",
            lambda draft: draft.attribute("reduction") == 0,
            "if reduction is 0",
        ),
        rules.rank_is("self", 4),
        rules.rank_is("target", 3),
        rules.shape_of("self", into="pixels", make=pixels),
        rules.same_shape("target", "pixels", "N, H and W of self"),
        rules.requires(
            "an element for each class of self",
            "weight",
            holds=lambda draft: prod(draft.shape("weight")) == draft.shape("self")[1],
            found=lambda draft: f"{draft.shape('weight')} for self {draft.shape('self')}",
        ),
        rules.same_shape("out", "self"),
        rules.one_element("total_weight"),
        rules.one_of("reduction", 0, 1, 2),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(),
    sample=Sample(
        {
            "grad_output": (),
            "self": (2, 3, 2, 2),
            "target": (2, 2, 2),
            "weight": (3,),
            "total_weight": (1,),
        },
        {"target": INT64},
        {"reduction": 1, "ignore_index": -100},
    ),
    area="losses",
    torch="nn.functional.nll_loss",
    source="ops-nn page aclnnNLLLoss2dBackward",
)
def nll_loss2d_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array,
    reduction: Reduction,
    ignore_index: int,
    total_weight: Array,
) -> AnyArray:
    """Gradient of ``nll_loss(self, target, weight)`` with respect to ``self``, for images.

    For each pixel (n, h, w), with y = ``target[n, h, w]``::

        out[n, y, h, w] = -grad_output[n, h, w] * weight[y]               reduction none
        out[n, y, h, w] = -(grad_output / total_weight) * weight[y]       mean
        out[n, y, h, w] = -grad_output * weight[y]                        sum

    and 0 elsewhere. A pixel is all 0 if y is ``ignore_index`` or not a class. ``total_weight`` is
    the value from the forward operator, used as given; 0 gives infinities and NaN. All tensors but
    ``target`` have one dtype, ``out`` included.

    Differs from torch, which refuses labels that are not a class and takes no labels of INT32.
    Devices other than Ascend 950 cut INT64 labels to 32 bits; the reference does not.
    """
    return shared.gradient(
        facts, grad_output, target, weight, reduction, ignore_index, total_weight
    )
