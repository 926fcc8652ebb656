"""Gradients of attention with respect to queries, keys and values."""

from collections.abc import Mapping, Sequence
from typing import Any

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import FLOAT, FLOATS, UINT8, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _attention_checks as shared
from npucall.operators._attention import Given, attend_back
from npucall.operators.flash_attention_score import EVERY
from npucall.products import A2, A3

HEADS = ("query", "key_in", "value")
GIVEN = (*HEADS, "dy", "attention_in")
OUTPUTS = ("dq", "dk", "dv")


def checks(*more: rules.Rule, packed: bool = False) -> tuple[rules.Rule, ...]:
    """Those of the operator and its versions, which have others besides."""
    layout, lengths = shared.asked_for(packed=packed), shared.LENGTHS if packed else ()
    return (
        *(layout if packed else ()),
        rules.present(*GIVEN, *OUTPUTS, "softmax_max", "softmax_sum", "input_layout", *lengths),
        rules.succeed_if_all_empty(*OUTPUTS),
        rules.positive("head_num"),
        shared.ranks(*GIVEN, *OUTPUTS),
        *shared.widths(*HEADS),
        *shared.of_kernel(
            *HEADS,
            "pse_shift",
            (
                *(() if packed else layout),
                rules.same_dtype("key_in", "value", "dy", as_="query"),
                rules.same_dtype(
                    "attention_in", *(() if packed else ("pse_shift",)), *OUTPUTS, as_="query"
                ),
            ),
            packed=packed,
        ),
        rules.shape_of("query", into="rows_of_scores", make=shared.rows_of_scores),
        *shared.statistics("softmax_max"),
        *shared.statistics("softmax_sum"),
        rules.shape_of("query and value", into="result", make=shared.result),
        *rules.with_status(
            TILING_ERROR,
            rules.same_shape("attention_in", "result", "that of query, as wide as value"),
            rules.same_shape("dy", "result", "that of attention_in"),
            *(rules.same_shape(*pair) for pair in zip(OUTPUTS, HEADS, strict=True)),
        ),
        *more,
    )


def gradients(facts: Facts, given: Mapping[str, Any]) -> tuple[AnyArray | None, ...]:
    """What a call gives."""
    outputs = [facts.output(n, facts.shapes[like]) for n, like in zip(OUTPUTS, HEADS, strict=True)]
    statistics = given["softmax_max"], given["softmax_sum"]
    back = Given(given["dy"], given["attention_in"], *statistics)
    attend_back(shared.attention(facts, given), back, *outputs)
    return *outputs, None


@operator(
    "aclnnFlashAttentionScoreGrad",
    Input("query", "queries, (B, N, S, D) in the order of input_layout"),
    Input("key_in", "keys, of as many or fewer heads"),
    Input("value", "values, of heads that may be narrower"),
    Input("dy", "gradient with respect to attention_in"),
    *shared.addend_and_masks("pse_shift", "pseShiftOptional"),
    Input(
        "softmax_max", "the maxima that the forward operator gave, (B, N, Sq, 8)", as_is=True,
        c_name="softmaxMaxOptional",
    ),
    Input("softmax_sum", "its sums", as_is=True, c_name="softmaxSumOptional"),
    Input("softmax_in", "not read", optional=True, read=False, c_name="softmaxInOptional"),
    Input("attention_in", "its result", c_name="attentionInOptional"),
    *shared.ATTRIBUTES,
    Output("dq", "gradient with respect to query", "query", "query", const=True, c_name="dqOut"),
    Output("dk", "gradient with respect to key_in", "key_in", "query", const=True, c_name="dkOut"),
    Output("dv", "gradient with respect to value", "value", "query", const=True, c_name="dvOut"),
    Output(
        "dpse", "not written", "query", "query", const=True, c_name="dpseOut",
        asked=lambda _: False,
    ),
    products={A2: FLOATS, A3: FLOATS},
    checks=checks(),
    kernel_dtype=rules.dtype_of("query"),
    over=at_once(computes=shared.products),
    sample=Sample(
        dict.fromkeys(GIVEN, (1, 2, 3, 4))
        | dict.fromkeys(("softmax_max", "softmax_sum", "softmax_in"), (1, 2, 3, 8))
        | {"pse_shift": (1, 2, 3, 3), "atten_mask": (3, 3)},
        {"atten_mask": UINT8, "softmax_max": FLOAT, "softmax_sum": FLOAT},
        {"head_num": 2, "input_layout": "BNSD"},
        without=("drop_mask", "padding_mask"),
    ),
    area="attention",
    torch="nn.functional.scaled_dot_product_attention",
    source="ops-transformer page aclnnFlashAttentionScoreGrad",
)  # fmt: skip
def flash_attention_score_grad(
    facts: Facts,
    query: Array,
    key_in: Array,
    value: Array,
    dy: Array,
    *,
    pse_shift: Array | None = None,
    drop_mask: Array | None = None,
    padding_mask: Array | None = None,
    atten_mask: Array | None = None,
    softmax_max: Array,
    softmax_sum: Array,
    softmax_in: Array | None = None,
    attention_in: Array,
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
    """Gradients of ``flash_attention_score``, of ``dy`` with respect to its result.

    With the scores S of that operator, and what it gave::

        P[i, j] = e^(S[i, j] - softmax_max[i]) / softmax_sum[i]
        d[i, j] = P[i, j] * (dy[i] . value[j] - dy[i] . attention_in[i])
        dq[i] = scale_value * sum over j of  d[i, j] * key_in[j]
        dk[j] = scale_value * sum over i of  d[i, j] * query[i]
        dv[j] = sum over i of  P[i, j] * dy[i]

    ``dk`` and ``dv`` are summed over the heads of queries that share one of keys. P and d are
    rounded to the dtype of ``query`` before they are multiplied, here P without 1 / softmax_sum,
    which is taken into ``dy``; sums are in float32. Scores that are masked count like others: a row
    of which a mask leaves nothing has the gradients of equal shares. The first copy of each maximum
    and sum is read.

    ``dpse`` is not written. What else is left out, and the rules of masks, are those of
    ``flash_attention_score``. As torch's autograd of scaled_dot_product_attention, except that
    masked scores have no gradient there.
    """
    return gradients(facts, locals())
