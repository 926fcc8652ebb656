"""Gradient of the largest number of each window."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, Values, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.dtypes import FLOAT, FLOATS, INT32, INT64, AnyArray, Array
from npucall.operators import _windows as windows
from npucall.operators._labels import check_labels
from npucall.operators._windows import PLANES
from npucall.operators.max_pool2d_with_indices import WINDOWS
from npucall.products import A2, A3, ASCEND_950

_MOST = 2
"""Blocks that are computed as one."""
TENSORS = ("grad_output", "self", "indices")


def in_planes(whole: str, count: int) -> Values:
    """``indices`` name numbers of a plane, the last axes of what is ``whole``."""

    def numbers(facts: Facts) -> int:
        return prod(facts.shapes[whole][-count:])

    def check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        del attributes
        indices = inputs["indices"]
        for block in facts.blocks(indices.shape):
            check_labels("indices", facts.read(indices, block), numbers(facts))

    return Values(("indices",), check, lambda facts: range(numbers(facts)))


def holds(facts: Facts, pooled: str = "windows", count: int = PLANES) -> int:
    """Of a plane that is longer than a block."""
    plane, numbers = (prod(facts.shapes[name][-count:]) for name in ("self", pooled))
    return 8 * plane + 32 * numbers if plane > BLOCK else 0


@operator(
    "aclnnMaxPool2dWithIndicesBackward",
    Input("grad_output", "gradients of the largest numbers"),
    Input("self", "the planes, (N, C, H, W) or (C, H, W)", read=False),
    Input("indices", "where the largest numbers stand in their planes", as_is=True),
    *WINDOWS,
    Output("grad_input", "gradient of the planes", shape="self", dtype="self", format="self"),
    products={**dict.fromkeys((A2, A3), (FLOAT,)), ASCEND_950: FLOATS},
    checks=(
        rules.present(*TENSORS, *windows.NAMES, "grad_input"),
        rules.supported("self"),
        rules.same_dtype("grad_output", "grad_input", as_="self"),
        rules.except_on((ASCEND_950,), rules.dtype_in("indices", INT32)),
        rules.on((ASCEND_950,), rules.dtype_in("indices", INT32, INT64)),
        rules.same_format("self", "grad_output"),
        rules.same_format("grad_input", "grad_output"),
        rules.format_in("grad_output", *windows.FORMATS[windows.PLANES]),
        rules.rank_is("self", 3, 4),
        *windows.checks(),
        rules.same_shape("grad_input", "self"),
        windows.elements(3),
        *windows.found(),
        rules.same_shape("grad_output", "windows", "that of the windows"),
        rules.same_shape("indices", "windows", "that of the windows"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(holds=lambda facts, _: holds(facts)),
    values=in_planes("self", PLANES),
    sample=Sample(
        {"self": (1, 2, 3, 3), "grad_output": (1, 2, 2, 2), "indices": (1, 2, 2, 2)},
        {"indices": INT32},
        {"kernel_size": [2], "stride": [1], "padding": [0], "dilation": [1]},
    ),
    area="convolution and pooling",
    torch="nn.functional.max_pool2d",
    source="ops-nn pooling/max_pool3d_grad_with_argmax: page aclnnMaxPool2dWithIndicesBackward",
)
def max_pool2d_with_indices_backward(
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
    """Gradient of ``max_pool2d_with_indices`` with respect to its planes.

    Each number of a plane gets the sum of the gradients of the windows whose ``indices`` name it.
    Sums are taken in float64 and rounded once. An index outside the plane is refused (161002) when
    the call runs, and so are indices of another shape than the gradients; a device does not look.

    As ``aten.max_pool2d_with_indices_backward`` in torch. Atlas A2 and A3 take FLOAT alone, with
    indices of INT32.
    """
    del self, kernel_size, stride, padding, dilation, ceil_mode
    return added_up(facts, grad_output, lambda lead: facts.read(indices, lead))


def added_up(
    facts: Facts,
    grad_output: Array,
    indices: Callable[[tuple[slice, ...]], AnyArray],
    count: int = PLANES,
) -> AnyArray:
    """Writes the gradient of the planes; ``indices`` has those of some planes."""
    shape = facts.shapes["self"]
    plane = prod(shape[-count:])
    out = facts.output("grad_input", shape)

    def add_up(lead: tuple[slice, ...]) -> None:
        places = np.asarray(indices(lead), np.int64)
        check_labels("indices", places, plane)
        extents = [piece.stop - piece.start for piece in lead]
        some = prod(extents)
        places = places.reshape(some, -1) + np.arange(some)[:, np.newaxis] * plane
        weights = facts.read(grad_output, lead).reshape(-1)
        total = np.bincount(places.reshape(-1), weights, some * plane)
        out[lead] = total.reshape(*extents, *shape[-count:])

    limit = shared_block(prod(shape), _MOST)
    facts.each(cut(shape[:-count], max(limit // max(plane, 1), 1)), add_up)
    return out
