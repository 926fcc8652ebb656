"""Other versions of attention and of its gradients, of which some take sequences.

The second version has ``pse_type`` in addition: 0 adds the addend to scores that are scaled. Others
take sequences of different lengths, one behind the other in a tensor (T, N, D), and running sums of
their lengths. Each is an item by itself: bands are counted from its own corners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Kind, Sample, rules
from npucall.declare.declaration import Operator
from npucall.declare.families import formula_of
from npucall.declare.parameters import Parameter
from npucall.dtypes import FLOAT, AnyArray
from npucall.operators import _attention_checks as shared
from npucall.operators import flash_attention_score as forward
from npucall.operators import flash_attention_score_grad as backward
from npucall.operators._attention import LANES, Given, attend, attend_back
from npucall.operators._attention_checks import LENGTHS, rows_in
from npucall.tensors import Shape

AS_INPUT = "same_as_input"
STARTS = ("q_start_idx", "kv_start_idx")
SECOND = {
    "prefix": tuple(
        Attribute(name, Kind.INT_ARRAY, "must be absent", c_name=f"{c_name}StartIdxOptional")
        for name, c_name in zip(STARTS, ("q", "kv"), strict=True)
    ),
    "sparse_mode": (
        Attribute("pse_type", Kind.INT64, "0 adds after scaling, 1 before; others are refused"),
    ),
}
"""What the second version has behind these."""
OF_LENGTHS = tuple(
    Attribute(
        name, Kind.INT_ARRAY, f"running sums of the lengths of {of}", c_name=f"{c_name}LenOptional"
    )
    for name, of, c_name in zip(
        LENGTHS, ("queries", "keys"), ("actualSeqQ", "actualSeqKv"), strict=True
    )
)
DEFAULTS: dict[str, Any] = {**dict.fromkeys(STARTS), "pse_type": 1}
TEXTS = {
    "(B, N, S, D) in the order of input_layout": "(T, N, D)",
    f"(B, N, Sq, {LANES})": f"(T, N, {LANES})",
    "BSH, SBH, BSND or BNSD": "TND",
    "added to query . key: (B or 1, N, Sq, Skv) or (B, N, 1, Skv)": "must be absent",
}
"""What descriptions say of sequences instead."""


@dataclass(frozen=True)
class SequenceRows:
    """Some rows of a tensor (T, N, D), as one (1, S, N, D) to read or to write."""

    whole: Any
    own: slice

    @property
    def shape(self) -> Shape:
        """Of one item."""
        return (1, self.own.stop - self.own.start, *self.whole.shape[1:])

    def _place(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        _, rows, *rest = index
        return (slice(rows.start + self.own.start, rows.stop + self.own.start), *rest)

    def __getitem__(self, index: tuple[Any, ...]) -> AnyArray:
        block: AnyArray = self.whole[self._place(index)][np.newaxis]
        return block

    def __setitem__(self, index: tuple[Any, ...], block: AnyArray) -> None:
        self.whole[self._place(index)] = block[0]


def sequences(given: Mapping[str, Any], key: str) -> Iterator[tuple[slice, slice, dict[str, Any]]]:
    """Of each sequence its rows and those of its keys, and the call that it is by itself."""
    for own, others in zip(*(rows_in(given[name]) for name in LENGTHS), strict=True):
        parts = {"query": SequenceRows(given["query"], own), "input_layout": "BSND"}
        parts |= {name: SequenceRows(given[name], others) for name in (key, "value")}
        yield own, others, {**given, **parts}


def by_heads(given: Mapping[str, Any]) -> bool:
    """Whether statistics of a sequence are (N, S, 8), though their tensor is (T, N, 8)."""
    layouts = (given.get(f"softmax_{way}_layout", "") for way in ("out", "in"))
    return AS_INPUT not in layouts


def attended(facts: Facts, given: Mapping[str, Any]) -> tuple[AnyArray | None, ...]:
    """Attention of each sequence."""
    out = facts.output("attention_out", facts.shapes["result"])
    sinks = [facts.output(n, facts.shapes["rows_of_scores"]) for n in forward.OUTPUTS[:2]]
    heads = given["head_num"]
    for own, _, parts in sequences(given, "key"):
        rows = own.stop - own.start
        found = [np.empty((1, heads, rows, LANES), facts.dtype) for _ in sinks]
        attend(shared.attention(facts, parts), SequenceRows(out, own), *found)
        for sink, (each,) in zip(sinks, found, strict=True):
            apart = by_heads(given)
            sink[own] = each.reshape(rows, heads, LANES) if apart else each.swapaxes(0, 1)
    return *sinks, None, out


def gradients(facts: Facts, given: Mapping[str, Any]) -> tuple[AnyArray | None, ...]:
    """Gradients of each sequence."""
    shapes = zip(backward.OUTPUTS, backward.HEADS, strict=True)
    dq, dk, dv = (facts.output(name, facts.shapes[like]) for name, like in shapes)
    heads = given["head_num"]
    for own, others, parts in sequences(given, "key_in"):
        read = (facts.read(given[name], (own,)) for name in ("softmax_max", "softmax_sum"))
        maxima, sums = (
            (each.reshape(heads, -1, LANES) if by_heads(given) else each.swapaxes(0, 1))[np.newaxis]
            for each in read
        )
        dy, out = (SequenceRows(given[name], own) for name in ("dy", "attention_in"))
        back = Given(dy, out, maxima, sums)
        sinks = SequenceRows(dq, own), SequenceRows(dk, others), SequenceRows(dv, others)
        attend_back(shared.attention(facts, parts), back, *sinks)
    return dq, dk, dv, None


def _parameters(
    operator: Operator[Any, Any], more: Mapping[str, Sequence[Parameter]], *, packed: bool
) -> tuple[Parameter, ...]:
    """The operator's, each with those behind it."""
    found: list[Parameter] = []
    for parameter in operator.parameters:
        text = parameter.description
        for old, new in TEXTS.items() if packed else ():
            text = text.replace(old, new)
        found += [replace(parameter, description=text), *more.get(parameter.name, ())]
    return tuple(found)


def version(
    name: str,
    more: Mapping[str, Sequence[Parameter]],
    compute: Callable[[Facts, Mapping[str, Any]], Any],
    text: str,
    *,
    packed: bool = True,
    layout: str = "",
) -> Operator[..., Any]:
    """``layout``: the attribute that has the layout of statistics, if there is one."""
    back = "Grad" in name
    operator: Operator[..., Any] = (
        backward.flash_attention_score_grad if back else forward.flash_attention_score
    )
    checks = backward.checks if back else forward.checks
    if packed:
        more = {**more, "prefix": (*OF_LENGTHS, *more.get("prefix", ()))}
    parameters = _parameters(operator, more, packed=packed)
    extra = shared.second_version(*STARTS) if "sparse_mode" in more and not layout else ()
    if layout:
        extra = (rules.present(layout), rules.one_of(layout, "", AS_INPUT))
    optional = dict.fromkeys(each.name for each in operator.inputs if each.optional)
    old = {each.name: operator.default(each) for each in operator.attributes}
    defaults = {**optional, **old, **DEFAULTS, layout: ""}
    if packed:
        defaults["input_layout"] = "TND"
    over: Any = operator.over
    return replace(
        operator,
        name=name,
        parameters=parameters,
        checks=checks(*extra, packed=packed),
        over=replace(over, holds=_statistics) if packed else over,
        sample=_sample(operator) if packed else operator.sample,
        formula=formula_of(name, parameters, defaults, compute, text),
        source=f"ops-transformer page {name}",
    )


def _statistics(facts: Facts, _: Mapping[str, Any]) -> int:
    """The maxima and sums of a sequence, which may be all there is, in eight copies."""
    return 2 * FLOAT.itemsize * facts.count("rows_of_scores")


def _sample(operator: Operator[Any, Any]) -> Sample:
    """Two sequences of two heads."""
    shapes: dict[str, Shape] = {"atten_mask": (2, 2)}
    for each in operator.inputs:
        if each.name in operator.sample.shapes and each.name not in ("real_shift", "pse_shift"):
            width: Any = operator.sample.shapes[each.name][-1]
            shapes.setdefault(each.name, (3, 2, width))
    bias = tuple(n for n in ("real_shift", "pse_shift") if n in operator.by_name)
    lengths = dict.fromkeys(LENGTHS, (1, 3))
    attributes = {**operator.sample.attributes, "input_layout": "TND", **lengths}
    return replace(
        operator.sample, shapes=shapes, attributes=attributes,
        without=(*operator.sample.without, *bias),
    )  # fmt: skip


def _layout(name: str) -> tuple[Attribute, ...]:
    text = f"{AS_INPUT}: (T, N, {LANES}); or empty: (N, S, {LANES}) of each sequence"
    return (Attribute(name, Kind.STRING, text),)


_SECOND = """``{plain}`` with a choice of how its addend is meant.

    ::

        S = scale_value * (query . key + {bias})    pse_type 1
        S = scale_value * query . key + {bias}      pse_type 0

    All else is as in ``{plain}``. The addends that ``pse_type`` 2 and 3 make of slopes are left
    out, and so are ``q_start_idx`` and ``kv_start_idx``, which are for those.
    """
_PACKED = """``{plain}`` of sequences of different lengths, one behind the other.

    ::

        rows actual_seq_q_len[n - 1] to actual_seq_q_len[n] of the queries see
        rows actual_seq_kv_len[n - 1] to actual_seq_kv_len[n] of the keys

    Both are running sums of lengths, which may be 0, and end at T. ``input_layout`` is TND. A mask
    is (Sq, Skv), for the longest sequence, of which shorter ones have the first corner. Bands are
    counted from the corners of each sequence. {layout} With a length of 0 no key is seen, and
    results are 0. All else is as in ``{plain}``; what is added to scores is left out.
    """
_BY_HEADS = """Though its tensor is (T, N, 8), a sequence's
    maxima and sums are (N, S, 8), as a device has them."""
_BY_LAYOUT = """With ``{name}``
    "same_as_input" maxima and sums are (T, N, 8); if it is empty, those of a sequence are
    (N, S, 8), though their tensor is (T, N, 8)."""


def _texts(plain: str, bias: str, layout: str) -> tuple[str, str, str]:
    said = _BY_LAYOUT.format(name=layout)
    return (
        _SECOND.format(plain=plain, bias=bias),
        _PACKED.format(plain=plain, layout=_BY_HEADS),
        _PACKED.format(plain=plain, layout=said),
    )


def _second(facts: Facts, given: Mapping[str, Any]) -> Any:
    return forward.attended(facts, given)


def _second_grad(facts: Facts, given: Mapping[str, Any]) -> Any:
    return backward.gradients(facts, given)


_of, _grad_of = (
    _texts("flash_attention_score", "real_shift", "softmax_out_layout"),
    _texts("flash_attention_score_grad", "pse_shift", "softmax_in_layout"),
)
flash_attention_score_v2 = version(
    "aclnnFlashAttentionScoreV2", SECOND, _second, _of[0], packed=False
)
flash_attention_score_grad_v2 = version(
    "aclnnFlashAttentionScoreGradV2", SECOND, _second_grad, _grad_of[0], packed=False
)
flash_attention_var_len_score = version("aclnnFlashAttentionVarLenScore", {}, attended, _of[1])
flash_attention_var_len_score_v2 = version(
    "aclnnFlashAttentionVarLenScoreV2", SECOND, attended, _of[1]
)
flash_attention_var_len_score_v4 = version(
    "aclnnFlashAttentionVarLenScoreV4", {"sparse_mode": _layout("softmax_out_layout")}, attended,
    _of[2], layout="softmax_out_layout",
)  # fmt: skip
flash_attention_unpadding_score_grad = version(
    "aclnnFlashAttentionUnpaddingScoreGrad", {}, gradients, _grad_of[1]
)
flash_attention_unpadding_score_grad_v2 = version(
    "aclnnFlashAttentionUnpaddingScoreGradV2", SECOND, gradients, _grad_of[1]
)
flash_attention_unpadding_score_grad_v4 = version(
    "aclnnFlashAttentionUnpaddingScoreGradV4", {"dpse": _layout("softmax_in_layout")}, gradients,
    _grad_of[2], layout="softmax_in_layout",
)  # fmt: skip
