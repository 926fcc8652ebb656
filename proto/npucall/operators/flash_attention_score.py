"""Attention, computed in blocks of scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOAT, FLOATS, UINT8, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _attention_checks as shared
from npucall.operators._attention import attend
from npucall.products import A2, A3

EVERY = 2**31 - 1
OUTPUTS = ("softmax_max_out", "softmax_sum_out", "attention_out")


def checks(*more: rules.Rule, packed: bool = False) -> tuple[rules.Rule, ...]:
    """Those of the operator and its versions, which have others besides."""
    layout, lengths = shared.asked_for(packed=packed), shared.LENGTHS if packed else ()
    return (
        rules.present("query", "key", "value", "input_layout", *lengths, *OUTPUTS),
        rules.succeed_if_all_empty(*OUTPUTS),
        rules.same_dtype("key", "value", as_="query"),
        *(() if packed else (rules.same_dtype("real_shift", as_="query"),)),
        rules.positive("head_num"),
        *layout,
        shared.ranks("query", "key", "value"),
        *shared.widths("query", "key", "value"),
        *shared.of_kernel("query", "key", "value", "real_shift", packed=packed),
        rules.dtype_from("query", into="single", make=lambda _: FLOAT),
        rules.shape_of("query", into="rows_of_scores", make=shared.rows_of_scores),
        *shared.statistics("softmax_max_out"),
        *shared.statistics("softmax_sum_out"),
        rules.shape_of("query and value", into="result", make=shared.result),
        *rules.with_status(
            TILING_ERROR,
            rules.same_dtype("attention_out", as_="query"),
            rules.same_shape("attention_out", "result", "that of query, as wide as value"),
        ),
        *more,
    )


def attended(facts: Facts, given: Mapping[str, Any]) -> tuple[AnyArray | None, ...]:
    """What a call gives."""
    maxima, sums = (facts.output(n, facts.shapes["rows_of_scores"]) for n in OUTPUTS[:2])
    out = facts.output("attention_out", facts.shapes["result"])
    attend(shared.attention(facts, given), out, maxima, sums)
    return maxima, sums, None, out


@operator(
    "aclnnFlashAttentionScore",
    Input("query", "queries, (B, N, S, D) in the order of input_layout"),
    Input("key", "keys, of as many or fewer heads"),
    Input("value", "values, of heads that may be narrower"),
    *shared.addend_and_masks("real_shift", "realShiftOptional"),
    *shared.ATTRIBUTES,
    Output(
        "softmax_max_out", "the maximum of each row of scores, (B, N, Sq, 8)",
        "rows_of_scores", "single", const=True, as_is=True,
    ),
    Output(
        "softmax_sum_out", "the sum of e^(score - maximum), (B, N, Sq, 8)",
        "rows_of_scores", "single", const=True, as_is=True,
    ),
    Output(
        "softmax_out_out", "not written", "rows_of_scores", "single", const=True,
        asked=lambda _: False,
    ),
    Output("attention_out", "the result", "result", "query", const=True, c_name="attentionOutOut"),
    products={A2: FLOATS, A3: FLOATS},
    checks=checks(),
    kernel_dtype=rules.dtype_of("query"),
    over=at_once(computes=shared.products),
    sample=Sample(
        dict.fromkeys(("query", "key", "value"), (1, 2, 3, 4))
        | {"real_shift": (1, 2, 3, 3), "atten_mask": (3, 3)},
        {"atten_mask": UINT8},
        {"head_num": 2, "input_layout": "BNSD"},
        without=("drop_mask", "padding_mask"),
    ),
    area="attention",
    torch="nn.functional.scaled_dot_product_attention",
    source="ops-transformer page aclnnFlashAttentionScore",
)  # fmt: skip
def flash_attention_score(
    facts: Facts,
    query: Array,
    key: Array,
    value: Array,
    real_shift: Array | None = None,
    drop_mask: Array | None = None,
    padding_mask: Array | None = None,
    atten_mask: Array | None = None,
    prefix: Sequence[int] | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tokens: int = EVERY,
    next_tokens: int = EVERY,
    head_num: int = 1,
    input_layout: str | None = "BNSD",
    inner_precise: int = 0,
    sparse_mode: int = 0,
) -> tuple[AnyArray | None, ...]:
    """Attention: sums of values, with shares by how much queries and keys have in common.

    For each item and head, i being a row of the queries and j one of the keys::

        S[i, j] = scale_value * (query[i] . key[j] + real_shift[i, j])
        attention_out[i] = sum over j of  e^(S[i, j] - max[i]) / sum[i] * value[j]

    max[i] is the maximum of the row, sum[i] the sum of e^(S[i, j] - max[i]): both come in eight
    equal copies. ``input_layout`` says how the dimensions follow each other, H being N and D in
    one. Several heads of queries may share one of keys and values. e^(S - max) is rounded to the
    dtype of ``query`` before it is multiplied; sums are in float32.

    A score is -3.4028235e38 where ``atten_mask`` is not 0 or the row sees no column of the band: i
    sees i - p to i + q. By ``sparse_mode`` p and q are ``pre_tokens`` and ``next_tokens`` (0),
    there is no band (1), or they are Sq and 0 (2), Sq and Skv - Sq (3), or what is given, counted
    from the last corner: pre_tokens + Sq - Skv and next_tokens + Skv - Sq (4). With 2 to 4 the mask
    must have the shape (2048, 2048), and none of its elements is looked at. Without a mask there is
    no band. A row of which the mask leaves nothing has equal shares of all values, or is 0 with
    ``inner_precise`` 2; one of which the band leaves nothing is 0. Rows of 0 have the maximum
    -3.4028235e38 and the sum 3.4028235e38.

    The reference drops nothing: ``drop_mask``, ``padding_mask``, ``prefix``, a ``keep_prob`` other
    than 1 and other sparse modes are refused. ``softmax_out_out`` is not written. As torch's
    scaled_dot_product_attention, which gives NaN to a row of which nothing is left.
    """
    return attended(facts, locals())
