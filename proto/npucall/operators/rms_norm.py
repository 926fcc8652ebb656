"""Root mean square normalisation."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _norms as norms
from npucall.operators import _rms_norm as shared
from npucall.operators._rows import held
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950


@operator(
    "aclnnRmsNorm",
    Input("x", "the rows, (A..., R...)"),
    Input("gamma", "a factor for each element of a row, (R...)", as_is=True),
    Attribute("epsilon", Kind.DOUBLE, "is added to the mean of the squares"),
    Output("y_out", "the rows, divided by their root mean square", "x", "x", const=True),
    Output("rstd_out", "what they were multiplied by", "ones", "single", const=True, as_is=True),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present("x", "gamma", "y_out", "rstd_out"),
        *shared.rows_of_dtypes("x", "gamma", "y_out", "rstd_out"),
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("x", *range(1, 9)),
            rules.rank_is("gamma", *range(1, 9)),
            norms.gamma_fits("x"),
            *norms.no_zero("gamma"),
            norms.gamma_is_tail("x"),
            *norms.no_zero("x"),
            rules.same_shape("y_out", "x"),
            *norms.rows_of_gamma("x"),
            rules.same_shape("rstd_out", "ones", "one for each row"),
            rules.not_negative("epsilon"),
        ),
        norms.single,
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(holds=held(backward=False)),
    sample=Sample({"gamma": (3,)}),
    area="normalisation",
    torch="nn.functional.rms_norm",
    source="ops-nn norm/rms_norm: page aclnnRmsNorm, its definition and tiling",
)
def rms_norm(
    facts: Facts, x: Array, gamma: Array, epsilon: float = 1e-6
) -> tuple[AnyArray | None, AnyArray | None]:
    """Rows of ``x`` divided by their root mean square, and multiplied by ``gamma``.

    Over each row of N elements, which are as many as gamma has::

        rstd = 1 / sqrt(sum(x^2) / N + epsilon)
        y = x * rstd * gamma

    Everything is computed in float32, and rounded once. ``rstd_out`` is FLOAT. A row without
    elements, and no rows, are refused (561002), as the software does and the page does not.

    As ``rms_norm`` in torch with this ``eps``; there it is by default that of the dtype.
    """
    y, _, rstd = norms.forward(facts, x, gamma, None, epsilon, ("y_out", "", "rstd_out"))
    return y, rstd
