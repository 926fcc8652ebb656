"""Rotary position embedding."""

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _rotary as shared


@operator(
    "aclnnRotaryPositionEmbedding",
    Input("x", "the rows, of four dimensions"),
    Input("cos", "cosines, which broadcast to the rows"),
    Input("sin", "sines"),
    shared.MODE,
    Output("out", "the turned rows", "x", "x"),
    products=shared.PRODUCTS,
    checks=(
        rules.present("x", "cos", "sin", "out"),
        rules.supported("x"),
        rules.same_dtype("cos", "sin", "out", as_="x"),
        *shared.checks("x", summed=False),
        *rules.with_status(TILING_ERROR, rules.same_shape("out", "x")),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(),
    sample=Sample({"x": (2, 3, 2, 4), "cos": (1, 1, 2, 4), "sin": (1, 1, 2, 4)}),
    area="attention",
    source="ops-transformer page aclnnRotaryPositionEmbedding",
)
def rotary_position_embedding(
    facts: Facts, x: Array, cos: Array, sin: Array, mode: int = 0
) -> AnyArray:
    """Rows of which pairs of elements are turned by an angle, that of their position.

    ::

        out = turned(x) * cos + partner(x) * sin

    By ``mode`` the partner of a row is: 0, its halves (a, b) as (-b, a); 1, its neighbours so; 2,
    the quarters within each half. With 3 the row's elements of even and of odd number are its
    halves first, which is what ``turned`` says; otherwise it is x. ``cos`` and ``sin`` have 1 along
    one or two dimensions; on Ascend 950 they may have any shape that broadcasts to x's.

    Everything is computed in float32 and rounded once. Modes 2 and 3 are those of Ascend 950.
    """
    out = facts.output("out", x.shape)
    order, partner, sign = shared.turning(mode, x.shape[-1])

    def compute(index: tuple[slice, ...]) -> None:
        row, place = facts.read(x, index), shared.within(cos.shape, index)
        turned = shared.picked(row, order, facts.read(cos, place))
        turned += shared.picked(row, partner, facts.read(sin, place) * sign.astype(facts.dtype))
        out[index] = turned

    facts.each(shared.rows(x.shape), compute)
    return out
