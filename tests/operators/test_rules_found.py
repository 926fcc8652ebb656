"""npucall.declare.rules: what rules find, where they hold, how they end the checks."""

from typing import Any

import pytest
from tests.rows import each

from npucall.declare import rules
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.prepare import prepare
from npucall.declare.rules import EndOfChecks, Rule
from npucall.dtypes import (
    BF16,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT32,
    DType,
)
from npucall.errors import (
    DTypeError,
    ShapeError,
)
from npucall.products import A2, A3, ASCEND_310, ASCEND_910

from .tiny import (
    IF_FULL,
    NEVER,
    NOT_A2,
    PAIR,
    SQUARE,
    draft_of,
    spec,
    tiny,
    verdict,
)


@each("rule names", [(PAIR, "both"), (rules.broadcast("x", "y", into="common"), "common")])
def test_what_a_rule_finds_is_found_though_the_rule_has_not_run(rule: Rule, names: str) -> None:
    draft = draft_of(rule, y=spec((4, 1, 1), FLOAT16))
    if names == "both":
        assert draft.dtype("both") is FLOAT
    else:
        assert draft.shape("common") == (4, 2, 3)


def test_a_shape_is_found_for_others() -> None:
    assert draft_of(SQUARE).shape("square") == (2, 2)
    assert (SQUARE.status, SQUARE.blames) == (0, ())


def test_supported_blames_whom_it_is_told_for_a_dtype_that_a_rule_found() -> None:
    rule = rules.supported("both", blames=("x", "y"))
    draft = draft_of(PAIR, rule, y=spec(dtype=DOUBLE))
    with pytest.raises(DTypeError, match=r"x and y: .* found DOUBLE \(their both\)") as caught:
        rule.check(draft)
    assert caught.value.parameters == rule.blames == ("x", "y")


@each("besides", [(), (INT32,)])
def test_supported_refuses_every_dtype_on_a_product_that_has_nothing(besides: Any) -> None:
    found = verdict(rules.supported("x", besides=besides), ASCEND_310, x=spec(dtype=INT32))
    assert isinstance(found, DTypeError)
    assert "expected a product that has aclnnTiny, found Ascend310" in str(found)


@each("product refused", [(A2, False), (ASCEND_910, True)])
def test_bf16_is_refused_where_the_product_has_none(product: Any, refused: bool) -> None:
    rule = rules.bfloat16_if_product_has("x")
    found = verdict(rule, product, x=spec(dtype=BF16))
    assert (found is not None and found.parameters == ("x",)) is refused


@each("product", [A2, A3, ASCEND_910])
def test_on_and_except_on_divide_the_products(product: Any) -> None:
    there = verdict(rules.on((A2, A3), NEVER), product)
    elsewhere = verdict(rules.except_on((A2, A3), NEVER), product)
    assert (there is None, elsewhere is None) == (product is ASCEND_910, product is not ASCEND_910)


def test_a_rule_under_a_condition_says_the_condition() -> None:
    assert rules.on((A2, A3), NEVER).description == ("on Ascend910B and Ascend910_93: x: nothing")
    assert NOT_A2.description == "not on Ascend910B: x: nothing"
    assert IF_FULL.description == "x not empty: x: nothing"
    assert (IF_FULL.status, IF_FULL.blames) == (NEVER.status, NEVER.blames)


@each("empty", ["x", "extra"])
def test_an_empty_tensor_ends_the_checks(empty: str) -> None:
    with pytest.raises(EndOfChecks):
        verdict(rules.succeed_if_empty("x", "extra"), **{empty: spec((2, 0))})


def test_behind_the_end_of_checks_no_rule_is_asked_and_the_call_is_done() -> None:
    declared = tiny(rules.succeed_if_empty("x"), NEVER)
    empty = Call(declared, {"x": spec((0, 3)), "y": spec()}, ("x", "y"))
    found = prepare(empty, A2, Catalogue([declared]))
    assert found.done
    assert found.outputs["out"].shape == (0, 3)
    with pytest.raises(ShapeError):
        prepare(Call(declared, {"x": spec(), "y": spec()}, ("x", "y")), A2, Catalogue([declared]))


@each(
    "mode warnings",
    [(0, []), (1, []), (7, [("mode", "mode: 7 is not one of (0, 1); it acts as 0")])],
)
def test_a_warning_is_given_for_other_values_and_the_call_passes(mode: int, warnings: Any) -> None:
    rule = rules.warn_unless("mode", 0, 1, meaning="it acts as 0")
    draft = draft_of(rule, mode=mode)
    rule.check(draft)
    assert draft.warnings == warnings
    assert rule.status == 0


@each(
    "x y half short",
    [
        (FLOAT16, FLOAT16, FLOAT16, FLOAT16),
        (BF16, BF16, FLOAT, BF16),
        (FLOAT16, BF16, FLOAT, FLOAT),
        (FLOAT, FLOAT16, FLOAT, FLOAT),
        (FLOAT, FLOAT, FLOAT, FLOAT),
        (DOUBLE, DOUBLE, FLOAT, FLOAT),
    ],
)
def test_the_kernel_dtype_follows_from_the_inputs(
    x: DType, y: DType, half: DType, short: DType
) -> None:
    draft = draft_of(PAIR, x=spec(dtype=x), y=spec(dtype=y))
    assert rules.float16_if_all("x", "y")(draft) is half
    assert rules.short_if_all("x", "y")(draft) is short
    assert rules.always(FLOAT)(draft) is FLOAT
    assert rules.dtype_of("y")(draft) is y
    assert rules.dtype_of("both")(draft) is draft.dtype("both")
