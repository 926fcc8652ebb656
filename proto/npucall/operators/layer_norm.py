"""Layer normalisation."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _norms as norms
from npucall.operators._rows import held
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950


@operator(
    "aclnnLayerNorm",
    Input("input", "the rows, (A..., R...)"),
    Attribute("normalized_shape", Kind.INT_ARRAY, "R, the extents that are normalised together"),
    Input(
        "weight",
        "a factor for each element of a row, (R...)",
        optional=True,
        as_is=True,
        c_name="weightOptional",
    ),
    Input("bias", "an addend for each of them", optional=True, as_is=True, c_name="biasOptional"),
    Attribute("eps", Kind.DOUBLE, "is added to the variance"),
    Output("out", "the normal form of the rows", shape="input", dtype="input"),
    Output(
        "mean_out",
        "the mean of each row",
        "ones",
        "single",
        as_is=True,
        optional=True,
        c_name="meanOutOptional",
    ),
    Output(
        "rstd_out",
        "1 / its deviation",
        "ones",
        "single",
        as_is=True,
        optional=True,
        c_name="rstdOutOptional",
    ),
    products={
        **dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
        **dict.fromkeys((ASCEND_910, ASCEND_310B), HALF_AND_SINGLE),
    },
    legacy={ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present("input", "normalized_shape", "out"),
        rules.supported("input"),
        *norms.float_or("input", "weight", "bias"),
        rules.same_dtype("bias", as_="weight"),
        rules.supported("out", "mean_out", "rstd_out"),
        rules.rank_at_most(8, "input", "weight", "bias", "out", "mean_out", "rstd_out"),
        *norms.normalized_tail("weight", "bias", ranks=("weight", "bias")),
        rules.same_shape("out", "input"),
        norms.single,
        rules.shape_of("input", into="ones", make=norms.ones_behind),
        rules.on((ASCEND_950,), rules.same_shape("mean_out", "ones", "one for each row")),
        rules.on((ASCEND_950,), rules.same_shape("rstd_out", "ones", "one for each row")),
        *(
            rules.except_on((ASCEND_950,), rule)
            for rule in norms.one_for_each_row("mean_out", "rstd_out")
        ),
        rules.fill_if_empty(
            "input", fill=lambda _: float("nan"), meaning="NaN", outputs=("rstd_out",)
        ),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(holds=held(backward=False)),
    sample=Sample({"weight": (3,), "bias": (3,)}, attributes={"normalized_shape": [3]}),
    area="normalisation",
    torch="nn.functional.layer_norm",
    source="ops-nn norm/layer_norm_v4: page aclnnLayerNorm, its checks",
)
def layer_norm(
    facts: Facts,
    input: Array,  # noqa: A002  # the operator's own name for it
    normalized_shape: tuple[int, ...],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> tuple[AnyArray | None, AnyArray | None, AnyArray | None]:
    """Normal form of each row of ``input``: mean 0 and variance 1.

    With N the elements of ``normalized_shape``, over each row x of N elements::

        mean = sum(x) / N                 rstd = 1 / sqrt(sum((x - mean)^2) / N + eps)
        out = (x - mean) * rstd * weight + bias

    Everything is computed in float32 and rounded once, ``mean_out`` and ``rstd_out`` to their own
    dtype, which is FLOAT unless the call gives them. Both may be null, are not computed then, and
    have any shape with one number for each row, but on Ascend 950. Rows without elements have the
    mean 0 and an rstd of NaN.

    As ``aten.native_layer_norm`` in torch, whose mean and rstd of half a precision have that. With
    ``eps`` 0 a row of equal numbers is NaN.
    """
    return norms.forward(facts, input, weight, bias, eps)
