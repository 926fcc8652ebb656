"""Look-up of rows by their indices."""

from collections.abc import Mapping
from typing import Any

from npucall.declare import Facts, Input, Output, Sample, Values, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import INT32, INT64, AnyArray, Array
from npucall.operators._arithmetic import on
from npucall.operators._labels import check_labels
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910
from npucall.tensors import Shape


def result(draft: Draft) -> Shape:
    """A row for each index."""
    return (*draft.shape("indices"), draft.shape("weight")[-1])


def _check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    del attributes
    indices = inputs["indices"]
    for block in facts.blocks(indices.shape):
        check_labels("indices", facts.read(indices, block), inputs["weight"].shape[0])


@operator(
    "aclnnEmbedding",
    Input("weight", "the rows, (V, D)"),
    Input("indices", "which of them, of any shape", as_is=True),
    Output("out", "a row for each index", shape="result", dtype="weight", const=True),
    products=on(ASCEND_910, ASCEND_310P, ASCEND_310B),
    checks=(
        rules.present("weight", "indices", "out"),
        rules.supported("weight"),
        rules.same_dtype("out", as_="weight"),
        rules.dtype_in("indices", INT32, INT64),
        rules.rank_at_most(8, "weight", "indices", "out"),
        # The software warns of another number of dimensions.
        rules.rank_is("weight", 2),
        rules.shape_of("indices", into="result", make=result),
        rules.same_shape("out", "result", "a row of weight for each index"),
        rules.requires(
            "rows, since there are indices",
            "weight",
            holds=lambda draft: draft.shape("weight")[0] > 0 or 0 in draft.shape("indices"),
            found=lambda draft: f"shape {draft.shape('weight')}",
        ),
        rules.succeed_if_empty("indices", "weight"),
    ),
    kernel_dtype=rules.dtype_of("weight"),
    over=at_once(widen=False),
    values=Values(("indices",), _check, lambda facts: range(facts.shapes["weight"][0])),
    sample=Sample({"weight": (3, 7), "indices": (4,)}, {"indices": INT64}),
    area="indexing",
    torch="nn.functional.embedding",
    source="ops-nn index/gather_v2: page aclnnEmbedding, order of checks in its source",
)
def embedding(facts: Facts, weight: Array, indices: Array) -> AnyArray:
    """Rows of ``weight`` by their indices: ``out[i] = weight[indices[i]]``.

    ``out`` has the extents of ``indices``, and a row of weight behind them. Nothing is computed, so
    every number keeps its bits. An index that is no row is refused (161002) when the call runs; a
    device would read foreign memory.

    As ``embedding`` in torch.
    """
    out = facts.output("out", facts.shapes["result"])

    def look_up(block: tuple[slice, ...]) -> None:
        *lead, columns = block
        places = facts.read(indices, tuple(lead))
        check_labels("indices", places, weight.shape[0])
        out[block] = facts.read(weight, (places, columns))

    facts.each(cut(facts.shapes["result"], BLOCK), look_up)
    return out
