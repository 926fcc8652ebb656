"""Gradient of layer normalisation."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import AttributeValueError
from npucall.operators import _norms as norms
from npucall.operators._masks import mask_of, masked
from npucall.operators._rows import held
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950

OUTPUTS = ("grad_input_out", "grad_weight_out", "grad_bias_out")
READ = ("grad_out", "input", "mean", "rstd")
asked = [masked(place) for place in range(3)]


def nothing_to_add(draft: Draft) -> float | None:
    """What the gradients of weight and bias of no rows are; those of no elements have none."""
    return 0.0 if 0 in norms.lead(draft) else None


@operator(
    "aclnnLayerNormBackward",
    Input("grad_out", "gradient of the normal form"),
    Input("input", "the rows, (A..., R...)"),
    Attribute("normalized_shape", Kind.INT_ARRAY, "R, the extents that are normalised together"),
    Input("mean", "the mean of each row, as LayerNorm gives it", as_is=True),
    Input("rstd", "1 / its deviation", as_is=True),
    Input("weight", "the factors, (R...)", optional=True, as_is=True, c_name="weightOptional"),
    Input("bias", "not used", optional=True, read=False, c_name="biasOptional"),
    Attribute("output_mask", Kind.BOOL_ARRAY, "which of the three outputs are asked for"),
    Output("grad_input_out", "of the rows", "input", "input", asked=asked[0]),
    Output("grad_weight_out", "of the weight", "row", "of_weight", as_is=True, asked=asked[1]),
    Output("grad_bias_out", "of the bias", "row", "of_weight", as_is=True, asked=asked[2]),
    products={
        **dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
        **dict.fromkeys((ASCEND_910, ASCEND_310P), HALF_AND_SINGLE),
    },
    checks=(
        rules.present(*READ[:2], "normalized_shape", *READ[2:], "output_mask"),
        mask_of(3),
        rules.present(*OUTPUTS),
        rules.supported(*READ),
        rules.same_dtype("grad_out", as_="input"),
        rules.supported("weight"),
        *norms.float_or("input", "weight"),
        rules.supported("bias", *OUTPUTS),
        rules.rank_at_most(8, *READ),
        rules.requires(
            "at most 8 extents",
            "normalized_shape",
            holds=lambda draft: len(norms.tail(draft)) <= norms.MOST,
            found=norms.tail,
            error=AttributeValueError,
        ),
        *(
            rules.when(asks, rules.rank_at_most(8, name), "if it is asked for")
            for asks, name in zip(asked, OUTPUTS, strict=True)
        ),
        *norms.normalized_tail("weight", "bias"),
        rules.same_shape("grad_out", "input"),
        rules.same_shape("mean", "rstd"),
        *norms.one_for_each_row("mean"),
        rules.same_shape("grad_input_out", "input"),
        rules.same_shape("grad_weight_out", "row", "what normalized_shape says"),
        rules.same_shape("grad_bias_out", "row", "what normalized_shape says"),
        norms.of_weight,
        rules.fill_if_empty(
            "input", fill=nothing_to_add, meaning="0 without rows", outputs=OUTPUTS[1:]
        ),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(holds=held(backward=True)),
    sample=Sample(
        {"mean": (2, 1), "rstd": (2, 1), "weight": (3,), "bias": (3,)},
        attributes={"normalized_shape": [3], "output_mask": [True] * 3},
    ),
    area="normalisation",
    torch="nn.functional.layer_norm",
    source="ops-nn norm/layer_norm_grad_v3: page aclnnLayerNormBackward, its checks",
)
def layer_norm_backward(
    facts: Facts,
    grad_out: Array,
    input: Array,  # noqa: A002  # the operator's own name for it
    normalized_shape: tuple[int, ...],
    mean: Array,
    rstd: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    output_mask: tuple[bool, ...] = (True, True, True),
) -> tuple[AnyArray | None, AnyArray | None, AnyArray | None]:
    """Gradients of layer normalisation.

    With N the elements of ``normalized_shape``, over each row, normal = (input - mean) * rstd and
    d = grad_out * weight (without a weight grad_out itself)::

        grad_input_out = rstd * (d - sum(d) / N - normal * sum(d * normal) / N)

    ``grad_weight_out`` is the sum over all rows of grad_out * normal, ``grad_bias_out`` that of
    grad_out. ``mean`` and ``rstd`` have one number for each row, in any shape. Everything is
    computed in float32, and rounded once; the two sums, which are taken in float64, to their own
    dtype alone, which is that of the weight unless the call gives them. What ``output_mask``
    switches off may be null, and is not computed.

    As ``aten.native_layer_norm_backward`` in torch, which needs the weight for its gradient.
    """
    del bias, normalized_shape, output_mask
    return norms.gradients(facts, grad_out, input, mean, rstd, weight, OUTPUTS)
