"""Gradient of the averages of as many windows as are wanted."""

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators import _averages as averages
from npucall.operators.adaptive_avg_pool2d import axes, cost, same_lead
from npucall.operators.avg_pool2d import PRODUCTS


@operator(
    "aclnnAdaptiveAvgPool2dBackward",
    Input("grad_output", "gradients of the averages"),
    Input("self", "the planes, (N, C, H, W) or (C, H, W)", read=False),
    Output("out", "gradient of the planes", shape="self", dtype="self", format="self"),
    products=PRODUCTS,
    checks=(
        rules.present("grad_output", "self", "out"),
        rules.same_rank("grad_output", as_="self"),
        rules.rank_is("self", 3, 4),
        rules.same_rank("out", as_="self"),
        same_lead("out"),
        same_lead("grad_output"),
        rules.supported("grad_output", "self"),
        rules.same_dtype("grad_output", as_="self"),
        rules.same_dtype("out", as_="self"),
        rules.same_format("grad_output", "self"),
        rules.same_format("out", "self"),
        rules.public_format("self"),
        rules.same_shape("out", "self"),
        rules.fill_if_empty("grad_output", fill=lambda _: 0.0, meaning="0"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(computes=lambda facts, _: cost(facts.shapes["self"], facts.shapes["grad_output"])),
    sample=Sample({"self": (1, 2, 3, 3), "grad_output": (1, 2, 2, 2)}),
    area="convolution and pooling",
    torch="nn.functional.adaptive_avg_pool2d",
    source="ops-nn pooling/adaptive_avg_pool2d_grad: page aclnnAdaptiveAvgPool2dBackward",
)
def adaptive_avg_pool2d_backward(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``adaptive_avg_pool2d`` with respect to its planes.

    Each number of a plane gets the sum of the gradients of the windows that it is in, each divided
    by how many numbers its window has. Sums are taken as there, and rounded once. ``self`` gives
    the shape alone; without gradients ``out`` is 0. Another shape of ``out`` than that of ``self``
    is refused (161002), also where a device does not look.

    As ``aten._adaptive_avg_pool2d_backward`` in torch.
    """
    del self
    both = axes(facts.shapes["self"], grad_output.shape)
    return averages.average_back(facts, grad_output, "out", both)
