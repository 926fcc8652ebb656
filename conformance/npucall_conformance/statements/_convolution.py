"""Convolution in loops and in arrays, for its statement and that of its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, DType
from npucall.errors import AttributeValueError, FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.stating.arguments import Arguments, Reals
from npucall_conformance.stating.parts import Attributes, DTypes, Invalid, Setup
from npucall_conformance.stating.promotion import promotion

WITHOUT_FLOAT = ("Ascend910", "Ascend310P")
BUT_310B = ("Ascend910B", "Ascend910_93", "Ascend950", "Ascend910", "Ascend310P")
"""Products that convolve along other than two axes, and transposed."""
TRANSPOSED = Setup(attributes={"transposed": True})


def per_axis(numbers: Any, axes: int) -> list[int]:
    return list(numbers) * axes if len(numbers) == 1 else list(numbers)


class Geometry:
    """What the attributes say of each axis."""

    def __init__(self, values: Any, kernel: Shape) -> None:
        axes = len(kernel) - 2
        self.groups, self.transposed = values["groups"], values["transposed"]
        self.kernel, self.extents = kernel, kernel[2:]
        self.stride = per_axis(values["stride"], axes)
        self.dilation = per_axis(values["dilation"], axes)
        pads = per_axis(values["padding"], axes)
        self.pads = [(p, p) for p in pads]
        if len(pads) == 2 * axes:
            self.pads = list(zip(pads[::2], pads[1::2], strict=True))
        self.more = per_axis(values["output_padding"], axes)[:axes]

    def result(self, images: Shape) -> Shape:
        """The shape of the convolution of images."""
        if not self.transposed:
            return (images[0], self.kernel[0], *self.places(images))
        found = [
            (extent - 1) * self.stride[n] - sum(self.pads[n]) + self.reach(n) + self.more[n]
            for n, extent in enumerate(images[2:])
        ]
        return (images[0], self.kernel[1] * self.groups, *found)

    def places(self, images: Shape) -> Shape:
        """The extents of the convolution of images that is not transposed."""
        return tuple(
            (extent + sum(self.pads[n]) - self.reach(n)) // self.stride[n] + 1
            for n, extent in enumerate(images[2:])
        )

    def reach(self, axis: int) -> int:
        """From the first to the last position of the kernel."""
        return self.dilation[axis] * (self.extents[axis] - 1) + 1

    def joined(self, images: Shape) -> Iterator[tuple[Shape, Shape, Shape]]:
        """For each element of the result, which images and weights are multiplied."""
        result = self.result(images)
        small, large = (result, images) if self.transposed else (images, result)
        few = small[1] // self.groups
        many = large[1] // self.groups
        for n, o, c in product(range(large[0]), range(large[1]), range(few)):
            channel = o // many * few + c
            for place in product(*map(range, large[2:])):
                for tap in product(*map(range, self.extents)):
                    at = tuple(
                        i * s + k * d - p[0]
                        for i, s, k, d, p in zip(
                            place, self.stride, tap, self.dilation, self.pads, strict=True
                        )
                    )
                    if all(0 <= a < e for a, e in zip(at, small[2:], strict=True)):
                        one, other = (n, channel, *at), (n, o, *place)
                        pair = (one, other) if self.transposed else (other, one)
                        yield *pair, (o, c, *tap)

    def spread(self, images: Any, places: Shape) -> Reals:
        """Images with zeros around them, as far as any weight reaches from these places."""
        pads = [(0, 0), (0, 0)]
        for axis, ((before, after), count) in enumerate(zip(self.pads, places, strict=True)):
            needed = self.stride[axis] * (count - 1) + self.reach(axis)
            pads.append((before, max(after, needed - before - images.shape[2 + axis])))
        return np.pad(images, pads)

    def seen(self, spread: Reals, tap: tuple[int, ...], places: Shape) -> Any:
        """A view of what a tap reads for each place."""
        index: list[slice] = [slice(None), slice(None)]
        for k, d, s, count in zip(tap, self.dilation, self.stride, places, strict=True):
            index.append(slice(k * d, k * d + s * (count - 1) + 1, s))
        return spread[tuple(index)]

    def grouped(self, array: Any) -> Any:
        each = array.shape[1] // self.groups
        return array.reshape(array.shape[0], self.groups, each, *array.shape[2:])

    def apply(self, images: Any, weight: Any) -> Reals:
        """The convolution that is not transposed."""
        places = self.places(images.shape)
        spread = self.spread(images, places)
        total: Any = 0.0
        kernel = weight.reshape(self.groups, -1, *weight.shape[1:])
        for tap in product(*map(range, self.extents)):
            seen = self.grouped(self.seen(spread, tap, places))
            total = total + np.einsum("ngc...,goc->ngo...", seen, kernel[(..., *tap)])
        return np.reshape(total, (images.shape[0], weight.shape[0], *places))

    def apply_back(self, gradient: Any, weight: Any, images: Shape) -> Reals:
        """Its transpose: each element of the gradient is added to all that it was made of."""
        whole = self.spread(np.zeros(images), gradient.shape[2:])
        kernel = weight.reshape(self.groups, -1, *weight.shape[1:])
        for tap in product(*map(range, self.extents)):
            part = np.einsum("ngo...,goc->ngc...", self.grouped(gradient), kernel[(..., *tap)])
            place = self.seen(whole, tap, gradient.shape[2:])
            place += part.reshape(place.shape)
        pairs = zip(self.pads, images[2:], strict=True)
        inner = [slice(before, before + extent) for (before, _), extent in pairs]
        inside: Any = slice(None), slice(None), *inner
        found: Reals = whole[inside]
        return found

    def of_weights(self, images: Any, gradient: Any) -> Reals:
        """The gradient of the weights."""
        spread, found = self.spread(images, gradient.shape[2:]), np.zeros(self.kernel)
        axes = "xyz"[: len(self.extents)]
        for tap in product(*map(range, self.extents)):
            seen = self.grouped(self.seen(spread, tap, gradient.shape[2:]))
            parts = f"ngo{axes},ngc{axes}->goc"
            sums = np.einsum(parts, self.grouped(gradient), seen, optimize=True)
            here: Any = slice(None), slice(None), *tap
            found[here] = sums.reshape(self.kernel[:2])
        return found


def weight_shape(base: Shape, attributes: Attributes) -> Shape:
    """Kernels of up to two positions along each axis."""
    extents, groups = tuple(min(extent, 2) for extent in base[2:]), attributes["groups"]
    if attributes["transposed"]:
        return (base[1], 2, *extents)
    return (3 * groups, base[1] // groups, *extents)


def lowered(*names: str) -> Any:
    """FLOAT16 for FLOAT, which these products do not multiply."""

    def find(dtypes: DTypes) -> DType:
        found = promotion(*names)(dtypes)
        return FLOAT16 if found is FLOAT else found

    return find


ATTRIBUTES: dict[str, Any] = {
    "stride": ([1], [2]),
    "padding": (lambda base: [1 if min(base[2:]) > 1 else 0], [0]),
    "dilation": ([1],),
    "transposed": (False,),
    "output_padding": ([0],),
    "groups": (1, lambda base: 2 if base[1] % 2 == 0 else 1),
    "cube_math_type": (1,),
}
DEFAULTS: dict[str, Any] = {
    "stride": (1,), "padding": (0,), "dilation": (1,), "transposed": False, "output_padding": (0,),
    "groups": 1, "cube_math_type": 0,
}  # fmt: skip
DEFAULTED = Setup(only=(FLOAT16,), attributes={"transposed": True}, products=BUT_310B)
"""Transposed, since only then there is an output_padding."""
SIZES: dict[str, Any] = {
    "base_shapes": ((2, 2, 3, 4), (1, 4, 5, 3), (3, 3, 2, 6)),
    "layout_shape": (2, 2, 3, 4),
    "rank_shapes": ((1, 1, 1, 1), (2, 1, 1, 3), (1, 2, 4, 1)),
    "empty_shapes": ((0, 2, 3, 4),),
    "large_shape": (3, 4, 89, 97),
    "large": (
        Setup("many-images", (6301, 2, 4, 2), only=(FLOAT,)),
        Setup("many-channels", (8, 200, 7, 9), only=(FLOAT,)),
        Setup("large-image", (1, 2, 307, 331), only=(FLOAT,)),
    ),
    "sized": lambda count: (max(count // 256, 1), 4, 8, 8),
    "fitted": lambda base: base if len(base) == 4 and min(base[1:]) else (1, 2, 3, 4),
}


def _setup(note: str, base: Shape, *, everywhere: bool = False, **attributes: Any) -> Setup:
    products = () if everywhere else BUT_310B
    return Setup(note, base, attributes=attributes, products=products)


STRETCHED = (
    _setup("sides", (2, 2, 4, 3), everywhere=True, padding=[1, 0, 2, 1]),
    _setup("dilated", (1, 2, 6, 5), everywhere=True, dilation=[2, 3], stride=[2, 1], padding=[1]),
    _setup("far-apart", (1, 2, 7, 5), everywhere=True, stride=[3], padding=[0]),
    _setup("one-axis", (2, 4, 7), stride=[2], padding=[2, 0]),
    _setup("three-axes", (1, 2, 3, 4, 2), stride=[1, 2, 1], padding=[1]),
    _setup("transposed", (2, 2, 3, 4), transposed=True, stride=[2], padding=[1],
           output_padding=[1, 0]),
    _setup("transposed-dilated", (1, 4, 3, 2), transposed=True, dilation=[3], padding=[1]),
    _setup("transposed-far-apart", (1, 2, 3, 2), transposed=True, stride=[3], padding=[0]),
    _setup("transposed-one-axis", (2, 4, 5), transposed=True, stride=[2], padding=[0]),
    _setup("transposed-three-axes", (1, 2, 2, 3, 2), transposed=True, stride=[2], padding=[0],
           output_padding=[1]),
)  # fmt: skip


def form(name: str, *others: str) -> Invalid:
    """A format of images whose channels come last."""
    changes = {each: {"format": Format.NHWC} for each in (name, *others)}
    return Invalid(f"format-nhwc-{name}", changes, (name,), FormatError)


def wrong(row: str, changes: dict[str, Any], *blames: str, **more: Any) -> Invalid:
    """A row about several shapes, or attributes beside them."""
    shapes = {n: {"shape": c} if isinstance(c, tuple) else c for n, c in changes.items()}
    return Invalid(row, shapes, blames, more.pop("error", ShapeError), **more)


def lengths(*names: str, **more: Any) -> tuple[Invalid, ...]:
    """Numbers for three axes of two."""
    return tuple(
        Invalid(f"length-{name}", {name: [1, 1, 1]}, (name,), AttributeValueError, **more)
        for name in names
    )


def geometry(k: Arguments) -> Geometry:
    """What the attributes of a call say."""
    return Geometry(k.values, k["weight"].shape)
