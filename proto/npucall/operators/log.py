"""Natural logarithm of a tensor."""

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import AnyArray, Array
from npucall.errors import DTypeError
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910


@operator(
    "aclnnLog",
    Input("self", "the numbers"),
    Output("out", "their logarithms", shape="self", dtype="result"),
    products=shared.on(),
    legacy=shared.before(ASCEND_910, ASCEND_310P, ASCEND_310B),
    checks=(
        rules.present("self", "out"),
        rules.supported("self"),
        rules.supported("out"),
        rules.requires(
            "a floating or complex dtype",
            "out",
            holds=lambda draft: all(
                spec.dtype.kind in ("float", "complex") for _, spec in draft.tensors(("out",))
            ),
            found=lambda draft: draft.dtype("out"),
            error=DTypeError,
        ),
        rules.castable("self", to="out"),
        rules.same_shape("out", "self"),
        rules.rank_at_most(8, "self"),
        rules.float_of("self", into="result"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("result"),
    over=elementwise("self"),
    sample=Sample(integers=range(1, 9)),
    area="arithmetic",
    torch="log",
    source="ops-math page aclnnLog&aclnnInplaceLog",
)
def log(facts: Facts, self: Array) -> AnyArray:
    """Natural logarithm of ``self``.

    ::

        out = ln(self)

    Of 0 it is -inf, below 0 NaN. FLOAT16 and BF16 are computed in float32 and rounded once;
    integers and BOOL are converted to FLOAT. ``out`` has a floating or complex dtype that ``self``
    can be cast to.

    As in torch.
    """
    return np.log(self, out=facts.out)


inplace_log = in_place(log)
