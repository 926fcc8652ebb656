"""The sum of the tensors of a list."""

from collections.abc import Sequence

from npucall.declare import Facts, Input, Output, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import HALF_AND_SINGLE, INT8, INT32, UINT8, AnyArray, Array
from npucall.operators._lists import NOT_EMPTY
from npucall.products import A2, A3


@operator(
    "aclnnSum",
    Input("tensors", "what is added up", many=True),
    Output("out", "the sum of all", shape="common", dtype="tensors[0]"),
    products=dict.fromkeys((A2, A3), (*HALF_AND_SINGLE, INT8, INT32, UINT8)),
    checks=(
        rules.present("tensors", "out"),
        NOT_EMPTY,
        rules.supported("tensors"),
        rules.supported("out"),
        rules.same_dtype("tensors", "out", as_="tensors[0]"),
        rules.rank_at_most(8, "tensors"),
        rules.rank_at_most(8, "out"),
        rules.broadcast("tensors", into="common"),
        rules.same_shape("out", "common", "what the tensors broadcast to"),
        rules.succeed_if_empty("tensors"),
    ),
    kernel_dtype=rules.dtype_of("tensors[0]"),
    over=at_once(),
    area="arithmetic",
    source="ops-math math/accumulate_nv2: page aclnnSum, order of checks in its source",
)
def sum(facts: Facts, tensors: Sequence[Array]) -> AnyArray:  # noqa: A001  # CANN's name
    """The sum of tensors, which broadcast to one shape: ``out = tensors[0] + tensors[1] + ...``.

    They are added in their order, FLOAT16 in float32 and rounded once; devices add up to 16 of them
    at a time, and round each of these sums. Integers wrap around. All have one dtype: the page says
    so, the software does not check it. An empty list is refused; CANN's software reads foreign
    memory then.

    As ``sum`` of a list in Python.
    """
    common = facts.shapes["common"]
    out = facts.output("out", common)

    def add_up(block: tuple[slice, ...]) -> None:
        total = None
        for tensor in tensors:
            pieces = zip(tensor.shape, block[len(block) - len(tensor.shape) :], strict=True)
            part = facts.read(tensor, tuple(slice(None) if n == 1 else p for n, p in pieces))
            total = part if total is None else total + part
        out[block] = total

    facts.each(cut(common, BLOCK), add_up)
    return out
