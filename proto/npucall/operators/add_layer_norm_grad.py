"""Gradient of layer normalisation of a sum."""

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOAT, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _norms as norms
from npucall.operators._rows import held
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950

OUTPUTS = ("dx_out", "dgamma_out", "dbeta_out")
TENSORS = ("dy", "x1", "x2", "rstd", "mean", "gamma", "dsum", *OUTPUTS)
SINGLES = ("rstd", "mean", *OUTPUTS[1:])
ROWS = tuple(tuple(FLOAT if name in SINGLES else each for name in TENSORS) for each in FLOATS)


@operator(
    "aclnnAddLayerNormGrad",
    Input("dy", "gradient of the normal form"),
    Input("x1", "the rows, (A..., R...)"),
    Input("x2", "what was added to them"),
    Input("rstd", "1 / the deviation of each row, as AddLayerNorm gives it", as_is=True),
    Input("mean", "the mean of each row", as_is=True),
    Input("gamma", "a factor for each element of a row, (R...)"),
    Input("dsum", "gradient of the sum itself", optional=True, c_name="dsumOptional"),
    Output("dx_out", "gradient of each of the addends", "x1", "x1", const=True),
    Output("dgamma_out", "gradient of gamma", "gamma", "single", const=True, as_is=True),
    Output("dbeta_out", "gradient of beta", "gamma", "single", const=True, as_is=True),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present(*(name for name in TENSORS if name != "dsum")),
        rules.supported("dy"),
        rules.dtype_row(ROWS, *TENSORS),
        norms.single,
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("x1", *range(1, 9)),
            rules.rank_is("gamma", *range(1, 9)),
            rules.same_rank("rstd", "mean", as_="dy"),
            rules.same_rank("dgamma_out", "dbeta_out", as_="gamma"),
            norms.gamma_fits("dy"),
            *norms.no_zero("x1", "mean"),
            *(rules.same_shape(name, "x1") for name in ("dy", "x2", "dsum", "dx_out")),
            rules.same_shape("rstd", "mean"),
            norms.gamma_is_tail("x1"),
            *norms.rows_of_gamma("x1"),
            rules.same_shape("mean", "ones", "one for each row"),
            rules.same_shape("dgamma_out", "gamma"),
            rules.same_shape("dbeta_out", "gamma"),
        ),
    ),
    kernel_dtype=rules.dtype_of("x1"),
    over=at_once(holds=held(backward=True)),
    sample=Sample({"rstd": (2, 1), "mean": (2, 1), "gamma": (3,)}, {"rstd": FLOAT, "mean": FLOAT}),
    area="normalisation",
    torch="nn.functional.layer_norm",
    source="ops-nn norm/add_layer_norm_grad: page aclnnAddLayerNormGrad, definition and tiling",
)
def add_layer_norm_grad(  # in the order of C
    facts: Facts,
    dy: Array,
    x1: Array,
    x2: Array,
    rstd: Array,
    mean: Array,
    gamma: Array,
    dsum: Array | None = None,
) -> tuple[AnyArray | None, ...]:
    """Gradients of layer normalisation of ``x1 + x2``.

    With N the elements of ``gamma``, over each row, x = x1 + x2, normal = (x - mean) * rstd and
    d = dy * gamma::

        dx = rstd * (d - sum(d) / N - normal * sum(d * normal) / N) + dsum

    ``dx_out`` is the gradient of either addend. ``dgamma_out`` is the sum over all rows of
    dy * normal, ``dbeta_out`` that of dy, both in float64, rounded to FLOAT; dx is computed in
    float32 and rounded once. ``rstd`` is what the forward operator gave, with its epsilon: the page
    leaves that out.

    As the gradient of ``layer_norm(x1 + x2, ...)`` in torch, plus ``dsum``.
    """

    def read(index: tuple[slice, ...]) -> AnyArray:
        return facts.read(x1, index) + facts.read(x2, index)

    def add(index: tuple[slice, ...], gradient: AnyArray) -> None:
        if dsum is not None:
            gradient += facts.read(dsum, index)

    return norms.gradients(
        facts, dy, read, mean, rstd, gamma, OUTPUTS, None if dsum is None else add
    )
