"""Windows that move over planes: what poolings check, and how large their outputs are.

Along an axis of ``size`` numbers, with padding p on both sides, a kernel of k numbers that stand d
apart, and steps of s, there are so many windows::

    (size + 2 p - d (k - 1) - 1) / s + 1

rounded down, or up with ``ceil_mode``; then the last one must begin within the numbers or the
padding before them. Cell (i, j) of window (y, x) is the number (y s - p + i d, x s - p + j d).
"""

from __future__ import annotations

from typing import NamedTuple

from npucall.declare import rules
from npucall.declare.draft import Draft
from npucall.errors import AttributeValueError
from npucall.products import A2, A3
from npucall.tensors import Format, Shape

FORMATS = (Format.ND, Format.NCL, Format.NCHW)
NAMES = ("kernel_size", "stride", "padding", "dilation")


class Windows(NamedTuple):
    """The windows along one axis."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    windows: int

    @property
    def reach(self) -> int:
        """Numbers from the first to the last cell of a window."""
        return (self.kernel - 1) * self.dilation + 1


def axes(shape: Shape, given: dict[str, tuple[int, ...]], ceil_mode: bool) -> tuple[Windows, ...]:
    """Both axes of a plane, the last two of a shape; the dilation may be left out."""
    pairs = {name: _both(values) for name, values in given.items() if values}
    pairs = {"stride": pairs["kernel_size"], "dilation": (1, 1), **pairs}
    found = []
    for place, size in enumerate(shape[-2:]):
        kernel, stride, padding, dilation = (pairs[name][place] for name in NAMES)
        whole = size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1) * ceil_mode
        count = whole // stride + 1
        if ceil_mode and (count - 1) * stride >= size + padding:
            count -= 1
        found.append(Windows(size, kernel, stride, padding, dilation, count))
    return tuple(found)


def _both(values: tuple[int, ...]) -> tuple[int, int]:
    return (values[0], values[-1])


def axes_of(draft: Draft) -> tuple[Windows, ...]:
    """Those of ``self`` in a call."""
    given = {name: draft.attribute(name) for name in NAMES if name in draft.operator.by_name}
    return axes(draft.shape("self"), given, draft.attribute("ceil_mode"))


def length(name: str, least: int) -> rules.Rule:
    """At most two numbers."""
    words = "no number, one or two" if not least else "one number or two"
    return rules.value_fits(words, name, lambda value: least <= len(value or ()) <= 2)  # noqa: PLR2004


def values(name: str, least: int, most: int = 2**62) -> rules.Rule:
    """The least number that may be in an array; or the only one."""
    words = str(least) if least == most else f"numbers of {least} or more"
    return rules.value_fits(
        words, name, lambda value: all(least <= each <= most for each in value or ())
    )


half_padding = rules.requires(
    "0 to half of kernel_size",
    "padding",
    holds=lambda draft: all(
        0 <= p <= k // 2
        for p, k in zip(
            _both(draft.attribute("padding")), _both(draft.attribute("kernel_size")), strict=True
        )
    ),
    found=lambda draft: draft.attribute("padding"),
    error=AttributeValueError,
)
"""Padding is at most half of the kernel."""


def checks() -> tuple[rules.Rule, ...]:
    """Lengths and values of kernel, stride, padding and dilation."""
    return (
        length("kernel_size", 1),
        *after_kernel_length(),
        rules.except_on((A2, A3), values("dilation", 1)),
    )


def after_kernel_length() -> tuple[rules.Rule, ...]:
    """The same, but for the length of the kernel, on Atlas A2 and A3."""
    return (
        *(length(name, least) for name, least in zip(NAMES[1:], (0, 1, 1), strict=True)),
        values("kernel_size", 1),
        values("stride", 1),
        half_padding,
        rules.on((A2, A3), values("dilation", 1, 1)),
    )


elements = rules.requires(
    "channels and planes with elements",
    "self",
    holds=lambda draft: 0 not in draft.shape("self")[-3:],
    found=lambda draft: f"shape {draft.shape('self')}",
)
"""There is something in each plane."""


def found() -> tuple[rules.Rule, ...]:
    """That planes have windows; finds ``windows``, the shape of what is pooled."""
    return (
        rules.requires(
            "at least one window on each axis",
            "self",
            "kernel_size",
            holds=lambda draft: min(axis.windows for axis in axes_of(draft)) > 0,
            found=lambda draft: f"shape {draft.shape('self')}",
        ),
        rules.shape_of(
            "self",
            into="windows",
            make=lambda draft: (
                *draft.shape("self")[:-2],
                *(axis.windows for axis in axes_of(draft)),
            ),
        ),
    )
