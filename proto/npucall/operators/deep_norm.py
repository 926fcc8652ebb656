"""Layer normalisation of a weighted residual, as in DeepNet; and its gradient."""

from collections.abc import Callable

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOAT, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _norms as norms
from npucall.operators._rows import held
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950

FORWARD = ("x", "gx", "beta", "gamma", "mean_out", "rstd_out", "y_out")
BACKWARD = (
    *("dy", "x", "gx", "gamma", "mean", "rstd"),
    *("dx_out", "dgx_out", "dbeta_out", "dgamma_out"),
)
SINGLES = ("mean", "rstd", "mean_out", "rstd_out", "dbeta_out", "dgamma_out")
PRODUCTS = {**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE}
GAMMA = Input("gamma", "a factor for each element of a row, (R...)")
ALPHA = Attribute("alpha", Kind.DOUBLE, "factor of x")
STATISTICS = {"mean": (2, 1), "rstd": (2, 1)}


def row_of_dtypes(*names: str) -> rules.Rule:
    """One dtype for all, but FLOAT for statistics and sums."""
    rows = (tuple(FLOAT if name in SINGLES else each for name in names) for each in FLOATS)
    return rules.dtype_row(tuple(rows), *names)


def fewer_dimensions(x: str) -> rules.Rule:
    """Rows are not all of a tensor."""
    return rules.requires(
        f"fewer dimensions than {x}",
        "gamma",
        holds=lambda draft: len(draft.shape("gamma")) < len(draft.shape(x)),
        found=lambda draft: len(draft.shape("gamma")),
    )


def residual(facts: Facts, x: Array, gx: Array, alpha: float) -> Callable[..., AnyArray]:
    """Reads rows of ``alpha * x + gx``."""
    return lambda index: facts.read(x, index) * facts.dtype.type(alpha) + facts.read(gx, index)


@operator(
    "aclnnDeepNorm",
    Input("x", "what goes past the layer, (A..., R...)"),
    Input("gx", "what the layer gives"),
    Input("beta", "an addend for each element of a row"),
    GAMMA,
    ALPHA,
    Attribute("epsilon", Kind.DOUBLE, "is added to the variance"),
    Output("mean_out", "the mean of each row", "ones", "single", const=True, as_is=True),
    Output("rstd_out", "1 / its deviation", "ones", "single", const=True, as_is=True),
    Output("y_out", "the normal form", "x", "x", const=True),
    products=PRODUCTS,
    checks=(
        rules.present(*FORWARD),
        rules.supported("x"),
        row_of_dtypes(*FORWARD),
        norms.single,
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("x", *range(2, 9)),
            rules.rank_is("gamma", *range(1, 8)),
            fewer_dimensions("x"),
            *norms.no_zero("x"),
            rules.same_shape("gx", "x"),
            norms.gamma_is_tail("x"),
            rules.same_shape("beta", "gamma"),
            *norms.rows_of_gamma("x"),
            rules.same_shape("mean_out", "ones", "one for each row"),
            rules.same_shape("rstd_out", "ones", "one for each row"),
            rules.same_shape("y_out", "x"),
        ),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(holds=held(backward=False)),
    sample=Sample({"gamma": (3,), "beta": (3,)}),
    area="normalisation",
    torch="nn.functional.layer_norm",
    source="ops-nn norm/deep_norm: page aclnnDeepNorm; order assumed as that of its gradient",
)
def deep_norm(
    facts: Facts,
    x: Array,
    gx: Array,
    beta: Array,
    gamma: Array,
    alpha: float = 0.3,
    epsilon: float = 1e-6,
) -> tuple[AnyArray | None, ...]:
    """Normal form of each row of ``alpha * x + gx``: mean 0 and variance 1.

    With N the elements of ``gamma``, over each row of N elements::

        s = alpha * x + gx
        mean = sum(s) / N                 rstd = 1 / sqrt(sum((s - mean)^2) / N + epsilon)
        y = (s - mean) * rstd * gamma + beta

    Everything is computed in float32 and rounded once; ``mean_out`` and ``rstd_out`` are FLOAT.

    As ``layer_norm(alpha * x + gx, ...)`` in torch.
    """
    read = residual(facts, x, gx, alpha)
    outputs = ("y_out", "mean_out", "rstd_out")
    y, mean, rstd = norms.forward(facts, read, gamma, beta, epsilon, outputs)
    return mean, rstd, y


@operator(
    "aclnnDeepNormGrad",
    Input("dy", "gradient of the normal form"),
    Input("x", "what went past the layer, (A..., R...)"),
    Input("gx", "what the layer gave"),
    GAMMA,
    Input("mean", "the mean of each row, as DeepNorm gives it", as_is=True),
    Input("rstd", "1 / its deviation", as_is=True),
    ALPHA,
    Output("dx_out", "gradient of x", "x", "x", const=True),
    Output("dgx_out", "gradient of gx", "x", "x", const=True),
    Output("dbeta_out", "gradient of beta", "gamma", "single", const=True, as_is=True),
    Output("dgamma_out", "gradient of gamma", "gamma", "single", const=True, as_is=True),
    products=PRODUCTS,
    checks=(
        rules.present(*BACKWARD),
        rules.supported("dy"),
        row_of_dtypes(*BACKWARD),
        norms.single,
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("dy", *range(2, 9)),
            rules.rank_is("gamma", *range(1, 8)),
            rules.same_rank("gx", "x", "dx_out", "dgx_out", "mean", "rstd", as_="dy"),
            rules.same_rank("dgamma_out", "dbeta_out", as_="gamma"),
            fewer_dimensions("dy"),
            *norms.no_zero("dy"),
            *(rules.same_shape(name, "dy") for name in ("x", "gx")),
            *(rules.same_shape(name, "x") for name in ("dx_out", "dgx_out")),
            *norms.rows_of_gamma("x"),
            *(rules.same_shape(name, "ones", "one for each row") for name in ("mean", "rstd")),
            norms.gamma_is_tail("x"),
            *(rules.same_shape(name, "gamma") for name in ("dgamma_out", "dbeta_out")),
        ),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(holds=held(backward=True)),
    sample=Sample({**STATISTICS, "gamma": (3,)}, dict.fromkeys(STATISTICS, FLOAT)),
    area="normalisation",
    torch="nn.functional.layer_norm",
    source="ops-nn norm/deep_norm_grad: page aclnnDeepNormGrad, its definition and tiling",
)
def deep_norm_grad(  # in the order of C
    facts: Facts,
    dy: Array,
    x: Array,
    gx: Array,
    gamma: Array,
    mean: Array,
    rstd: Array,
    alpha: float = 0.3,
) -> tuple[AnyArray | None, ...]:
    """Gradients of ``deep_norm``.

    With N the elements of ``gamma``, over each row, s = alpha * x + gx, normal = (s - mean) * rstd
    and d = dy * gamma::

        dgx = rstd * (d - sum(d) / N - normal * sum(d * normal) / N)
        dx = alpha * dgx

    ``dgamma_out`` is the sum over all rows of dy * normal, ``dbeta_out`` that of dy, both in
    float64, rounded to FLOAT; dgx and dx are computed in float32 and rounded once. The page says
    161002 where the tiling answers 561002.

    As the gradient of ``layer_norm(alpha * x + gx, ...)`` in torch.
    """
    dx = facts.output("dx_out", x.shape)

    def scale(index: tuple[slice, ...], gradient: AnyArray) -> None:
        dx[index] = gradient * gradient.dtype.type(alpha)

    names = ("dgx_out", "dgamma_out", "dbeta_out")
    read = residual(facts, x, gx, alpha)
    dgx, dgamma, dbeta = norms.gradients(facts, dy, read, mean, rstd, gamma, names, scale)
    return dx, dgx, dbeta, dgamma
