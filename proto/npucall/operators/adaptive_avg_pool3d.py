"""Averages of as many windows with depth as are wanted, and their gradient."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _averages as averages
from npucall.operators._windows import FORMATS, VOLUMES
from npucall.operators.adaptive_avg_pool2d import axes, cost, pooled, same_lead, wanted
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950

PRODUCTS = {**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE}
PLANES = "planes, (N, C, D, H, W) or (C, D, H, W)"


def _elements(first: int) -> rules.Rule:
    """From an axis on there are elements."""
    return rules.requires(
        "extents of 1 or more" + "; the first may be 0" * first,
        "self",
        holds=lambda draft: 0 not in draft.shape("self")[first:],
        found=lambda draft: f"shape {draft.shape('self')}",
    )


ELEMENTS = (rules.on((ASCEND_950,), _elements(1)), rules.except_on((ASCEND_950,), _elements(0)))


@operator(
    "aclnnAdaptiveAvgPool3d",
    Input("self", PLANES),
    Attribute("output_size", Kind.INT_ARRAY, "how many windows there are along the three axes"),
    Output("out", "the averages", shape="pooled", dtype="self", format="self"),
    products=PRODUCTS,
    checks=(
        rules.present("self", "output_size", "out"),
        rules.rank_is("self", 4, 5),
        rules.same_rank("out", as_="self"),
        *ELEMENTS,
        same_lead("out", VOLUMES),
        rules.supported("self", "out"),
        rules.same_dtype("out", as_="self"),
        rules.same_format("out", "self"),
        rules.on((ASCEND_950,), rules.format_in("self", *FORMATS[VOLUMES])),
        rules.public_format("self"),
        wanted(1, VOLUMES),
        rules.shape_of("self", into="pooled", make=pooled),
        rules.same_shape("out", "pooled", "what output_size says"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(
        computes=lambda facts, _: cost(facts.shapes["self"], facts.shapes["pooled"], VOLUMES)
    ),
    sample=Sample({"self": (1, 2, 3, 3, 3)}, attributes={"output_size": [2, 2, 2]}),
    area="convolution and pooling",
    torch="nn.functional.adaptive_avg_pool3d",
    source="ops-nn pooling/adaptive_avg_pool3d: page aclnnAdaptiveAvgPool3d [src:pool3d]",
)
def adaptive_avg_pool3d(facts: Facts, self: Array, output_size: tuple[int, ...]) -> AnyArray:
    """Averages of ``output_size`` windows of ``self``, which are as equal as they can be.

    As AdaptiveAvgPool2d, with depth as one axis more. Planes have elements; on Ascend 950 alone
    there may be no planes.

    As ``adaptive_avg_pool3d`` in torch.
    """
    del output_size
    pooled = facts.shapes["pooled"]
    return averages.average(facts, self, "out", axes(self.shape, pooled, VOLUMES))


@operator(
    "aclnnAdaptiveAvgPool3dBackward",
    Input("grad_output", "gradients of the averages"),
    Input("self", PLANES, read=False),
    Output("out", "gradient of the planes", shape="self", dtype="self", format="self"),
    products={**PRODUCTS, ASCEND_910: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_output", "self", "out"),
        rules.rank_is("self", 4, 5),
        rules.same_rank("grad_output", "out", as_="self"),
        *ELEMENTS,
        rules.same_shape("out", "self"),
        same_lead("grad_output", VOLUMES),
        rules.requires(
            "planes with elements",
            "grad_output",
            holds=lambda draft: 0 not in draft.shape("grad_output")[-VOLUMES:],
            found=lambda draft: f"shape {draft.shape('grad_output')}",
        ),
        rules.supported("grad_output", "self"),
        rules.same_dtype("grad_output", as_="self"),
        rules.same_dtype("out", as_="self"),
        rules.same_format("grad_output", "self"),
        rules.same_format("out", "self"),
        rules.public_format("grad_output"),
        rules.on(
            (ASCEND_910,),
            rules.requires(
                "the gradient of one window",
                "grad_output",
                holds=lambda draft: {*draft.shape("grad_output")[-VOLUMES:]} == {1},
                found=lambda draft: f"shape {draft.shape('grad_output')}",
            ),
        ),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(
        computes=lambda facts, _: cost(facts.shapes["self"], facts.shapes["grad_output"], VOLUMES)
    ),
    sample=Sample({"self": (1, 2, 3, 3, 3), "grad_output": (1, 2, 1, 1, 1)}),
    area="convolution and pooling",
    torch="nn.functional.adaptive_avg_pool3d",
    source="ops-nn pooling/adaptive_avg_pool3d_grad: page aclnnAdaptiveAvgPool3dBackward, its "
    "checks [src:pool3d]",
)
def adaptive_avg_pool3d_backward(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``adaptive_avg_pool3d`` with respect to its planes.

    As AdaptiveAvgPool2dBackward, with depth as one axis more. ``self`` gives the shape alone. On
    Ascend910 there is one window. DOUBLE, which devices take for one window, is left out.

    As ``aten._adaptive_avg_pool3d_backward`` in torch.
    """
    del self
    of_planes = axes(facts.shapes["self"], grad_output.shape, VOLUMES)
    return averages.average_back(facts, grad_output, "out", of_planes)
