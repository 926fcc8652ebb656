"""Shrink, hardshrink and softshrink, which are 0 near 0; and gradients of the last two."""

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Kind,
    Output,
    Sample,
    elementwise,
    operator,
    rules,
)
from npucall.dtypes import HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _floats as floats
from npucall.operators._numerics import chosen
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950

TENSORS = (*floats.BOTH, "grad_input")
LAMBD = Attribute("lambd", Kind.SCALAR, "how far from 0 the result is 0")
GRADIENT = Output("grad_input", "gradient with respect to self", "common", "promotion")
NOT_NEGATIVE = rules.value_fits("not less than 0", "lambd", lambda lambd: not lambd < 0)
STRETCHED = (
    rules.broadcast(*floats.BOTH, into="common"),
    rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
)


def near(x: AnyArray, lambd: float) -> AnyArray:
    """Where a number is no farther from 0 than ``lambd``; everywhere for NaN as ``lambd``."""
    if np.isnan(lambd):
        return np.ones(np.shape(x), np.bool_)
    return np.less_equal(np.abs(x), x.dtype.type(lambd))


@operator(
    "aclnnHardshrink",
    floats.SELF,
    LAMBD,
    floats.OUT,
    **floats.ALL,
    checks=(
        rules.present("self", "lambd", "out"),
        rules.supported("self", "out"),
        rules.same_shape("out", "self"),
        rules.rank_at_most(8, "self"),
        rules.real("lambd"),  # the service's; what the operator does is not known
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"lambd": 0.25}),
    source="ops-nn activation/hardshrink: page aclnnHardshrink, order of its checks",
    area="activations",
    torch="nn.functional.hardshrink",
)
def hardshrink(facts: Facts, self: Array, lambd: float) -> AnyArray:
    """``self`` where it is far from 0, and 0 elsewhere.

    ::

        out = 0       where -lambd <= self <= lambd
        out = self    elsewhere, also where self is NaN

    ``lambd`` is converted to float32; a negative one acts as 0, and with NaN all is 0. ``out`` may
    have another of the dtypes.

    As in torch, where a negative ``lambd`` makes nothing 0.
    """
    x = np.asarray(self)
    return chosen(near(x, max(lambd, 0)), x.dtype.type(0), x, facts.out)


@operator(
    "aclnnSoftshrink",
    floats.SELF,
    LAMBD,
    floats.OUT,
    **floats.ALL,
    checks=(
        rules.present("self", "lambd", "out"),
        rules.bfloat16_if_product_has("self", "out"),
        rules.supported("self", "out"),
        rules.same_shape("out", "self"),
        rules.rank_at_most(8, "self"),
        rules.real("lambd"),  # the service's; what the operator does is not known
        NOT_NEGATIVE,
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"lambd": 0.25}),
    source="ops-nn activation/softshrink: page aclnnSoftshrink, order of its checks",
    area="activations",
    torch="nn.functional.softshrink",
)
def softshrink(facts: Facts, self: Array, lambd: float) -> AnyArray:
    """``self`` brought nearer to 0 by ``lambd``, and 0 where it is as near already.

    ::

        out = self - lambd    where self > lambd
        out = self + lambd    where self < -lambd
        out = 0               elsewhere

    NaN stays. ``lambd`` is converted to float32; with NaN all is 0. ``out`` may have another of the
    dtypes.

    As in torch.
    """
    x = np.asarray(self)
    less = x - np.copysign(x.dtype.type(lambd), x)
    return chosen(near(x, lambd), x.dtype.type(0), less, facts.out)


@operator(
    "aclnnShrink",
    floats.SELF,
    LAMBD,
    Attribute("bias", Kind.SCALAR, "how much nearer to 0 the others come"),
    floats.OUT,
    products=dict.fromkeys((A2, A3, ASCEND_950, ASCEND_310P), HALF_AND_SINGLE),
    checks=(
        rules.present("self", "lambd", "bias", "out"),
        rules.supported("self", "out"),
        rules.same_shape("self", "out"),
        rules.real("lambd", "bias"),  # the service's; what the operator does is not known
        NOT_NEGATIVE,
        rules.same_format("self", "out"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"lambd": 0.25, "bias": 0.125}),
    source="ops-nn activation/shrink: page aclnnShrink, order of its checks; Ascend 950 by the "
    "folder's README",
    area="activations",
)
def shrink(facts: Facts, self: Array, lambd: float, bias: float) -> AnyArray:
    """``self`` brought nearer to 0 by ``bias``, and 0 where it is near already.

    ::

        out = self - bias    where self > lambd
        out = self + bias    where self < -lambd
        out = 0              elsewhere, also where self is NaN

    ``lambd`` and ``bias`` are converted to float32; with NaN as ``lambd`` all is 0. ``out`` has the
    shape of ``self``, of any rank, and may have the other dtype.

    torch has it for two values of ``bias``: with 0 it is ``hardshrink``, with ``lambd`` it is
    ``softshrink``; these keep NaN.
    """
    x = np.asarray(self)
    far = np.greater(np.abs(x), x.dtype.type(lambd))  # NaN is not
    less = x - np.copysign(x.dtype.type(1), x) * x.dtype.type(bias)
    return chosen(np.logical_not(far), x.dtype.type(0), less, facts.out)


@operator(
    "aclnnHardshrinkBackward",
    floats.UPSTREAM,
    floats.GONE_IN,
    LAMBD,
    GRADIENT,
    **floats.ALL,
    checks=(
        rules.present(*floats.BOTH, "lambd", "grad_input"),
        rules.supported(*TENSORS),
        rules.rank_at_most(8, *TENSORS),
        rules.promoted(*floats.BOTH, into="promotion"),
        rules.castable("promotion", to="grad_input"),
        rules.real("lambd"),  # the service's; what the operator does is not known
        rules.succeed_if_empty(*floats.BOTH),
        *STRETCHED,
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    sample=Sample(attributes={"lambd": 0.25}),
    source="ops-nn page aclnnHardshrinkBackward, order of its checks",
    area="activations",
    torch="nn.functional.hardshrink",
)
def hardshrink_backward(facts: Facts, grad_output: Array, self: Array, lambd: float) -> AnyArray:
    """Gradient of ``hardshrink(self, lambd)`` with respect to ``self``.

    ::

        grad_input = 0              where -lambd <= self <= lambd
        grad_input = grad_output    elsewhere, also where self is NaN

    ``lambd`` is converted to float32; with NaN all is 0. Inputs are broadcast, and their gradients
    are not summed. Computed in their promoted dtype.

    As in torch.
    """
    return kept(facts, grad_output, self, lambd)


@operator(
    "aclnnSoftshrinkBackward",
    floats.UPSTREAM,
    floats.GONE_IN,
    Attribute("lambd", Kind.SCALAR, LAMBD.description, c_name="lambda"),
    GRADIENT,
    **floats.ALL,
    checks=(
        rules.present(*floats.BOTH, "lambd", "grad_input"),
        rules.supported(*TENSORS),
        rules.rank_at_most(8, *TENSORS),
        rules.promoted(*floats.BOTH, into="promotion"),
        rules.castable("promotion", to="grad_input"),
        *STRETCHED,
        rules.real("lambd"),  # the service's; what the operator does is not known
        NOT_NEGATIVE,
        rules.succeed_if_empty(*floats.BOTH),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    sample=Sample(attributes={"lambd": 0.25}),
    source="ops-nn page aclnnSoftshrinkBackward, order of its checks",
    area="activations",
    torch="nn.functional.softshrink",
)
def softshrink_backward(facts: Facts, grad_output: Array, self: Array, lambd: float) -> AnyArray:
    """Gradient of ``softshrink(self, lambd)`` with respect to ``self``.

    It is that of ``hardshrink``::

        grad_input = 0              where -lambd <= self <= lambd
        grad_input = grad_output    elsewhere, also where self is NaN

    ``lambd`` is converted to float32; with NaN all is 0. Inputs are broadcast, and their gradients
    are not summed. Computed in their promoted dtype.

    As in torch.
    """
    return kept(facts, grad_output, self, lambd)


def kept(facts: Facts, upstream: Array, x: Array, lambd: float) -> AnyArray:
    """The upstream gradient where ``x`` is far from 0."""
    g = np.asarray(upstream)
    return chosen(near(np.asarray(x), lambd), g.dtype.type(0), g, facts.out)
