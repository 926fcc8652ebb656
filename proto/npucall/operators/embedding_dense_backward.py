"""Gradient of the look-up of rows by their indices."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    Values,
    at_once,
    operator,
    rules,
)
from npucall.declare.draft import Draft
from npucall.dtypes import (
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    HALF_AND_SINGLE,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    Array,
)
from npucall.operators._labels import check_labels
from npucall.operators._scatter import HELD, Sorted, each_target
from npucall.products import A2, A3, ASCEND_910, ASCEND_950
from npucall.tensors import Shape

NO_ROW = 2**64 - 1
INDICES = (FLOAT, FLOAT16, DOUBLE, INT8, UINT8, INT16, INT32, INT64, BOOL)


def table(draft: Draft) -> Shape:
    """The shape of all rows."""
    return (draft.attribute("num_weights"), draft.shape("grad")[-1])


def fit(draft: Draft) -> bool:
    """Whether there is a row of grad for each index."""
    grad = draft.shape("grad")
    return bool(grad) and (grad[-1] == 0 or prod(grad[:-1]) == prod(draft.shape("indices")))


def _check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    del attributes
    indices = inputs["indices"]
    for block in facts.blocks(indices.shape):
        _places(facts, indices, block, facts.shapes["table"][0])


def _places(facts: Facts, indices: Array, block: Any, count: int) -> AnyArray:
    """Indices as integers, all of which are rows."""
    with np.errstate(invalid="ignore"):
        places = np.asarray(facts.read(indices, block)).astype(np.int64)
    check_labels("indices", places, count)
    return places


@operator(
    "aclnnEmbeddingDenseBackward",
    Input("grad", "gradients of the rows that were looked up, (..., D)"),
    Input("indices", "the index of each", as_is=True),
    Attribute("num_weights", Kind.UINT64, "how many rows there are"),
    Attribute("padding_idx", Kind.UINT64, "the row that gets no gradient; -1 for none"),
    Attribute("scale_grad_by_freq", Kind.BOOL, "whether to divide by how often an index occurs"),
    Output("out", "gradient of all rows, (num_weights, D)", "table", "grad", const=True),
    products={
        **dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
        ASCEND_910: HALF_AND_SINGLE,
    },
    checks=(
        rules.present("grad", "indices", "out"),
        rules.supported("grad"),
        rules.dtype_in("indices", *INDICES),
        rules.supported("out"),
        rules.rank_at_most(8, "grad", "indices", "out"),
        rules.requires(
            "a row for each index",
            "grad",
            "indices",
            holds=fit,
            found=lambda draft: f"{draft.shape('grad')} and {draft.shape('indices')}",
        ),
        rules.shape_of("grad", into="table", make=table),
        rules.same_shape("out", "table", "num_weights rows as long as those of grad"),
        rules.public_format("grad", "indices", "out"),
        rules.succeed_if_empty("grad", "indices"),
    ),
    kernel_dtype=rules.dtype_of("grad"),
    over=at_once(holds=lambda facts, _: HELD * (facts.count("indices") + facts.shapes["table"][0])),
    values=Values(("indices",), _check, lambda facts: range(facts.shapes["table"][0])),
    sample=Sample({"indices": (2,)}, {"indices": INT64}, {"num_weights": 3}),
    area="indexing",
    torch="nn.functional.embedding",
    source="ops-nn index/embedding_dense_grad_v2: page aclnnEmbeddingDenseBackward, its checks",
)
def embedding_dense_backward(
    facts: Facts,
    grad: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int = NO_ROW,
    scale_grad_by_freq: bool = False,
) -> AnyArray:
    """Gradient of ``embedding`` with respect to its rows.

    ::

        out[w] = sum of grad[i] over all i with indices[i] = w

    divided by how many these are with ``scale_grad_by_freq``. The row ``padding_idx`` is 0; -1,
    which is 2^64 - 1, and whatever is no row, stands for none. Sums are taken in float32, in the
    order of the indices, of 64 or more in float64, and rounded once to the dtype of grad, then to
    that of out. Atlas A2 and A3 add FLOAT16 and BF16 in FLOAT if there is room. Indices of other
    dtypes are cut to integers. One that is no row is refused (161002) when the call runs.

    As ``aten.embedding_dense_backward`` in torch.
    """
    width = facts.shapes["table"][1]
    lead = grad.shape[:-1]
    found = Sorted.of(_places(facts, indices, ..., num_weights).reshape(-1), num_weights)
    out = facts.output("out", facts.shapes["table"])

    def add_up(rows: slice, columns: slice) -> None:
        def read(numbers: AnyArray) -> AnyArray:
            index = np.unravel_index(numbers, lead) if lead else (np.zeros_like(numbers),)
            array = facts.read(grad, (*index, columns)) if lead else facts.read(grad, columns)
            return array.reshape(len(numbers), -1)

        total = found.summed(read, rows, columns.stop - columns.start, facts.dtype)
        if scale_grad_by_freq:
            total /= np.maximum(found.counts(rows), 1)[:, np.newaxis]
        if rows.start <= padding_idx < rows.stop:
            total[padding_idx - rows.start] = 0
        out[rows, columns] = total

    each_target(facts, num_weights, width, add_up)
    return out
