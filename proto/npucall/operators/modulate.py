"""Scale and shift of the tokens of each sequence, and the gradient of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import DOUBLE, FLOATS, AnyArray, Array
from npucall.errors import PARAM_INVALID
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

PAIR = ("scale", "shift")
GRADIENTS = ("grad_input", "grad_scale", "grad_shift")
COMMON: dict[str, Any] = {
    "products": dict.fromkeys((A2, A3, ASCEND_950), FLOATS),
    "area": "normalisation",
}


def without_tokens(*names: str) -> tuple[rules.Rule, ...]:
    """If one of these has no elements, scale and shift have none either."""

    def fits(draft: Draft, each: str) -> bool:
        empty = any(0 in draft.shape(name) for name in names)
        return not empty or 0 in draft.shape(each)

    def rule(each: str) -> rules.Rule:
        return rules.requires(
            f"no elements, as {' or '.join(names)} has none",
            each,
            holds=lambda draft: fits(draft, each),
            found=lambda draft: f"shape {draft.shape(each)}",
        )

    return tuple(map(rule, PAIR))


def one_a_sequence(draft: Draft, like: str) -> Shape:
    """The extents of what all tokens of a sequence share."""
    batch, _, width = draft.shape(like)
    return batch, width


def fits_sequences(name: str, like: str, *ranks: int) -> tuple[rules.Rule, ...]:
    """It is (B, D), or (B, 1, D) where a rank of 3 is allowed."""

    def shapes(draft: Draft) -> tuple[Shape, Shape]:
        batch, width = one_a_sequence(draft, like)
        return (batch, width), (batch, 1, width)

    return (
        rules.rank_is(name, *ranks),
        rules.requires(
            f"the first and last extents of {like}",
            name,
            holds=lambda draft: draft.shape(name) in shapes(draft),
            found=lambda draft: f"shape {draft.shape(name)}",
        ),
    )


def read_of(facts: Facts, array: Array, index: tuple[slice, ...]) -> AnyArray:
    """What the tokens of a block share, (B, 1, D)."""
    batch, _, width = index
    middle = (slice(0, 1),) * (len(array.shape) - 2)
    return facts.read(array, (batch, *middle, width)).reshape(-1, 1, width.stop - width.start)


@operator(
    "aclnnModulate",
    Input("self", "tokens, (B, L, D)"),
    Input("scale", "a factor less 1 for each sequence, (B, D) or (B, 1, D)",
          c_name="scaleOptional"),
    Input("shift", "an addend for each of them", c_name="shiftOptional"),
    Output("out", "the tokens, scaled and shifted", "self", "self"),
    checks=(
        rules.present("self", "out"),
        rules.supported("self", "out", "scale"),
        rules.same_dtype("scale", as_="self"),
        rules.supported("shift"),
        rules.same_dtype("shift", as_="self"),
        rules.same_dtype("out", as_="self"),
        *rules.with_status(PARAM_INVALID, rules.present(*PAIR)),
        rules.rank_is("self", 3),
        *without_tokens("self"),
        rules.same_shape("out", "self"),
        *(rule for name in PAIR for rule in fits_sequences(name, "self", 2, 3)),
        rules.succeed_if_empty("self", *PAIR),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=at_once(),
    sample=Sample({"self": (2, 4, 3), **dict.fromkeys(PAIR, (2, 3))}),
    source="ops-nn vfusion/modulate: page aclnnModulate, its checks [src:modulate]",
    **COMMON,
)  # fmt: skip
def modulate(facts: Facts, self: Array, scale: Array, shift: Array) -> AnyArray:
    """``self * (1 + scale) + shift``, with one scale and shift for all tokens of a sequence.

    Computed in float32 and rounded once. The page calls scale and shift optional; the operator
    refuses a null pointer with 161002. Without tokens (L = 0) both must be empty, too.

    As the expression in torch, with ``scale.unsqueeze(1)``.
    """
    out = facts.output("out", self.shape)

    def compute(index: tuple[slice, ...]) -> None:
        result = facts.read(self, index) * (1 + read_of(facts, scale, index))
        result += read_of(facts, shift, index)
        out[index] = result

    facts.each(cut(self.shape, BLOCK), compute)
    return out


@operator(
    "aclnnModulateBackward",
    Input("grad_output", "gradient of the result, (B, L, D)", c_name="grad_output"),
    Input("input", "the tokens, (B, L, D)"),
    Input("scale", "what grad_input is multiplied by, (B, D)"),
    Input("shift", "only its shape matters, (B, D)", read=False),
    Output("grad_input", "gradient of the tokens", "input", "grad_output", const=True,
           c_name="grad_input"),
    Output("grad_scale", "gradient of scale", "sequences", "grad_output", const=True, optional=True,
           c_name="grad_scale"),
    Output("grad_shift", "gradient of shift", "sequences", "grad_output", const=True, optional=True,
           c_name="grad_shift"),
    checks=(
        rules.present("grad_output", "input", "grad_input", *PAIR),
        rules.supported("grad_output", "input", *PAIR, *GRADIENTS[1:], GRADIENTS[0]),
        rules.same_dtype("input", *PAIR, *GRADIENTS[1:], GRADIENTS[0], as_="grad_output"),
        rules.rank_is("grad_output", 3),
        rules.rank_is("input", 3),
        *without_tokens("grad_output", "input"),
        *(rule for name in PAIR for rule in fits_sequences(name, "grad_output", 2)),
        # What follows is the service's: a device would read and write foreign memory.
        rules.same_shape("input", "grad_output"),
        rules.same_shape("grad_input", "input"),
        rules.shape_of("input", into="sequences", make=lambda d: one_a_sequence(d, "input")),
        *(rules.same_shape(name, "sequences", "(B, D)") for name in GRADIENTS[1:]),
        rules.succeed_if_empty("grad_output"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=at_once(holds=lambda facts, _: 2 * DOUBLE.itemsize * facts.count("sequences")),
    sample=Sample({**dict.fromkeys(("grad_output", "input"), (2, 4, 3)),
                   **dict.fromkeys(PAIR, (2, 3))}),
    source="ops-nn vfusion/modulate_grad: page aclnnModulateBackward, its checks [src:modulate]",
    **COMMON,
)  # fmt: skip
def modulate_backward(
    facts: Facts,
    grad_output: Array,
    input: Array,  # noqa: A002  # the operator's own name for it
    scale: Array,
    shift: Array,
) -> tuple[AnyArray | None, ...]:
    """Gradients of ``modulate``, whose factor is ``scale`` itself here.

    ::

        grad_input = grad_output * scale
        grad_scale = sum of grad_output * input over L
        grad_shift = sum of grad_output over L

    So the gradient of ``modulate(input, scale, shift)`` is that with ``1 + scale``. Products are
    computed in float32, sums in float64, and rounded once. All have one dtype, as the page says;
    the software casts others. ``grad_scale`` and ``grad_shift`` may be null. The operator looks
    into scale and shift though the page calls them optional, so null is refused (161001).
    """
    del shift
    out = facts.output("grad_input", grad_output.shape)
    asked = [name in facts.asked for name in GRADIENTS[1:]]
    totals = [np.zeros(facts.shapes["sequences"]) if each else None for each in asked]

    def compute(index: tuple[slice, ...]) -> list[AnyArray | None]:
        grad = facts.read(grad_output, index)
        out[index] = grad * read_of(facts, scale, index)
        products = grad * facts.read(input, index) if asked[0] else None
        return [
            None if each is None else np.add.reduce(each, 1, np.float64)
            for each in (products, grad if asked[1] else None)
        ]

    def add(index: tuple[slice, ...], parts: list[AnyArray | None]) -> None:
        for total, part in zip(totals, parts, strict=True):
            if total is not None and part is not None:
                total[index[0], index[2]] += part

    facts.each(cut(grad_output.shape, BLOCK), compute, add)
    return out, *totals
