"""Gradient of root mean square normalisation."""

from math import prod

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _norms as norms
from npucall.operators import _rms_norm as shared
from npucall.operators._rows import held
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950

TENSORS = ("dy", "x", "rstd", "gamma", "dx_out", "dgamma_out")


def one_a_row(draft: Draft) -> bool:
    """Whether rstd begins with the extents of the rows, and has no more elements."""
    rows, rstd = draft.shape("rows"), draft.shape("rstd")
    fitting = rstd[: len(rows)] == rows[: len(rstd)]
    return fitting and prod(rstd) == prod(rows)


@operator(
    "aclnnRmsNormGrad",
    Input("dy", "gradient of the result"),
    Input("x", "the rows, (A..., R...)"),
    Input("rstd", "what the rows were multiplied by, as RmsNorm gives it", as_is=True),
    Input("gamma", "a factor for each element of a row, (R...)", as_is=True),
    Output("dx_out", "gradient of the rows", "x", "x", const=True),
    Output("dgamma_out", "gradient of gamma", "gamma", "single", const=True, as_is=True),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present(*TENSORS),
        *shared.rows_of_dtypes(*TENSORS),
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("x", *range(1, 9)),
            rules.rank_is("gamma", *range(1, 9)),
            norms.gamma_fits("x"),
            rules.same_shape("dy", "x"),
            rules.same_shape("dx_out", "x"),
            rules.requires(
                "a last extent of more than 0",
                "dy",
                holds=lambda draft: draft.shape("dy")[-1] > 0,
                found=lambda draft: f"shape {draft.shape('dy')}",
            ),
            *(rules.except_on((ASCEND_950,), rule) for rule in norms.no_zero("x")),
            *norms.rows_of_gamma("x"),
            rules.requires(
                "one element for each row, in its extents",
                "rstd",
                holds=one_a_row,
                found=lambda draft: f"shape {draft.shape('rstd')}",
            ),
            norms.gamma_is_tail("x"),
            rules.same_shape("dgamma_out", "gamma"),
        ),
        norms.single,
        rules.succeed_if_empty("x"),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(holds=held(backward=True)),
    sample=Sample({"rstd": (2, 1), "gamma": (3,)}, {"rstd": FLOAT}),
    area="normalisation",
    torch="nn.functional.rms_norm",
    source="ops-nn norm/rms_norm_grad: page aclnnRmsNormGrad, its definition and tiling",
)
def rms_norm_grad(
    facts: Facts, dy: Array, x: Array, rstd: Array, gamma: Array
) -> tuple[AnyArray | None, AnyArray | None]:
    """Gradients of root mean square normalisation.

    With N the elements of ``gamma``, over each row, normal = x * rstd and d = dy * gamma::

        dx = rstd * (d - normal * sum(d * normal) / N)

    ``dgamma_out`` is the sum over all rows of dy * normal, in float64, rounded to FLOAT; dx is
    computed in float32 and rounded once. ``rstd`` begins with the extents of the rows and has one
    element for each. Without rows dgamma is 0 on Ascend 950; other products refuse that (561002).

    As the gradient of ``rms_norm`` in torch.
    """
    dx, dgamma, _ = norms.gradients(facts, dy, x, None, rstd, gamma, (*TENSORS[-2:], ""))
    return dx, dgamma
