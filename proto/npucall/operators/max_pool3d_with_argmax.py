"""Largest number of each window of planes with depth, where it stands, and its gradient."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, INT32, INT64, AnyArray, Array
from npucall.operators import _windows as windows
from npucall.operators import max_pool2d_with_indices as flat
from npucall.operators._windows import VOLUMES
from npucall.operators.max_pool2d_with_indices_backward import added_up, holds, in_planes
from npucall.products import A2, A3, ASCEND_950

PRODUCTS = dict.fromkeys((A2, A3, ASCEND_950), FLOATS)
PLANES = "planes, (N, C, D, H, W) or (C, D, H, W)"
KERNEL = "extents of a window, (d, h, w) or one for all"
WINDOWS = (Attribute("kernel_size", Kind.INT_ARRAY, KERNEL), *flat.WINDOWS[1:])
SIZES = {"kernel_size": [2], "stride": [1], "padding": [0], "dilation": [1]}
INDICES = (
    rules.except_on((ASCEND_950,), rules.dtype_in("indices", INT32)),
    rules.on((ASCEND_950,), rules.dtype_in("indices", INT32, INT64)),
)


@operator(
    "aclnnMaxPool3dWithArgmax",
    Input("self", PLANES),
    *WINDOWS,
    Output("out", "the largest numbers", shape="windows", dtype="self", format="self"),
    Output("indices", "where they stand", "windows", "places", as_is=True, format="self"),
    products=PRODUCTS,
    checks=(
        rules.present("self", *windows.NAMES, "out", "indices"),
        rules.supported("self"),
        *INDICES,
        rules.same_dtype("out", as_="self"),
        rules.same_format("out", "self"),
        rules.same_format("indices", "self"),
        rules.rank_is("self", 4, 5),
        rules.format_in("self", *windows.FORMATS[VOLUMES]),
        *windows.checks(VOLUMES),
        rules.succeed_if_empty("self"),
        *windows.found(VOLUMES),
        rules.same_shape("out", "windows", "that of the windows"),
        rules.same_shape("indices", "windows", "that of the windows"),
        rules.dtype_from("indices", into="places", make=lambda _: INT32),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=lambda facts, given: flat.holds(facts, given, VOLUMES)),
    sample=Sample({"self": (1, 2, 3, 3, 3)}, attributes=SIZES),
    area="convolution and pooling",
    torch="nn.functional.max_pool3d",
    source="ops-nn pooling/max_pool3d_with_argmax_v2: page aclnnMaxPool3dWithArgmax [src:pool3d]",
)
def max_pool3d_with_argmax(
    facts: Facts,
    self: Array,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    ceil_mode: bool = False,
) -> tuple[AnyArray, AnyArray]:
    """Largest number of each window of ``self``, and where it stands in its planes.

    As MaxPool2dWithIndices, with depth as one axis more: ``indices`` has (layer * H + row) * W +
    column of the largest one. They are INT32; Ascend 950 takes INT64 too.

    As ``aten.max_pool3d_with_indices`` in torch.
    """
    given = dict(zip(windows.NAMES, (kernel_size, stride, padding, dilation), strict=True))
    indices = facts.output("indices", facts.shapes["windows"])
    axes = windows.axes(self.shape, given, ceil_mode, VOLUMES)
    return flat.pooled(facts, self, axes, indices), indices


@operator(
    "aclnnMaxPool3dWithArgmaxBackward",
    Input("grad_output", "gradients of the largest numbers"),
    Input("self", PLANES, read=False),
    Input("indices", "where the largest numbers stand in their planes", as_is=True),
    *WINDOWS,
    Output("grad_input", "gradient of the planes", shape="self", dtype="self", format="self"),
    products=PRODUCTS,
    checks=(
        rules.present("grad_output", "self", "indices", *windows.NAMES, "grad_input"),
        rules.supported("self"),
        *INDICES,
        rules.same_dtype("grad_output", "grad_input", as_="self"),
        rules.rank_is("self", 4, 5),
        rules.same_rank("grad_output", "indices", "grad_input", as_="self"),
        rules.same_format("grad_output", "self"),
        rules.same_format("indices", "self"),
        rules.same_format("grad_input", "self"),
        rules.format_in("self", *windows.FORMATS[VOLUMES]),
        windows.length("kernel_size", 1, VOLUMES),
        *windows.after_kernel_length(VOLUMES),
        windows.values("dilation", 1),
        rules.same_shape("indices", "grad_output"),
        rules.same_shape("grad_input", "self"),
        rules.succeed_if_empty("self"),
        *windows.found(VOLUMES),
        rules.same_shape("grad_output", "windows", "that of the windows"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=lambda facts, _: holds(facts, "windows", VOLUMES)),
    values=in_planes("self", VOLUMES),
    sample=Sample(
        {"self": (1, 2, 3, 3, 3), **dict.fromkeys(("grad_output", "indices"), (1, 2, 2, 2, 2))},
        {"indices": INT32},
        SIZES,
    ),
    area="convolution and pooling",
    torch="nn.functional.max_pool3d",
    source="ops-nn pooling/max_pool3d_grad_with_argmax: page aclnnMaxPool3dWithArgmaxBackward, its "
    "checks [src:pool3d]",
)
def max_pool3d_with_argmax_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    indices: Array,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    ceil_mode: bool = False,
) -> AnyArray:
    """Gradient of ``max_pool3d_with_argmax`` with respect to its planes.

    As MaxPool2dWithIndicesBackward, with depth as one axis more. An index outside the planes is
    refused (161002) when the call runs, and so are gradients of another shape than the windows;
    a device does not look.

    As ``aten.max_pool3d_with_indices_backward`` in torch.
    """
    del self, kernel_size, stride, padding, dilation, ceil_mode
    return added_up(facts, grad_output, lambda lead: facts.read(indices, lead), VOLUMES)
