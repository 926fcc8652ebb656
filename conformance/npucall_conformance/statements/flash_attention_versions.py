"""The second version of attention, and that of sequences in one tensor [src:flash-attention]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, INT32
from npucall.errors import (
    PARAM_NULLPTR,
    ArgumentError,
    ArgumentMissingError,
    AttributeValueError,
    DTypeError,
    ShapeError,
)
from npucall.tensors import Shape
from npucall_conformance.statements import _attention as shared
from npucall_conformance.statements import flash_attention_score as forward
from npucall_conformance.statements import flash_attention_score_grad as backward
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, follows
from npucall_conformance.stating.parts import Attributes, Invalid, Setup
from npucall_conformance.stating.statement import Statement

LENGTHS = ("actual_seq_q_len", "actual_seq_kv_len")
LAYOUTS = ("softmax_out_layout", "softmax_in_layout")
OF_QUERY = ("query", "dy", "attention_in")
STATISTICS = backward.STATISTICS
TILING = shared.TILING
SECOND = {
    "const aclIntArray* prefixOptional": (
        "const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional"
    ),
    "int64_t sparseMode": "int64_t pseType",
}
PACKED = {
    "const aclIntArray* prefixOptional": (
        "const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional"
    )
}
NPU = "torch_npu calls it in npu_fusion_attention, of sequences or of its own version"


def longer(prototype: str, *added: Mapping[str, str]) -> str:
    """A prototype with parameters behind others."""
    for more in added:
        for old, new in more.items():
            prototype = prototype.replace(old, f"{old}, {new}")
    return prototype


def second(statement: Statement) -> Statement:
    """The second version."""
    starts = {"q_start_idx": None, "kv_start_idx": None}
    return replace(
        statement,
        operator=f"{statement.operator}V2",
        prototype=longer(statement.prototype, SECOND),
        defaults={**statement.defaults, **starts, "pse_type": 1},
        attributes={**statement.attributes, "pse_type": (0, 1)},
        npu=NPU,
        defaulted=replace(statement.defaulted, absent=("drop_mask", "padding_mask")),
        base_shapes=((1, 2, 3, 4),),
        rank_shapes=((2, 1, 1, 3),),
        large=statement.large[2:],
        edges=statement.edges[:1],
        invalid=(*statement.invalid, *of_second()),
    )


def of_second() -> tuple[Invalid, ...]:
    """Rows of what the second version has in addition."""
    return (
        *(Invalid(name, {name: [1]}, (name,), ArgumentError, **TILING)
          for name in ("q_start_idx", "kv_start_idx")),
        *defects.values("pse_type", 2, 3, -1, **TILING),
    )  # fmt: skip


FLASH_ATTENTION_SCORE_V2 = second(forward.FLASH_ATTENTION_SCORE)
FLASH_ATTENTION_SCORE_GRAD_V2 = second(backward.FLASH_ATTENTION_SCORE_GRAD)


def lengths(base: Shape, more: int) -> tuple[int, ...]:
    """Running sums of three sequences, of which the second has no queries, and a key or more."""
    half = base[0] // 2
    return (half + more, half + 2 * more, base[0] + 2 * more)


def rows_of(ends: Any) -> list[slice]:
    return [slice(first, last) for first, last in zip((0, *ends), ends, strict=False)]


def arranged(statistics: Any, values: Mapping[str, Any]) -> Any:
    """Statistics (N, S, ...) of a sequence as they are in its rows of (T, N, ...); and back."""
    if "same_as_input" in [values.get(name) for name in LAYOUTS]:
        return statistics.swapaxes(0, 1)
    return statistics.reshape(statistics.shape[1], statistics.shape[0], *statistics.shape[2:])


def sequences(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The calls that sequences are by themselves."""
    own, others = (rows_of(values[name]) for name in LENGTHS)
    heads = values["head_num"]
    for rows, columns in zip(own, others, strict=True):
        found = {**values, "input_layout": "BSND"}
        for name in ("query", "key", "key_in", "value", "dy", "attention_in"):
            if values.get(name) is not None:
                taken = rows if name in OF_QUERY else columns
                found[name] = values[name][taken][np.newaxis]
        for name in STATISTICS:
            if values.get(name) is not None:
                part = values[name][rows]
                if "same_as_input" in [values.get(each) for each in LAYOUTS]:
                    part = part.swapaxes(0, 1)
                found[name] = part.reshape(1, heads, -1, part.shape[-1])
        mask = values["atten_mask"]
        if mask is not None and values["sparse_mode"] < 2:
            found["atten_mask"] = mask[: rows.stop - rows.start, : columns.stop - columns.start]
        yield found


def has_scores(values: Mapping[str, Any]) -> bool:
    key = values["key" if "key" in values else "key_in"]
    return values["query"].shape[1] * key.shape[1] > 0


def nothing(values: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """What a sequence without scores has."""
    (_, rows, heads, width), value = values["query"].shape, values["value"]
    copies = np.full((1, heads, rows, shared.LANES), shared.LOWEST)
    return {
        "softmax_max_out": copies,
        "softmax_sum_out": -copies,
        "attention_out": np.zeros((1, rows, heads, value.shape[-1])),
        "dq": np.zeros((1, rows, heads, width)),
        **{n: np.zeros(values[v].shape) for n, v in (("dk", "key_in"), ("dv", "value"))
           if v in values},
    }  # fmt: skip


def joined(
    k: Arguments, compute: Callable[[Arguments], Mapping[str, Any]], names: tuple[str, ...]
) -> dict[str, list[Any]]:
    """What each sequence gives, by output."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for values in sequences(k.values):
        one = replace(k, values=values)
        answer = compute(one) if has_scores(values) else nothing(values, k.values)
        for name in names:
            found[name].append(answer[name])
    return found


def together(name: str, parts: list[Any], values: Mapping[str, Any]) -> Any:
    """The sequences of an output as its tensor."""
    if name.startswith("softmax"):
        return np.concatenate([arranged(np.asarray(part)[0], values) for part in parts])
    return np.concatenate([np.asarray(part)[0] for part in parts])


def loops_of(plain: Any, names: tuple[str, ...]) -> Any:
    def loops(k: Arguments) -> dict[str, Any]:
        found = joined(k, plain.loops, names)
        return {name: together(name, parts, k.values) for name, parts in found.items()}

    return loops


def arrays_of(plain: Any, names: tuple[str, ...]) -> Any:
    def arrays(k: Arguments) -> dict[str, Terms]:
        found = joined(k, plain.arrays, names)
        answers = {}
        for name, parts in found.items():
            terms = [each if isinstance(each, Terms) else Terms(each) for each in parts]
            value, size = (
                together(name, own, k.values)
                for own in ([t.value for t in terms], [t.sizes for t in terms])
            )
            answers[name] = Terms(value, size)
        return answers

    return arrays


def torch_of(plain: Any, names: tuple[str, ...]) -> Any:
    """By torch, of each sequence; where it says something else of one, of none."""

    def torch_says(k: Arguments, torch: Any) -> Any:
        own = Arguments(shared.of_numpy(k.values), k.dtypes)
        found = joined(own, lambda one: plain(one, torch) or dict.fromkeys(names), names)
        if any(part is None for parts in found.values() for part in parts):
            return None
        return {
            name: torch.from_numpy(np.ascontiguousarray(together(name, parts, own.values)))
            for name, parts in found.items()
        }

    return torch_says


def faint(k: Arguments) -> tuple[str, ...]:
    """What is faint of each sequence that has scores."""
    found = (
        set(backward.faint(replace(k, values=v))) for v in sequences(k.values) if has_scores(v)
    )
    return tuple(sorted(set.intersection(*found)))


def drawn(place: int) -> Any:
    """A maximum, a sum or a result of what was drawn."""

    def draw_it(draw: Draw) -> Any:
        found = []
        for values in sequences({**draw.earlier, "softmax_max": None, "softmax_sum": None}):
            if has_scores(values):
                part = shared.Scores(values, "key_in", "pse_shift").forward()[place]
            else:
                name = ("softmax_max_out", "softmax_sum_out", "attention_out")[place]
                part = nothing(values, draw.earlier)[name]
                part = part if place < 2 else part.swapaxes(1, 2)
            if place < 2:
                copies = np.repeat(part[0][..., :1], shared.LANES, -1)
                found.append(arranged(copies, draw.earlier))
            else:
                found.append(part[0].swapaxes(0, 1))
        # a call of which the lengths are wrong has other rows
        return np.resize(np.concatenate(found), draw.shape)

    return draw_it


def shapes_of(key: str, names: tuple[str, ...]) -> Any:
    """From (T, N, D): keys have two rows more and half as many heads if they are even."""

    def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
        total, heads, width = base
        few = heads // 2 if heads % 2 == 0 else heads
        narrow = max(width - 1, 1)
        ends = (attributes[name] for name in LENGTHS)
        longest = tuple(max(each.stop - each.start for each in rows_of(sums)) for sums in ends)
        found = {
            "query": base,
            key: (total + 2, few, width),
            "value": (total + 2, few, narrow),
            **dict.fromkeys(("dy", "attention_in"), (total, heads, narrow)),
            **dict.fromkeys((*STATISTICS, "softmax_in"), (total, heads, shared.LANES)),
            **dict.fromkeys(("real_shift", "pse_shift"), (1, heads, *longest)),
            "atten_mask": (2048, 2048) if attributes["sparse_mode"] > 1 else longest,
            "drop_mask": (32,),
            "padding_mask": (3,),
        }
        return {name: found[name] for name in names}

    return shapes


def edges(key: str) -> tuple[Setup, ...]:
    one = {"actual_seq_q_len": (3,), "actual_seq_kv_len": (4,)}
    keys: dict[str, Shape] = {key: (4, 1, 4), "value": (4, 1, 3)}
    return (
        *(
            Setup(
                f"nothing-left-{number}", (3, 2, 4), shapes=keys,
                values={"atten_mask": shared.BLIND},
                attributes={"inner_precise": number, "sparse_mode": 1, **one},
            )
            for number in (0, 2)
        ),
        Setup(
            "no-keys", (5, 2, 3), absent=("atten_mask",),
            attributes={"actual_seq_q_len": (2, 5), "actual_seq_kv_len": (0, 7)},
        ),
        *(
            Setup(
                f"band-{mode}-{before}-{after}", (11, 2, 3),
                attributes={"sparse_mode": mode, "pre_tokens": before, "next_tokens": after},
            )
            for mode, before, after in ((0, 2, -1), (2, 0, 0), (3, 0, 0), (4, 1, 1))
        ),
    )  # fmt: skip


def wrong(
    key: str, bias: str, dtypes: tuple[Invalid, ...] = (), others: tuple[str, ...] = ()
) -> tuple[Invalid, ...]:
    """Rows of widths and of the kernel; (3, 2, 4) and (5, 1, 4) are queries and keys."""

    def shape(name: str, *found: Shape, **more: Any) -> tuple[Invalid, ...]:
        return defects.shapes(name, *found, **more)

    pair = ("query", key)
    return (
        *shape("query", (3, 2, 0), blames=pair, alone=True),
        *shape(key, (5, 0, 4), blames=pair, alone=True),
        *shape(key, (5, 1, 5), blames=(key, "query")),
        *shape("value", (5, 1, 5), blames=("value", key)),
        Invalid("too-wide", {"query": {"shape": (3, 2, 769)}, key: {"shape": (5, 1, 769)}},
                ("query",), ShapeError, alone=True),
        Invalid("dtype-all-int32",
                {n: {"dtype": INT32} for n in ("query", key, "value", *others)},
                ("query",), DTypeError),
        Invalid("heads-3", {"head_num": 3}, ("head_num", "query"), AttributeValueError, **TILING),
        Invalid("heads-that-share-unequally",
                {key: {"shape": (5, 3, 4)}, "value": {"shape": (5, 3, 3)}}, (key, "query"),
                ShapeError, **TILING),
        *shape("value", (5, 2, 3), (6, 1, 3), blames=("value", key), **TILING),
        *dtypes,
        Invalid("no-rows", {"query": {"shape": (0, 2, 4)}}, ("query", key, "value"), ShapeError,
                **TILING),
        *(
            Invalid(f"{name}-{'-'.join(map(str, ends)) or 'empty'}", {name: ends}, (name,),
                    AttributeValueError, **TILING)
            for name, several in (
                (LENGTHS[0], ((2, 1, 3), (-1, 1, 3), (1, 1, 2), ())),
                (LENGTHS[1], ((2, 3, 4), (2, 5), (3, 2, 5))),
            )
            for ends in several
        ),
        Invalid(bias, {bias: {"shape": (1, 2, 2, 2)}}, (bias,), ArgumentError,
                base=Setup(shapes={bias: (1, 2, 2, 2)}), **TILING),
        *shared.left_out(),
        *shape("atten_mask", (3, 5), (1, 1, 2, 2), (2, 2, 2), (2048, 2048), **TILING),
        *shared.wrong_tokens(),
    )  # fmt: skip


SIZES: dict[str, Any] = {
    "base_shapes": ((4, 2, 4), (7, 3, 3), (5, 4, 2)),
    "layout_shape": (3, 2, 4),
    "rank_shapes": ((2, 1, 1), (3, 1, 3)),
    "large_shape": (67, 24, 64),
    "large": (
        Setup("many-rows", (1100, 1, 3), only=(FLOAT,), absent=("",)),
        Setup("many-heads", (113, 40, 23), only=(FLOAT,)),
        Setup("wide", (167, 2, 300), only=(FLOAT,)),
    ),
    "sized": lambda count: (16, max(count // 1024, 1), min(max(count // 16, 1), 64)),
    "fitted": lambda base: (max(base[0], 2), *(max(extent, 1) for extent in base[1:])),
}


FEW: dict[str, Any] = {
    **SIZES, "base_shapes": ((5, 4, 2),), "rank_shapes": ((3, 1, 3),), "large": SIZES["large"][2:],
}  # fmt: skip
"""Of versions that differ from the first in a detail."""


def packed(  # noqa: PLR0913  # all that versions differ in
    plain: Statement,
    operator: str,
    prototype: str,
    key: str,
    invalid: tuple[Invalid, ...],
    attributes: Attributes,
    defaults: Attributes,
    torch: Any,
) -> Statement:
    """A version of sequences."""
    names = tuple(each.name for each in plain.outputs if each.asked is None)
    bias = "real_shift" if key == "key" else "pse_shift"
    places = {"softmax_max": 0, "softmax_sum": 1, "attention_in": 2}
    inputs = tuple(
        replace(each, refused=True) if each.name == bias
        else replace(each, domain=follows(drawn(places[each.name]))) if each.name in places
        else each
        for each in plain.inputs
    )  # fmt: skip

    def rows(k: Arguments) -> Shape:
        return (*k["query"].shape[:2], shared.LANES)

    def result(k: Arguments) -> Shape:
        return (*k["query"].shape[:2], k["value"].shape[2])

    made = {"softmax_max_out": rows, "softmax_sum_out": rows, "softmax_out_out": rows,
            "attention_out": result}  # fmt: skip
    own = {**plain.attributes, "input_layout": ("TND",), "sparse_mode": (1, 0), **attributes}
    return replace(
        plain,
        operator=operator,
        prototype=prototype,
        inputs=inputs,
        outputs=tuple(replace(o, shape=made.get(o.name, o.shape)) for o in plain.outputs),
        loops=loops_of(PLAIN[key], names),
        arrays=arrays_of(PLAIN[key], names),
        shapes=shapes_of(key, tuple(each.name for each in plain.inputs)),
        torch=torch_of(torch, names if key == "key_in" else names[-1:]),
        npu=NPU,
        defaults={**plain.defaults, "input_layout": "TND", **defaults},
        attributes={
            **own,
            LENGTHS[0]: (lambda base: lengths(base, 0),),
            LENGTHS[1]: (lambda base: lengths(base, 1),),
        },
        faint=faint if key == "key_in" else plain.faint,
        broadcast=(),
        edges=edges(key)[: 1 if attributes else None],
        invalid=invalid,
        **(FEW if attributes else SIZES),
        defaulted=Setup(
            base=(3, 1, 4), shapes={key: (4, 1, 4), "value": (4, 1, 3)},
            values={"atten_mask": shared.BLIND},
            attributes={"sparse_mode": 0, LENGTHS[0]: (3,), LENGTHS[1]: (4,)},
            absent=("",),
        ),
    )  # fmt: skip


PLAIN: dict[str, Any] = {"key": forward, "key_in": backward}


def of_layout(name: str) -> tuple[Invalid, ...]:
    """Rows of the layout of statistics."""
    return (
        Invalid(f"null-{name}", {name: None}, (name,), ArgumentMissingError, PARAM_NULLPTR),
        *defects.values(name, "TND"),
    )


def of_forward(*more: Invalid) -> tuple[Invalid, ...]:
    """The rows of attention."""
    shape = defects.shapes
    return (
        *defects.nulls("query", "key", "value", "input_layout", *LENGTHS, *forward.OUTPUTS),
        *defects.dtypes("key", "value"),
        *defects.values("head_num", 0, -1),
        *defects.values("input_layout", "BSND", "tnd"),
        *shape("query", (3, 8)),
        *shape("key", (5, 4)),
        *shape("value", (5, 1, 3, 1)),
        *wrong("key", "real_shift"),
        *defects.dtypes("softmax_max_out", found=FLOAT16, **TILING),
        *shape("softmax_max_out", (3, 2), (2, 3, 8), **TILING),
        *defects.dtypes("softmax_sum_out", found=FLOAT16, **TILING),
        *shape("softmax_sum_out", (3, 2, 1), **TILING),
        *defects.dtypes("attention_out", found=FLOAT16, **TILING),
        *shape("attention_out", (3, 2, 4), (3, 6), **TILING),
        *more,
    )


def of_gradients(*more: Invalid) -> tuple[Invalid, ...]:
    """The rows of the gradients."""
    shape, outputs = defects.shapes, backward.OUTPUTS
    return (
        *defects.values("input_layout", "BSND", ""),
        *defects.nulls(*backward.GIVEN, *outputs, *STATISTICS, "input_layout", *LENGTHS),
        *defects.values("head_num", 0, -1),
        *shape("query", (3, 8)),
        *shape("key_in", (5, 4)),
        *shape("value", (5, 1, 3, 1)),
        *shape("dy", (6,)),
        *shape("attention_in", (3, 6)),
        *shape("dq", (3, 8)),
        *shape("dk", (20,)),
        *shape("dv", (5, 3)),
        *wrong(
            "key_in", "pse_shift",
            (
                *defects.dtypes("key_in", "value", "dy", "attention_in", **TILING),
                *defects.dtypes(*outputs, found=FLOAT16, **TILING),
            ),
            others=("dy", "attention_in", *outputs),
        ),
        *(
            row
            for name in STATISTICS
            for row in (
                *defects.dtypes(name, found=FLOAT16, **TILING),
                *shape(name, (3, 2), (3, 2, 1), **TILING),
            )
        ),
        *shape("attention_in", (3, 2, 4), **TILING),
        *shape("dy", (3, 2, 4), **TILING),
        *shape("dq", (3, 2, 3), **TILING),
        *shape("dk", (5, 2, 4), **TILING),
        *shape("dv", (5, 1, 4), **TILING),
        *more,
    )  # fmt: skip


_STARTS = {"q_start_idx": None, "kv_start_idx": None, "pse_type": 1}
_LAYOUTS = ("", "same_as_input")


def forward_version(
    version: str,
    added: tuple[Mapping[str, str], ...],
    attributes: Attributes,
    defaults: Attributes,
    *more: Invalid,
) -> Statement:
    return packed(
        forward.FLASH_ATTENTION_SCORE, f"aclnnFlashAttentionVarLenScore{version}",
        longer(forward.FLASH_ATTENTION_SCORE.prototype, *added, PACKED), "key", of_forward(*more),
        attributes, defaults, forward.torch_says,
    )  # fmt: skip


def backward_version(
    version: str,
    added: tuple[Mapping[str, str], ...],
    attributes: Attributes,
    defaults: Attributes,
    *more: Invalid,
) -> Statement:
    return packed(
        backward.FLASH_ATTENTION_SCORE_GRAD, f"aclnnFlashAttentionUnpaddingScoreGrad{version}",
        longer(backward.FLASH_ATTENTION_SCORE_GRAD.prototype, *added, PACKED), "key_in",
        of_gradients(*more), attributes, defaults, backward.torch_says,
    )  # fmt: skip


FLASH_ATTENTION_VAR_LEN_SCORE = forward_version("", (), {}, {})
FLASH_ATTENTION_VAR_LEN_SCORE_V2 = forward_version(
    "V2", (SECOND,), {"pse_type": (1, 0)}, _STARTS, *of_second()
)
FLASH_ATTENTION_VAR_LEN_SCORE_V4 = forward_version(
    "V4", ({"int64_t sparseMode": "char* softmaxOutLayout"},), {LAYOUTS[0]: _LAYOUTS},
    {LAYOUTS[0]: ""}, *of_layout(LAYOUTS[0]),
)  # fmt: skip
FLASH_ATTENTION_UNPADDING_SCORE_GRAD = backward_version("", (), {}, {})
FLASH_ATTENTION_UNPADDING_SCORE_GRAD_V2 = backward_version(
    "V2", (SECOND,), {"pse_type": (1, 0)}, _STARTS, *of_second()
)
FLASH_ATTENTION_UNPADDING_SCORE_GRAD_V4 = backward_version(
    "V4", ({"const aclTensor* dpseOut": "char* softmaxInLayout"},), {LAYOUTS[1]: _LAYOUTS},
    {LAYOUTS[1]: ""}, *of_layout(LAYOUTS[1]),
)  # fmt: skip
