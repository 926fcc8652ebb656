"""What the versions of FlashAttentionScore and of its gradient take and check alike.

Some take sequences of different lengths, one behind the other in a tensor (T, N, D). Each of them
is an item by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from npucall.declare import Attribute, Facts, Input, Kind, rules
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Fault, Rule, refuses
from npucall.dtypes import BOOL, FLOAT, UINT8
from npucall.errors import TILING_ERROR, ArgumentError, AttributeValueError, ShapeError
from npucall.operators._attention import LANES, Attention
from npucall.operators._heads import LAYOUTS, PACKED, Band, HeadLayout, Sizes
from npucall.tensors import Shape

WIDEST = 768
AS_GIVEN, ALL, UP_TO, UP_TO_LAST, MOVED = range(5)
"""Sparse modes: the tokens as given, no band, up to the diagonal from the first, or to the last,
corner; the tokens counted from the last corner."""
BANDED = (AS_GIVEN, UP_TO, UP_TO_LAST, MOVED)
COMPRESSED: Shape = (2048, 2048)
"""Of the mask of the last three, of which no element is looked at."""
ATTRIBUTES = (
    Attribute("prefix", Kind.INT_ARRAY, "must be absent", c_name="prefixOptional"),
    Attribute("scale_value", Kind.DOUBLE, "the factor of the scores"),
    Attribute("keep_prob", Kind.DOUBLE, "must be 1"),
    Attribute("pre_tokens", Kind.INT64, "how many columns before its own a row sees"),
    Attribute("next_tokens", Kind.INT64, "how many columns behind its own a row sees"),
    Attribute("head_num", Kind.INT64, "heads of the queries"),
    Attribute("input_layout", Kind.STRING, "BSH, SBH, BSND or BNSD"),
    Attribute("inner_precise", Kind.INT64, "2: a row of which the mask leaves nothing is 0"),
    Attribute(
        "sparse_mode",
        Kind.INT64,
        "0 the tokens as given, 1 no band, 2 up to the diagonal, 3 the same from the last corner, "
        "4 the tokens from the last corner",
    ),
)


def addend_and_masks(bias: str, c_name: str) -> tuple[Input, ...]:
    """The inputs behind those of the heads, the first with these names."""
    return (
        Input(
            bias, "added to query . key: (B or 1, N, Sq, Skv) or (B, N, 1, Skv)",
            optional=True, c_name=c_name,
        ),
        Input("drop_mask", "must be absent", optional=True, c_name="dropMaskOptional"),
        Input("padding_mask", "must be absent", optional=True, c_name="paddingMaskOptional"),
        Input(
            "atten_mask", "1 where a row must not see a column", optional=True, as_is=True,
            c_name="attenMaskOptional",
        ),
    )  # fmt: skip


LENGTHS = ("actual_seq_q_len", "actual_seq_kv_len")


def asked_for(*, packed: bool) -> tuple[Rule, ...]:
    """What the text of input_layout may be, where it is looked at."""
    return (rules.one_of("input_layout", *((PACKED.text,) if packed else LAYOUTS)),)


def is_packed(draft: Draft) -> bool:
    """Whether the operator takes sequences one behind the other."""
    return LENGTHS[0] in draft.operator.by_name


def layout_of(draft: Draft) -> HeadLayout:
    """That of the call; an unknown one counts as four dimensions until it is refused."""
    if is_packed(draft):
        return PACKED
    return LAYOUTS.get(draft.attribute("input_layout"), LAYOUTS["BNSD"])


def sizes(draft: Draft) -> tuple[Sizes, Sizes, Sizes]:
    """Those of the first three inputs: queries, keys, values."""
    query, key, value = (draft.shape(each.name) for each in draft.operator.inputs[:3])
    layout = layout_of(draft)
    own = layout.sizes(query, draft.attribute("head_num"))
    heads = layout.heads(key, own.width)
    return own, layout.sizes(key, heads), layout.sizes(value, heads)


def rows_in(ends: Sequence[int]) -> list[slice]:
    """The rows of each sequence, from the running sums of their lengths."""
    return [slice(first, last) for first, last in zip((0, *ends), ends, strict=False)]


def areas(attributes: Callable[[str], Any], rows: int, columns: int) -> list[tuple[int, int]]:
    """Rows and columns of the scores of each sequence, or of all items."""
    ends = [attributes(name) for name in LENGTHS]
    if ends[0] is None:
        return [(rows, columns)]
    own, others = ([each.stop - each.start for each in rows_in(sums)] for sums in ends)
    return list(zip(own, others, strict=True))


def areas_of(draft: Draft) -> list[tuple[int, int]]:
    """Those of a call."""
    query, key, _ = sizes(draft)
    given = draft.attribute if is_packed(draft) else lambda _: None
    return areas(given, query.rows, key.rows)


def band_of(mode: int, before: int, after: int, rows: int, columns: int) -> tuple[int, int]:
    """How far a row sees from the first corner on, by the sparse mode."""
    return {
        AS_GIVEN: (before, after),
        UP_TO: (rows, 0),
        UP_TO_LAST: (rows, columns - rows),
        MOVED: (before + rows - columns, after + columns - rows),
    }[mode]


def holds(
    text: str,
    names: tuple[str, ...],
    condition: Callable[[Sizes, Sizes, Sizes], bool],
) -> Rule:
    """Queries, keys and values have sizes that fit."""
    return rules.requires(
        text,
        *names,
        holds=lambda draft: condition(*sizes(draft)),
        found=lambda draft: (
            ", ".join(str(draft.shape(n)) for n in names)
            + f" with head_num {draft.attribute('head_num')}"
        ),
    )


def ranks(*names: str) -> Rule:
    """They have the dimensions of the layout."""

    def faults(draft: Draft) -> Iterator[Fault]:
        letters = layout_of(draft).text
        for name, spec in draft.tensors(names):
            if len(spec.shape) != len(letters):
                yield name, f"{len(letters)} dimensions, as {letters} has", len(spec.shape)

    text = f"{names[0]} and all others have a dimension for each letter of input_layout"
    return refuses(ShapeError, text, names, faults)


def widths(query: str, key: str, value: str) -> tuple[Rule, ...]:
    """Heads are as wide as they should be."""
    return (
        holds(
            "elements for each of head_num heads, and keys at least as wide as one",
            (query, key),
            lambda q, k, _: q.width > 0 and k.heads > 0,
        ),
        holds("the width of the heads of query", (key, query), lambda q, k, _: q.width == k.width),
        holds("heads no wider than those of key", (value, key), lambda _, k, v: v.width <= k.width),
        holds(f"heads of at most {WIDEST} elements", (query,), lambda q, *_: q.width <= WIDEST),
    )


def of_kernel(
    query: str,
    key: str,
    value: str,
    bias: str,
    dtypes: tuple[Rule, ...] = (),
    *,
    packed: bool = False,
) -> tuple[Rule, ...]:
    """The checks of the kernel, up to those of outputs; ``dtypes``: those that are not earlier."""
    lengths = zip(LENGTHS, (query, key), strict=True) if packed else ()
    return rules.supported(query), *rules.with_status(
        TILING_ERROR,
        *([] if packed else [holds("one batch size", (key, value, query), _of_one_batch)]),
        rules.requires(
            "heads of query, all equally wide",
            "head_num",
            query,
            holds=lambda draft: _fits_heads(draft, query),
            found=lambda draft: f"{draft.attribute('head_num')} for {draft.shape(query)}",
            error=AttributeValueError,
        ),
        holds(
            "heads as wide as those of query, so many that each of them serves equally many",
            (key, query),
            lambda q, k, _: q.heads % k.heads == 0,
        ),
        holds(
            "a row of as many heads for each row of key",
            (value, key),
            lambda _, k, v: (v.heads, v.rows) == (k.heads, k.rows),
        ),
        *([] if packed else [_whole_heads(key, value)]),
        *dtypes,
        holds(
            "elements",
            (query, key, value),
            lambda q, k, v: prod(q) * prod(k) * prod(v) > 0,
        ),
        *(_lengths_fit(*each) for each in lengths),
        absent(bias) if packed else _bias_fits(bias),
        rules.value_fits(
            "1, since the reference drops nothing", "keep_prob", lambda share: share == 1
        ),
        *(absent(name) for name in ("drop_mask", "padding_mask", "prefix")),
        rules.one_of("sparse_mode", *range(5)),
        rules.dtype_in("atten_mask", BOOL, UINT8),
        _mask_fits(),
        _sees_something(),
    )


def absent(name: str) -> Rule:
    """What the reference leaves out."""
    return rules.requires(
        "none, since the reference computes attention without it",
        name,
        holds=lambda draft: draft.absent(name),
        found=lambda _: "a value",
        error=ArgumentError,
    )


def second_version(*names: str) -> tuple[Rule, ...]:
    """What the second version takes of what it has in addition."""
    return rules.with_status(TILING_ERROR, *map(absent, names), rules.one_of("pse_type", *range(2)))


def statistics(name: str) -> tuple[Rule, ...]:
    """A maximum or a sum for each row of scores, in eight copies."""
    return rules.with_status(
        TILING_ERROR,
        rules.dtype_in(name, FLOAT),
        rules.same_shape(name, "rows_of_scores", f"(B, N, Sq, {LANES}), or (T, N, {LANES})"),
    )


def rows_of_scores(draft: Draft) -> Shape:
    """The shape of these."""
    query, _, _ = sizes(draft)
    return (query.rows, query.heads, LANES) if is_packed(draft) else (*query[:3], LANES)


def result(draft: Draft) -> Shape:
    """The shape of attention: that of the queries, but for the width of the values."""
    query, _, value = sizes(draft)
    shape = draft.shape(draft.operator.inputs[0].name)
    width = value.width * (query.heads if "H" in layout_of(draft).text else 1)
    return (*shape[:-1], width)


def attention(facts: Facts, given: Mapping[str, Any]) -> Attention:
    """The attention of a call that the checks let pass, or of one of its sequences."""
    key, bias = (
        next(given[name] for name in names if name in given)
        for names in (("key", "key_in"), ("real_shift", "pse_shift"))
    )
    mask, mode = given["atten_mask"], given["sparse_mode"]
    call = Attention(
        facts, given["query"], key, given["value"], LAYOUTS[given["input_layout"]],
        given["head_num"], given["scale_value"], bias, mask,
        strict=given["inner_precise"] == 2 and mask is not None,  # noqa: PLR2004  # the page's
        scaled_bias=given.get("pse_type", 1) == 1,
    )  # fmt: skip
    if mask is not None and mode in BANDED:
        tokens, rows, columns = (
            (given["pre_tokens"], given["next_tokens"]), call.of_query.rows, call.of_key.rows
        )  # fmt: skip
        call.band = Band(*band_of(mode, *tokens, rows, columns))
        call.mask = mask if mode == AS_GIVEN else None
    return call


def products(facts: Facts, attributes: Mapping[str, Any]) -> int:
    """Scores times the width of a head: what a call costs."""
    layout = PACKED if LENGTHS[0] in attributes else LAYOUTS[attributes["input_layout"]]
    items, heads, rows, width = layout.sizes(facts.shapes["query"], attributes["head_num"])
    key = facts.shapes["key" if "key" in facts.shapes else "key_in"]
    found = areas(attributes.get, rows, layout.sizes(key, heads).rows)
    return items * heads * width * sum(map(prod, found))


def _of_one_batch(q: Any, k: Any, v: Any) -> bool:
    return bool(q.items == k.items == v.items)


def _fits_heads(draft: Draft, query: str) -> bool:
    shape, heads = draft.shape(query), draft.attribute("head_num")
    if "H" in layout_of(draft).text:
        return bool(shape[-1] % heads == 0)
    return bool(sizes(draft)[0].heads == heads)


def _whole_heads(key: str, value: str) -> Rule:
    """In layouts with H, as many elements as whole heads have."""

    def fits(draft: Draft) -> bool:
        if "H" not in layout_of(draft).text:
            return True
        _, k, v = sizes(draft)
        ends = draft.shape(key)[-1], draft.shape(value)[-1]
        return ends == (k.heads * k.width, v.heads * v.width)

    return rules.requires(
        "whole heads, and value as many of them", key, value, holds=fits,
        found=lambda draft: f"{draft.shape(key)} and {draft.shape(value)}",
    )  # fmt: skip


def _lengths_fit(name: str, tensor: str) -> Rule:
    """Running sums of lengths, of as many sequences as the first has."""

    def faults(draft: Draft) -> Iterator[Fault]:
        ends, rows = draft.attribute(name), draft.shape(tensor)[0]
        if list(ends) != sorted(ends) or ends[:1] < (0,) or ends[-1] != rows:
            yield name, f"running sums of lengths, the last of them {rows}", ends
        if len(ends) != len(first := draft.attribute(LENGTHS[0])):
            yield name, f"{len(first)} sequences, as {LENGTHS[0]} has", len(ends)

    text = f"{name} has running sums of lengths up to the rows of {tensor}"
    return refuses(AttributeValueError, text, (name,), faults)


def _bias_fits(bias: str) -> Rule:
    def fits(draft: Draft) -> bool:
        if draft.absent(bias):
            return True
        (items, heads, rows, _), key, _ = sizes(draft)
        full = ((one, heads, rows, key.rows) for one in (items, 1))
        return draft.shape(bias) in (*full, (items, heads, 1, key.rows))

    return rules.requires(
        "(B or 1, N, Sq, Skv) or (B, N, 1, Skv)",
        bias,
        holds=fits,
        found=lambda draft: draft.shape(bias),
    )


def _mask_fits() -> Rule:
    def faults(draft: Draft) -> Iterator[Fault]:
        if draft.absent("atten_mask"):
            return
        (items, heads, *_), *_ = sizes(draft)
        ends = tuple(map(max, zip(*areas_of(draft), strict=True)))
        allowed: tuple[Shape, ...] = (
            ends, (items, 1, *ends), (1, 1, *ends), (items, heads, *ends)
        )  # fmt: skip
        if is_packed(draft):
            allowed = (ends,)
        if draft.attribute("sparse_mode") in (UP_TO, UP_TO_LAST, MOVED):
            allowed = (COMPRESSED,)
        if draft.shape("atten_mask") not in allowed:
            expected = " or ".join(str(shape) for shape in dict.fromkeys(allowed))
            yield "atten_mask", f"shape {expected}", draft.shape("atten_mask")

    text = "atten_mask is (Sq, Skv), (B or 1, 1, Sq, Skv) or (B, N, Sq, Skv), or compressed"
    return refuses(ShapeError, text, ("atten_mask",), faults)


def _sees_something() -> Rule:
    """The tokens, after their conversion, leave a band that is neither empty nor beside all."""

    def reaches(mode: int, tokens: tuple[int, int], rows: int, columns: int) -> bool:
        before, after = band_of(mode, *tokens, rows, columns)
        if before < 0:
            return after >= -before and -before < columns
        return after >= 0 or (-after <= before and -after < rows)

    def fits(draft: Draft) -> bool:
        mode = draft.attribute("sparse_mode")
        if draft.absent("atten_mask") or mode not in (AS_GIVEN, MOVED):
            return True
        tokens = draft.attribute("pre_tokens"), draft.attribute("next_tokens")
        return all(reaches(mode, tokens, *each) for each in areas_of(draft) if min(each))

    return rules.requires(
        "a band of columns that reaches into the scores",
        "pre_tokens",
        "next_tokens",
        holds=fits,
        found=lambda draft: f"{draft.attribute('pre_tokens')}, {draft.attribute('next_tokens')}",
        error=AttributeValueError,
    )
