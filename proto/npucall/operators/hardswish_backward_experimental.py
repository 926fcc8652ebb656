"""Gradient of hardswish with respect to its input, as an experimental operator has it."""

from npucall.declare import Facts, elementwise, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators.hardswish_backward import hardswish_backward as own
from npucall.operators.hardswish_backward_v2 import without_ends


@operator(
    own.name,
    *own.parameters,
    variant="experimental",
    products=own.products,
    legacy=own.legacy,
    checks=own.checks,
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    area="activations",
    torch="nn.functional.hardswish",
    source="ops-nn experimental folder: README and sample program of hardswish_backward; products, "
    "dtypes and checks are assumed to be those of CANN's own, whose prototype it has",
)
def hardswish_backward_experimental(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``hardswish(self)``, which is ``self * relu6(self + 3) / 6``.

    ::

        out = 0                                 where self <= -3
        out = grad_output * (self / 3 + 0.5)    where -3 < self < 3
        out = grad_output                       where self >= 3 or NaN

    All tensors have one shape and one dtype. A package of the experimental folder brings it to a
    host under CANN's own name, which a server there cannot tell: so a call has to name this variant
    on ``cpu``, and must not name one on an NPU. As aclnnHardswishBackwardV2.
    """
    del facts
    return without_ends(grad_output, self)
