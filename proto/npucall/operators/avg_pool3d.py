"""Average of each window of planes with depth, and its gradient."""

from typing import Any

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    at_once,
    operator,
    rules,
)
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import AttributeValueError
from npucall.operators import _averages as averages
from npucall.operators import _windows as windows
from npucall.operators import avg_pool2d as flat
from npucall.operators._windows import VOLUMES
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950

PRODUCTS = dict.fromkeys((A2, A3, ASCEND_950), FLOATS)
KERNEL = "extents of a window, (d, h, w) or one for all"
WINDOWS = (Attribute("kernel_size", Kind.INT_ARRAY, KERNEL), *flat.WINDOWS[1:-1])
SIZES = {"kernel_size": [2], "stride": [1], "padding": [0]}
LENGTHS = tuple(
    windows.length(name, least, VOLUMES)
    for name, least in (("kernel_size", 1), ("padding", 1), ("stride", 0))
)
PLANES = "planes, (N, C, D, H, W) or (C, D, H, W)"


@operator(
    "aclnnAvgPool3d",
    Input("self", PLANES),
    *WINDOWS,
    Output("out", "the averages", shape="windows", dtype="self", format="self"),
    products={**PRODUCTS, ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present("self", *windows.NAMES[:3], "out"),
        rules.supported("self"),
        rules.same_dtype("out", as_="self"),
        rules.same_format("out", "self"),
        rules.public_format("self"),
        rules.rank_is("self", 4, 5),
        rules.same_rank("out", as_="self"),
        *LENGTHS,
        windows.values("kernel_size", 1),
        windows.within("kernel_size", VOLUMES),
        windows.values("stride", 1),
        windows.half_padding(VOLUMES),
        windows.counted(VOLUMES),
        rules.same_shape("out", "windows", "that of the windows"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(computes=lambda facts, given: flat.cost(facts, given, VOLUMES)),
    sample=Sample({"self": (1, 2, 3, 3, 3)}, attributes=SIZES),
    area="convolution and pooling",
    torch="nn.functional.avg_pool3d",
    source="ops-nn pooling/avg_pool3_d: page aclnnAvgPool3d, its checks [src:pool3d]",
)
def avg_pool3d(
    facts: Facts,
    self: Array,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: tuple[int, ...] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int = 0,
) -> AnyArray:
    """Average of each window of ``self``.

    As AvgPool2d, with depth as one axis more. A kernel that is longer than an axis is refused.

    As ``avg_pool3d`` in torch, where a divisor of 0 is None.
    """
    given: dict[str, Any] = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
    given |= {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    given |= {"divisor_override": divisor_override}
    axes = flat.axes(self.shape, given, facts.product, VOLUMES)
    return averages.average(facts, self, "out", axes)


@operator(
    "aclnnAvgPool3dBackward",
    Input("grad_output", "gradients of the averages"),
    Input("self", PLANES, read=False),
    *WINDOWS,
    Output("output", "gradient of the planes", "self", "grad_output", format="grad_output"),
    products=PRODUCTS,
    checks=(
        rules.present("grad_output", "self", *windows.NAMES[:3], "output"),
        rules.supported("grad_output", "self", "output"),
        rules.rank_is("grad_output", 4, 5),
        rules.same_rank("self", "output", as_="grad_output"),
        rules.same_shape("output", "self"),
        *LENGTHS,
        rules.same_format("output", "grad_output"),
        rules.public_format("grad_output"),
        rules.fill_if_empty("grad_output", fill=lambda _: 0.0, meaning="0"),
        windows.values("kernel_size", 1),
        windows.values("stride", 1),
        rules.requires(
            "as many numbers as kernel_size",
            "padding",
            holds=lambda draft: (
                len(draft.attribute("padding")) == len(draft.attribute("kernel_size"))
            ),
            found=lambda draft: draft.attribute("padding"),
            error=AttributeValueError,
        ),
        windows.half_padding(VOLUMES),
        *windows.found(VOLUMES),
        rules.same_shape("grad_output", "windows", "that of the windows"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=at_once(computes=lambda facts, given: flat.cost(facts, given, VOLUMES)),
    sample=Sample({"self": (1, 2, 3, 3, 3), "grad_output": (1, 2, 2, 2, 2)}, attributes=SIZES),
    area="convolution and pooling",
    torch="nn.functional.avg_pool3d",
    source="ops-nn pooling/avg_pool3_d_grad: page aclnnAvgPool3dBackward [src:pool3d]",
)
def avg_pool3d_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: tuple[int, ...] = (0, 0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int = 0,
) -> AnyArray:
    """Gradient of ``avg_pool3d`` with respect to its planes.

    As AvgPool2dBackward, with depth as one axis more. ``self`` gives the shape alone, and
    ``output`` may have another of the dtypes. ``padding`` has as many numbers as ``kernel_size``.
    Without gradients ``output`` is 0; a device leaves it as it was.

    As ``aten.avg_pool3d_backward`` in torch.
    """
    given: dict[str, Any] = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
    given |= {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    given |= {"divisor_override": divisor_override}
    del self
    axes = flat.axes(facts.shapes["self"], given, facts.product, VOLUMES)
    return averages.average_back(facts, grad_output, "output", axes)
