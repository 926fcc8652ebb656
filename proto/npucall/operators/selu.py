"""SELU and CELU, which end in a constant below 0; and the gradient of SELU."""

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    elementwise,
    operator,
    rules,
)
from npucall.declare.twins import in_place
from npucall.dtypes import AnyArray, Array
from npucall.operators import _floats as floats
from npucall.operators._numerics import chosen

SCALE, DEPTH = 1.0507009873554805, 1.7580993408473766
"""The slope above 0, and how far below 0 SELU goes: the scale times alpha, 1.6732632423543772."""


@operator(
    "aclnnSelu",
    floats.SELF,
    floats.OUT,
    **floats.ALL,
    checks=(
        rules.present("self", "out"),
        rules.supported("self", "out"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self", "out"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    source="ops-nn activation/selu: page aclnnSelu&aclnnInplaceSelu, order of its checks",
    area="activations",
    torch="nn.functional.selu",
)
def selu(facts: Facts, self: Array) -> AnyArray:
    """The scaled exponential linear unit.

    With ``x = self``::

        out = 1.0507009873554805 * x                 where x > 0
        out = 1.7580993408473766 * (e^x - 1)         elsewhere

    Computed in float32 and rounded once; ``out`` may have another of the dtypes. The software takes
    INT32 and INT8 too, and does not say how they are rounded: they are refused here.

    As in torch.
    """
    x = np.asarray(self)
    below = np.expm1(np.minimum(x, 0))
    return chosen(x > 0, x * x.dtype.type(SCALE), below * x.dtype.type(DEPTH), facts.out)


@operator(
    "aclnnSeluBackward",
    floats.UPSTREAM,
    Input("result", "the forward result"),
    Output("grad_input", "gradient with respect to what went in", "result", "result"),
    **floats.ALL,
    checks=(
        rules.present("grad_output", "result", "grad_input"),
        rules.same_dtype("grad_output", "grad_input", as_="result"),
        rules.supported("result"),
        rules.same_shape("grad_output", "result"),
        rules.same_shape("grad_input", "result"),
        rules.succeed_if_empty("result"),
    ),
    kernel_dtype=rules.dtype_of("result"),
    over=elementwise("result"),
    source="ops-nn page aclnnSeluBackward, order of its checks; the kernel of Ascend 950",
    area="activations",
    torch="nn.functional.selu",
)
def selu_backward(facts: Facts, grad_output: Array, result: Array) -> AnyArray:
    """Gradient of ``selu``, from its result.

    ::

        grad_input = grad_output * 1.0507009873554805                where result > 0
        grad_input = grad_output * (result + 1.7580993408473766)     elsewhere

    The page leaves out the scale, and has 0 on the other side. Computed in float32 and rounded
    once. The software takes INT32 and INT8 too: they are refused here.

    As in torch.
    """
    r = np.asarray(result)
    slope = chosen(r > 0, r.dtype.type(SCALE), r + r.dtype.type(DEPTH))
    return np.multiply(grad_output, slope, out=facts.out)


@operator(
    "aclnnCelu",
    floats.SELF,
    Attribute("alpha", Kind.SCALAR, "how far below 0 the results go, not 0"),
    floats.OUT,
    **floats.ALL,
    checks=(
        rules.present("self", "alpha", "out"),
        rules.supported("self"),
        rules.real("alpha"),
        rules.castable("self", to="out"),
        rules.rank_at_most(8, "self"),
        rules.same_shape("out", "self"),
        rules.value_fits("a number other than 0", "alpha", lambda alpha: alpha < 0 or alpha > 0),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"alpha": 1.5}),
    source="ops-nn activation/celu_v2: page aclnnCelu&aclnnInplaceCelu, order of its checks",
    area="activations",
    torch="nn.functional.celu",
)
def celu(facts: Facts, self: Array, alpha: float) -> AnyArray:
    """The exponential linear unit whose slope is continuous.

    With ``x = self``::

        out = x                               where x > 0
        out = alpha * (e^(x / alpha) - 1)     elsewhere

    Computed in float32 and rounded to the dtype of ``self``; ``out`` may have any dtype that this
    can be cast to. ``alpha`` is converted to float32. Its gradient is that of ``aclnnElu`` with
    ``inputScale`` 1 / alpha.

    As in torch.
    """
    x = np.asarray(self)
    depth = x.dtype.type(alpha)
    below = np.expm1(np.minimum(x, 0) / depth)
    return chosen(x > 0, x, below * depth, facts.out)


inplace_selu = in_place(selu)
inplace_celu = in_place(celu)
