"""The rectifier with a learned slope."""

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import chosen
from npucall.operators._prelu import one_or_each_channel, slopes_of
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

TENSORS = ("self", "weight", "out")


@operator(
    "aclnnPrelu",
    Input("self", "any numbers; channels are dimension 1"),
    Input("weight", "slope below 0: one element, or one for each channel"),
    Output("out", "result", shape="self", dtype="promotion"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*TENSORS),
        rules.supported(*TENSORS),
        rules.promoted("self", "weight", into="promotion"),
        rules.castable("promotion", to="out"),
        rules.rank_at_most(8, *TENSORS),
        rules.same_shape("self", "out"),
        one_or_each_channel,
        rules.succeed_if_empty("self", "weight"),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=at_once(),
    sample=Sample({"weight": (3,)}, least=-0.9),
    area="activations",
    torch="nn.functional.prelu",
    source="ops-nn page aclnnPrelu",
)
def prelu(facts: Facts, self: Array, weight: Array) -> AnyArray:
    """``self`` where it is positive, and a multiple of it elsewhere.

    With w the weight of an element's channel, or the only one::

        out = self       where self > 0
        out = self * w   elsewhere, 0 and NaN among them

    Channels are dimension 1; ``self`` of rank 0 or 1 has one. A ``weight`` of one element belongs
    to all channels; one of C elements may have any shape, and they count in row-major order. Both
    are converted to their promoted dtype, and the result is rounded to it; then to that of ``out``.

    As in torch, except that torch requires one dtype and a ``weight`` of at most 1 dimension.
    """
    out = facts.output("out", self.shape)
    for index in facts.blocks(self.shape):
        x = facts.read(self, index)
        out[index] = chosen(x > 0, x, x * slopes_of(facts, weight, self.shape, index))
    return out
