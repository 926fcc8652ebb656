"""Gradient of the average of each window."""

from typing import Any

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators import _averages as averages
from npucall.operators import _windows as windows
from npucall.operators.avg_pool2d import PRODUCTS, WINDOWS, axes, cost
from npucall.products import ASCEND_310P, ASCEND_910

MOST = 255
"""The largest divisor, of either sign, on products with a kernel for it in FLOAT16."""


@operator(
    "aclnnAvgPool2dBackward",
    Input("grad_output", "gradients of the averages"),
    Input("self", "the planes, (N, C, H, W) or (C, H, W)", read=False),
    *WINDOWS,
    Output("grad_input", "gradient of the planes", "self", "grad_output", format="self"),
    products=PRODUCTS,
    formats_by_rank=True,
    checks=(
        rules.present("grad_output", "self", "kernel_size", "padding", "grad_input"),
        rules.supported("grad_output", "self", "grad_input"),
        rules.same_dtype("grad_input", as_="grad_output"),
        rules.format_of_rank("grad_output", "self", "grad_input"),
        rules.rank_is("self", 3, 4),
        rules.same_rank("grad_output", "grad_input", as_="self"),
        windows.length("kernel_size", 1),
        windows.values("kernel_size", 1),
        windows.length("stride", 0),
        windows.values("stride", 1),
        windows.length("padding", 1),
        windows.half_padding(),
        rules.one_of("cube_math_type", *range(4)),
        rules.same_shape("grad_input", "self"),
        *windows.found(),
        rules.same_shape("grad_output", "windows", "that of the windows"),
        rules.on(
            (ASCEND_910, ASCEND_310P),
            rules.value_fits(
                f"{-MOST} to {MOST}", "divisor_override", lambda value: abs(value) <= MOST
            ),
        ),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=at_once(computes=cost),
    sample=Sample(
        {"self": (1, 2, 3, 3), "grad_output": (1, 2, 2, 2)},
        attributes={"kernel_size": [2], "stride": [1], "padding": [0]},
    ),
    area="convolution and pooling",
    torch="nn.functional.avg_pool2d",
    source="ops-nn pooling/avg_pool3_d_grad: page aclnnAvgPool2dBackward, its checks",
)
def avg_pool2d_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] | None = (),
    padding: tuple[int, ...] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int = 0,
    cube_math_type: int = 0,
) -> AnyArray:
    """Gradient of ``avg_pool2d`` with respect to its planes.

    Each number of a plane gets the sum of the gradients of the windows that it is in, each divided
    by what the forward operator divides by. Sums are taken as there, and rounded once. ``self``
    gives the shape alone. ``stride`` may be null, and is ``kernel_size`` then, also where a device
    would crash; another shape of the gradients than that of the windows is refused (161002), also
    where a device does not look.

    As ``aten.avg_pool2d_backward`` in torch.
    """
    del cube_math_type
    given: dict[str, Any] = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
    given |= {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    given |= {"divisor_override": divisor_override}
    del self
    both = axes(facts.shapes["self"], given, facts.product)
    return averages.average_back(facts, grad_output, "grad_input", both)
