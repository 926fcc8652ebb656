"""Gradients of the gated linear unit with GELU."""

from typing import Any

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import AnyArray, Array
from npucall.operators._gelu import erf_derivative, tanh_derivative
from npucall.operators._glu import halved, places
from npucall.operators.ge_glu import APPROXIMATE, DIM, LEFT, PRODUCTS, Approximate

SLOPES = (erf_derivative, tanh_derivative)
INPUTS = (
    Input("grad_output", "gradient of the loss with respect to the product"),
    Input("self", "what went into the forward operator"),
    Input("gelu", "the activated half, as the forward operator gives it"),
    DIM,
)
OUTPUT = Output("grad_input", "gradient with respect to self", shape="self", dtype="self")
COMMON: dict[str, Any] = {
    **PRODUCTS,
    "area": "activations",
    "checks": (
        rules.present("grad_output", "self", "gelu", "grad_input"),
        rules.supported("grad_output"),
        rules.same_dtype("self", "gelu", "grad_input", as_="grad_output"),
        rules.same_shape("gelu", "grad_output"),
        rules.same_shape("grad_input", "self"),
        *halved(),
        rules.same_shape("grad_output", "half", "that of self with half its extent along dim"),
        rules.one_of("approximate", 0, 1),
        rules.succeed_if_empty("grad_output"),
    ),
    "kernel_dtype": rules.dtype_of("self"),
    "over": at_once(),
    "sample": Sample({"self": (2, 6)}, attributes={"approximate": 0}),
}


@operator(
    "aclnnGeGluBackward",
    *INPUTS,
    APPROXIMATE,
    OUTPUT,
    source="ops-nn activation/ge_glu_grad_v2: page aclnnGeGluBackward, its checks",
    **COMMON,
)
def ge_glu_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    gelu: Array,
    dim: int = -1,
    approximate: Approximate = 1,
) -> AnyArray:
    """Gradient of ``ge_glu(self, dim)``, which is ``first * gelu(second)``, by ``self``.

    ::

        grad_input, first half  = grad_output * gelu
        grad_input, second half = grad_output * first * gelu'(second)

    ``gelu`` is taken as it is given. ``approximate`` is that of the forward operator. All is
    computed in float32, the slope of GELU in float64, and rounded once. A tensor without dimensions
    is refused.

    As the gradient of ``a * gelu(b)`` in torch.
    """
    return gradient(facts, grad_output, self, gelu, dim, approximate, left=False)


@operator(
    "aclnnGeGluV3Backward",
    *INPUTS,
    APPROXIMATE,
    LEFT,
    OUTPUT,
    source="ops-nn activation/ge_glu_grad_v2: page aclnnGeGluV3Backward, its checks",
    **COMMON,
)
def ge_glu_v3_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    gelu: Array,
    dim: int = -1,
    approximate: Approximate = 1,
    activate_left: bool = False,  # in the order of C
) -> AnyArray:
    """Gradient of ``ge_glu_v3``, whose ``activate_left`` says which half is activated.

    ::

        grad_input, the linear half    = grad_output * gelu
        grad_input, the activated half = grad_output * linear * gelu'(activated)

    All else is as in ``aclnnGeGluBackward``.
    """
    return gradient(facts, grad_output, self, gelu, dim, approximate, left=activate_left)


def gradient(
    facts: Facts, upstream: Array, x: Array, gelu: Array, dim: int, approximate: Any, *, left: bool
) -> AnyArray:
    """The gradients of both halves, in their places."""
    shape, axis = facts.shapes["half"], dim % len(x.shape)
    out = facts.output("grad_input", x.shape)

    def compute(index: tuple[slice, ...]) -> None:
        first, second = places(index, axis, shape[axis])
        active, linear = (first, second) if left else (second, first)
        g = facts.read(upstream, index)
        out[linear] = g * facts.read(gelu, index)
        slope = SLOPES[approximate](facts.read(x, active))
        slope *= facts.read(x, linear)
        slope *= g
        out[active] = slope.astype(facts.dtype)

    facts.each(cut(shape, BLOCK), compute)
    return out
