"""Gradient of softmax with respect to its input."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950


def weighted(_: Facts, grad_output: Array, output: Array) -> AnyArray:
    """What is summed along a row."""
    product: AnyArray = grad_output * output
    return product


@operator(
    "aclnnSoftmaxBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("output", "the forward result, probabilities"),
    Attribute("dim", Kind.INT64, "the dimension along which probabilities sum to 1"),
    Output("out", "gradient with respect to the input", shape="grad_output", dtype="grad_output"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_output", "output", "out"),
        rules.except_on((ASCEND_950,), rules.succeed_if_empty("grad_output", "output")),
        rules.bfloat16_if_product_has("grad_output"),
        rules.supported("grad_output", "output"),
        rules.same_dtype("output", as_="grad_output"),
        rules.dim_of("grad_output"),
        rules.rank_at_most(8, "grad_output"),
        rules.same_shape("grad_output", "output"),
        rules.same_shape("grad_output", "out"),
        rules.on((ASCEND_950,), rules.succeed_if_empty("grad_output", "output")),
        # The software converts to any dtype, and checks none.
        rules.supported("out"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=rows("dim", sum_of=weighted),
    sample=Sample(attributes={"dim": 1}),
    area="activations",
    torch="nn.functional.softmax",
    source="ops-nn page aclnnSoftmaxBackward",
)
def softmax_backward(facts: Facts, grad_output: Array, output: Array, dim: int) -> AnyArray:
    """Gradient of ``softmax(x, dim)`` with respect to ``x``, from the result ``output``.

    With the sum along ``dim``::

        out = grad_output * output - sum(grad_output * output) * output

    Both inputs and ``out`` have one shape, both inputs one dtype; rank 0 counts as rank 1.
    Computed in float32 and rounded once to the inputs' dtype. ``out`` may have any dtype that the
    product takes: it is converted last. ``dim`` counts from the end if it is negative.

    As in torch, up to rounding: torch multiplies ``grad_output - sum`` by ``output``.
    """
    product = weighted(facts, grad_output, output)
    return product - facts.row_sum(product) * output
