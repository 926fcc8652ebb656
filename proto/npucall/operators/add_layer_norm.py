"""Layer normalisation of a sum."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.declare.prepare import Prepared
from npucall.dtypes import BF16, FLOAT, FLOAT16, FLOATS, HALF_AND_SINGLE, AnyArray, Array, DType
from npucall.errors import TILING_ERROR
from npucall.operators import _norms as norms
from npucall.operators._rows import held
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950

TENSORS = ("x1", "x2", "gamma", "beta", "bias", "y_out", "mean_out", "rstd_out", "x_out")
OUTPUTS = TENSORS[5:8]


def row(x1: DType, x2: DType, gamma: DType, y: DType) -> tuple[DType, ...]:
    """The dtypes of ``TENSORS``, by those that are free."""
    return (x1, x2, gamma, gamma, y, y, FLOAT, FLOAT, y)


ALIKE = tuple(row(each, each, each, each) for each in (FLOAT, FLOAT16))
OTHERS = (
    row(BF16, BF16, BF16, BF16),
    *(row(short, short, FLOAT, short) for short in (FLOAT16, BF16)),
    *(row(*pair, FLOAT, FLOAT) for h in (FLOAT16, BF16) for pair in ((FLOAT, h), (h, FLOAT))),
)


def of_sum(draft: Draft) -> DType:
    """FLOAT if one of the addends is, else the dtype of both."""
    return FLOAT if draft.dtype("x1") is not draft.dtype("x2") else draft.dtype("x1")


def bias_fits(draft: Draft) -> bool:
    """Whether there is one for each element, or for each element of a row."""
    given = draft.tensor("bias")
    return given is None or given.shape in (draft.shape("x1"), draft.shape("gamma"))


def without_sum(call: Prepared) -> float | None:
    """The sum that nobody asks for."""
    return None if call.attributes["additional_output"] else 0.0


def without_statistics(call: Prepared) -> float | None:
    """Mean and rstd on Ascend 310P."""
    return 0.0 if call.product is ASCEND_310P else None


@operator(
    "aclnnAddLayerNorm",
    Input("x1", "the rows, (A..., R...)"),
    Input("x2", "what is added to them"),
    Input("gamma", "a factor for each element of a row, (R...)", as_is=True),
    Input("beta", "an addend for each of them, after the norm", as_is=True),
    Input(
        "bias",
        "added to the rows too, of their shape or that of gamma",
        optional=True,
        c_name="biasOptional",
    ),
    Attribute("epsilon", Kind.DOUBLE, "is added to the variance"),
    Attribute("additional_output", Kind.BOOL, "whether the sum is an output"),
    Output("y_out", "the normal form of the sum", "x1", "of_sum", const=True),
    Output("mean_out", "the mean of each row", "ones", "single", const=True, as_is=True),
    Output("rstd_out", "1 / its deviation", "ones", "single", const=True, as_is=True),
    Output("x_out", "the sum, or zeros", "x1", "of_sum", const=True),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present(*(name for name in TENSORS if name != "bias")),
        rules.supported("x1"),
        rules.on((ASCEND_310P,), rules.dtype_row(ALIKE, *TENSORS)),
        rules.except_on((ASCEND_310P,), rules.dtype_row((*ALIKE, *OTHERS), *TENSORS)),
        rules.dtype_from("x1", into="of_sum", make=of_sum),
        norms.single,
        *rules.with_status(
            TILING_ERROR,
            rules.rank_is("x1", *range(1, 9)),
            rules.rank_is("gamma", *range(1, 9)),
            rules.same_rank("x2", "y_out", "mean_out", "rstd_out", "x_out", as_="x1"),
            norms.gamma_fits("x1"),
            *(rules.same_shape(name, "x1") for name in ("x2", "y_out", "x_out")),
            rules.same_shape("beta", "gamma"),
            rules.same_shape("rstd_out", "mean_out"),
            norms.gamma_is_tail("x1"),
            *norms.rows_of_gamma("x1"),
            rules.same_shape("mean_out", "ones", "one for each row"),
            *norms.no_zero("x1"),
            rules.requires(
                "the shape of x1 or of gamma",
                "bias",
                holds=bias_fits,
                found=lambda draft: draft.shape("bias"),
            ),
        ),
    ),
    kernel_dtype=rules.dtype_of("of_sum"),
    over=at_once(holds=held(backward=False)),
    unwritten={
        "x_out": without_sum,
        "mean_out": without_statistics,
        "rstd_out": without_statistics,
    },
    sample=Sample(dict.fromkeys(("gamma", "beta", "bias"), (3,))),
    area="normalisation",
    torch="nn.functional.layer_norm",
    source="ops-nn norm/add_layer_norm: page aclnnAddLayerNorm, its definition and tiling",
)
def add_layer_norm(
    facts: Facts,
    x1: Array,
    x2: Array,
    gamma: Array,
    beta: Array,
    bias: Array | None = None,
    epsilon: float = 1e-5,
    additional_output: bool = False,  # in the order of C
) -> tuple[AnyArray | None, ...]:
    """Normal form of each row of a sum: mean 0 and variance 1.

    With N the elements of ``gamma``, over each row of N elements::

        x = x1 + x2 + bias
        mean = sum(x) / N                 rstd = 1 / sqrt(sum((x - mean)^2) / N + epsilon)
        y = (x - mean) * rstd * gamma + beta

    Everything is computed in float32 and rounded once; ``mean_out`` and ``rstd_out`` are FLOAT. One
    of ``x1`` and ``x2`` may be a short float beside FLOAT; results are FLOAT then. ``x_out`` is x
    with ``additional_output`` and 0 without it: no kernel writes it then. On Ascend 310P none
    writes mean and rstd, which are 0 here.

    As ``layer_norm(x1 + x2 + bias, ...)`` in torch.
    """
    kept = facts.output("x_out", x1.shape)

    def read(index: tuple[slice, ...]) -> AnyArray:
        total = facts.read(x1, index) + facts.read(x2, index)
        if bias is not None:
            total += facts.read(bias, index if bias.shape == x1.shape else ...)
        kept[index] = total if additional_output else np.zeros_like(total)
        return total

    y, mean, rstd = norms.forward(facts, read, gamma, beta, epsilon, OUTPUTS)
    if facts.product is ASCEND_310P:
        mean, rstd = (np.zeros(facts.shapes["ones"], facts.dtype) for _ in OUTPUTS[1:])
    return y, mean, rstd, kept
