"""Averages of as many windows as are wanted."""

from math import prod

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import AnyArray, Array
from npucall.operators import _averages as averages
from npucall.operators import _windows as windows
from npucall.operators.avg_pool2d import PRODUCTS
from npucall.products import ASCEND_950
from npucall.tensors import Shape

AXES = windows.PLANES


def axes(planes: Shape, pooled: Shape, count: int = AXES) -> averages.Axes:
    """Those of the last axes."""
    return tuple(map(averages.adaptive, planes[-count:], pooled[-count:]))


def cost(planes: Shape, pooled: Shape, count: int = AXES) -> int:
    """Numbers that are added up."""
    return averages.cost(prod(planes[:-count]), axes(planes, pooled, count))


def same_lead(name: str, count: int = AXES) -> rules.Rule:
    """All extents but the last ones are those of ``self``."""
    return rules.requires(
        "the leading extents of self",
        name,
        holds=lambda draft: (
            draft.tensor(name) is None or draft.shape(name)[:-count] == draft.shape("self")[:-count]
        ),
        found=lambda draft: f"shape {draft.shape(name)}",
    )


def wanted(least: int, count: int = AXES) -> rules.Rule:
    """A number of windows for each axis."""
    return rules.value_fits(
        f"{windows.WORDS[count]} numbers of {least} or more",
        "output_size",
        lambda value: len(value) == count and min(value) >= least,
    )


def pooled(draft: Draft) -> Shape:
    """The shape of as many windows as are wanted."""
    size = draft.attribute("output_size")
    return (*draft.shape("self")[: -len(size)], *size)


@operator(
    "aclnnAdaptiveAvgPool2d",
    Input("self", "planes, (N, C, H, W) or (C, H, W)"),
    Attribute("output_size", Kind.INT_ARRAY, "how many windows there are along both axes"),
    Output("out", "the averages", shape="pooled", dtype="self", format="self"),
    products=PRODUCTS,
    formats_by_rank=True,
    checks=(
        rules.present("self", "output_size", "out"),
        rules.rank_is("self", 3, 4),
        rules.same_rank("out", as_="self"),
        same_lead("out"),
        rules.on(
            (ASCEND_950,),
            windows.elements(2),
        ),
        rules.supported("self", "out"),
        rules.same_dtype("out", as_="self"),
        rules.same_format("out", "self"),
        rules.format_of_rank("self", "out"),
        rules.on((ASCEND_950,), wanted(0)),
        rules.except_on((ASCEND_950,), wanted(1)),
        rules.shape_of("self", into="pooled", make=pooled),
        rules.same_shape("out", "pooled", "what output_size says"),
        rules.fill_if_empty("self", fill=lambda _: 0.0, meaning="0"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(computes=lambda facts, _: cost(facts.shapes["self"], facts.shapes["pooled"])),
    sample=Sample({"self": (1, 2, 3, 3)}, attributes={"output_size": [2, 2]}),
    area="convolution and pooling",
    torch="nn.functional.adaptive_avg_pool2d",
    source="ops-nn pooling/adaptive_avg_pool2d: page aclnnAdaptiveAvgPool2d, its checks",
)
def adaptive_avg_pool2d(facts: Facts, self: Array, output_size: tuple[int, ...]) -> AnyArray:
    """Averages of ``output_size`` windows of ``self``, which are as equal as they can be.

    Along an axis of n numbers, window i of m has the numbers from i n / m, rounded down, to before
    (i + 1) n / m, rounded up. Sums of up to 32 numbers along an axis are taken in float32, longer
    ones in float64, that of a whole plane in float32, piece by piece; the quotient is rounded once.
    Of planes without numbers the averages are 0; Ascend 950 refuses these, and takes an
    ``output_size`` of 0.

    As ``adaptive_avg_pool2d`` in torch, which refuses planes without numbers.
    """
    del output_size
    return averages.average(facts, self, "out", axes(self.shape, facts.shapes["pooled"]))
