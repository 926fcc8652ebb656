"""Largest number of each window, and where it stands, in a container of bytes."""

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, INT8, AnyArray, Array
from npucall.operators import _containers as containers
from npucall.operators import _windows as windows
from npucall.operators.max_pool2d_with_indices import WINDOWS, holds, pooled
from npucall.products import A2, A3


@operator(
    "aclnnMaxPool2dWithMask",
    Input("self", "planes, (N, C, H, W) or (C, H, W)"),
    *WINDOWS,
    Output("out", "the largest numbers", shape="windows", dtype="self", format="self"),
    Output("indices", "a container: where they stand", "container", "bytes", as_is=True),
    products=dict.fromkeys((A2, A3), FLOATS),
    checks=(
        rules.present("kernel_size", "self", "out"),
        windows.length("kernel_size", 1),
        rules.present("stride", "padding", "dilation", "indices"),
        rules.supported("self"),
        rules.same_dtype("out", as_="self"),
        rules.dtype_in("indices", INT8),
        rules.same_format("out", "self"),
        rules.format_in("self", *windows.FORMATS[windows.PLANES]),
        rules.rank_is("self", 3, 4),
        *windows.after_kernel_length(),
        windows.UNDILATED,
        *containers.NOT_ONE_CELL,
        windows.elements(3),
        *windows.found(),
        rules.same_shape("out", "windows", "that of the windows"),
        *containers.CHECKS,
        rules.dtype_from("the operator", into="bytes", make=lambda _: INT8),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=lambda facts, given: holds(facts, given) + containers.held(facts)),
    sample=Sample(
        {"self": (1, 2, 3, 3)},
        attributes={"kernel_size": [2], "stride": [1], "padding": [0], "dilation": [1]},
        dense=("indices",),
    ),
    area="convolution and pooling",
    torch="nn.functional.max_pool2d",
    unwritten={"indices": lambda _: 0.0},
    source="ops-nn pooling/max_pool3d_with_argmax_v2: page aclnnMaxPool2dWithMask, its checks",
)
def max_pool2d_with_mask(
    facts: Facts,
    self: Array,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: tuple[int, ...] = (0,),
    dilation: tuple[int, ...] = (1,),
    ceil_mode: bool = False,
) -> tuple[AnyArray, AnyArray]:
    """Largest number of each window of ``self``, and where it stands, in bytes.

    As MaxPool2dWithIndices, but that ``indices`` is a container of bytes. With V windows in a plane
    of k cells each it is INT8 of the shape (N, C, k, 32 (V / 16 + 1)), V / 16 rounded up. Its first
    4 N C V bytes are row * W + column of each window as INT32, the lower byte first; the others are
    0, and a device leaves them as they were. A container with gaps is refused: a device begins at
    the start of its storage, whatever its strides say. Windows of one cell are refused (561103): of
    them a device keeps a mask in a layout of its own.

    As ``aten.max_pool2d_with_indices`` in torch, with
    ``indices.flatten()[: 4 * out.numel()].view(torch.int32)``.
    """
    given = dict(zip(windows.NAMES, (kernel_size, stride, padding, dilation), strict=True))
    places = np.empty(facts.shapes["windows"], np.int32)
    out = pooled(facts, self, windows.axes(self.shape, given, ceil_mode), places)
    return out, containers.written(facts, "indices", places)
