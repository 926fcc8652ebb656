"""Gradient of the largest number of each window, which a container names."""

from collections.abc import Mapping
from math import prod
from typing import Any

from npucall.declare import Facts, Input, Output, Sample, Values, at_once, operator, rules
from npucall.dtypes import FLOATS, INT8, AnyArray, Array
from npucall.errors import PARAM_NULLPTR
from npucall.operators import _containers as containers
from npucall.operators import _windows as windows
from npucall.operators._labels import check_labels
from npucall.operators.max_pool2d_with_indices import WINDOWS
from npucall.operators.max_pool2d_with_indices_backward import added_up, holds
from npucall.products import A2, A3


def _check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    del attributes
    numbers = containers.read(facts, inputs["indices"])
    check_labels("indices", numbers, prod(facts.shapes["self"][-2:]))


@operator(
    "aclnnMaxPool2dWithMaskBackward",
    Input("grad_output", "gradients of the largest numbers"),
    Input("self", "the planes, (N, C, H, W) or (C, H, W)", read=False),
    Input("indices", "a container: where the largest numbers stand in their planes", as_is=True),
    *WINDOWS,
    Output("grad_input", "gradient of the planes", shape="self", dtype="self", format="self"),
    products=dict.fromkeys((A2, A3), FLOATS),
    checks=(
        rules.present("kernel_size", "self", "grad_output"),
        *rules.with_status(PARAM_NULLPTR, windows.length("kernel_size", 1)),
        rules.present("indices", "stride", "padding", "dilation", "grad_input"),
        rules.supported("self"),
        rules.same_dtype("grad_output", "grad_input", as_="self"),
        rules.dtype_in("indices", INT8),
        rules.same_format("self", "grad_output"),
        rules.same_format("grad_input", "grad_output"),
        rules.format_in("grad_output", *windows.FORMATS[windows.PLANES]),
        rules.rank_is("self", 3, 4),
        *windows.after_kernel_length(),
        windows.UNDILATED,
        *containers.NOT_ONE_CELL,
        rules.same_shape("grad_input", "self"),
        windows.elements(3),
        *windows.found(),
        rules.same_shape("grad_output", "windows", "that of the windows"),
        *containers.CHECKS,
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=lambda facts, _: holds(facts) + containers.held(facts)),
    values=Values(("indices",), _check, lambda _: range(1)),
    sample=Sample(
        {"self": (1, 2, 3, 3), "grad_output": (1, 2, 2, 2), "indices": (1, 2, 4, 64)},
        {"indices": INT8},
        {"kernel_size": [2], "stride": [1], "padding": [0], "dilation": [1]},
        dense=("indices",),
    ),
    area="convolution and pooling",
    torch="nn.functional.max_pool2d",
    source="ops-nn pooling/max_pool3d_grad_with_argmax: page aclnnMaxPool2dWithMaskBackward",
)
def max_pool2d_with_mask_backward(
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
    """Gradient of ``max_pool2d_with_mask`` with respect to its planes.

    As MaxPool2dWithIndicesBackward, with a container of MaxPool2dWithMask as ``indices``, which
    must have no gaps. A number in it outside of the plane is refused (161002) when the call runs; a
    device does not look.

    As ``aten.max_pool2d_with_indices_backward`` in torch.
    """
    del self, kernel_size, stride, padding, dilation, ceil_mode
    numbers = containers.read(facts, indices)
    return added_up(facts, grad_output, lambda lead: numbers[lead])
