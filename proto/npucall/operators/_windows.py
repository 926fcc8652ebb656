"""Windows that move over planes: what poolings check, and how large their outputs are.

Planes have two axes, or three with depth: ``count`` says how many. Along an axis of ``size``
numbers, with padding p on both sides, a kernel of k numbers that stand d apart, and steps of s,
there are so many windows::

    (size + 2 p - d (k - 1) - 1) / s + 1

rounded down, or up with ``ceil_mode``; then the last one must begin within the numbers or the
padding before them. Cell (i, j) of window (y, x) is the number (y s - p + i d, x s - p + j d), and
so along three axes.
"""

from __future__ import annotations

from operator import le
from typing import NamedTuple

from npucall.declare import rules
from npucall.declare.draft import Draft
from npucall.errors import AttributeValueError
from npucall.products import A2, A3
from npucall.tensors import Format, Shape

PLANES, VOLUMES = 2, 3
"""How many axes."""
FORMATS = {
    PLANES: (Format.ND, Format.NCL, Format.NCHW),
    VOLUMES: (Format.ND, Format.NCHW, Format.NCDHW),
}
WORDS = {PLANES: "two", VOLUMES: "three"}
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


def axes(
    shape: Shape, given: dict[str, tuple[int, ...]], ceil_mode: bool, count: int = PLANES
) -> tuple[Windows, ...]:
    """The axes of a plane, the last ones of a shape; the dilation may be left out."""
    spread = {name: _for_each(values, count) for name, values in given.items() if values}
    spread = {"stride": spread["kernel_size"], "dilation": (1,) * count, **spread}
    found = []
    for place, size in enumerate(shape[-count:]):
        kernel, stride, padding, dilation = (spread[name][place] for name in NAMES)
        whole = size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1) * ceil_mode
        windows = whole // stride + 1
        if ceil_mode and (windows - 1) * stride >= size + padding:
            windows -= 1
        found.append(Windows(size, kernel, stride, padding, dilation, windows))
    return tuple(found)


def _for_each(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    """A value for each axis; one is for all."""
    return tuple(values) * (count if len(values) == 1 else 1)


def axes_of(draft: Draft, count: int) -> tuple[Windows, ...]:
    """Those of ``self`` in a call."""
    given = {name: draft.attribute(name) for name in NAMES if name in draft.operator.by_name}
    return axes(draft.shape("self"), given, draft.attribute("ceil_mode"), count)


def length(name: str, least: int, count: int = PLANES) -> rules.Rule:
    """One number, or one for each axis; none where ``least`` is 0."""
    words = f"one number or {WORDS[count]}" if least else f"no number, one or {WORDS[count]}"
    return rules.value_fits(
        words, name, lambda value: len(value or ()) in {1, count, *range(least, 1)}
    )


def values(name: str, least: int, most: int = 2**62) -> rules.Rule:
    """The least number that may be in an array; or the only one."""
    words = str(least) if least == most else f"numbers of {least} or more"
    return rules.value_fits(
        words, name, lambda value: all(least <= each <= most for each in value or ())
    )


def half_padding(count: int = PLANES) -> rules.Rule:
    """Padding is at most half of the kernel."""

    def holds(draft: Draft) -> bool:
        padding, kernel = (
            _for_each(draft.attribute(name), count) for name in ("padding", "kernel_size")
        )
        return all(0 <= p <= k // 2 for p, k in zip(padding, kernel, strict=True))

    return rules.requires(
        "0 to half of kernel_size",
        "padding",
        holds=holds,
        found=lambda draft: draft.attribute("padding"),
        error=AttributeValueError,
    )


def within(name: str, count: int) -> rules.Rule:
    """No number of an array is larger than the axis of ``self``."""
    return rules.requires(
        "numbers no larger than the axes of self",
        name,
        holds=lambda draft: all(
            map(le, _for_each(draft.attribute(name), count), draft.shape("self")[-count:])
        ),
        found=lambda draft: f"{draft.attribute(name)}, with shape {draft.shape('self')}",
        error=AttributeValueError,
    )


def checks(count: int = PLANES) -> tuple[rules.Rule, ...]:
    """Lengths and values of kernel, stride, padding and dilation, which is 1 on Atlas A2 and A3."""
    return (
        length("kernel_size", 1, count),
        *after_kernel_length(count),
        UNDILATED,
        rules.except_on((A2, A3), values("dilation", 1)),
    )


def after_kernel_length(count: int = PLANES) -> tuple[rules.Rule, ...]:
    """The same, but for the length of the kernel and values of the dilation."""
    return (
        *(length(name, least, count) for name, least in zip(NAMES[1:], (0, 1, 1), strict=True)),
        values("kernel_size", 1),
        values("stride", 1),
        half_padding(count),
    )


UNDILATED = rules.on((A2, A3), values("dilation", 1, 1))


def elements(axes: int) -> rules.Rule:
    """There is something in the last axes of the planes."""
    return rules.requires(
        "channels and planes with elements" if axes > PLANES else "planes with elements",
        "self",
        holds=lambda draft: 0 not in draft.shape("self")[-axes:],
        found=lambda draft: f"shape {draft.shape('self')}",
    )


def found(count: int = PLANES) -> tuple[rules.Rule, ...]:
    """That planes have windows; finds ``windows``, the shape of what is pooled."""
    return (
        rules.requires(
            "at least one window on each axis",
            "self",
            "kernel_size",
            holds=lambda draft: min(axis.windows for axis in axes_of(draft, count)) > 0,
            found=lambda draft: f"shape {draft.shape('self')}",
        ),
        counted(count),
    )


def counted(count: int = PLANES) -> rules.Rule:
    """Finds ``windows``, the shape of what is pooled."""
    return rules.shape_of(
        "self",
        into="windows",
        make=lambda draft: (
            *draft.shape("self")[:-count],
            *(axis.windows for axis in axes_of(draft, count)),
        ),
    )
