"""npucall.declare.rules: what each rule refuses, and in which words."""

from typing import Any

import pytest
from tests.rows import each

from npucall.declare import rules
from npucall.declare.parameters import Scalar
from npucall.declare.rules import Rule
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT8_E5M2,
    INT32,
    INT64,
    UINT16,
)
from npucall.errors import (
    ArgumentMissingError,
    AttributeValueError,
    DTypeError,
    FormatError,
    NpucallError,
    ShapeError,
)
from npucall.tensors import Format

from .tiny import (
    IF_FULL,
    NEVER,
    NOT_A2,
    ON_A2,
    PAIR,
    POSITIVE,
    SQUARE,
    late,
    spec,
    verdict,
)

# rule; what is wrong with the call; class, blamed parameters and words of the error
REFUSED = [
    (rules.present("y", "x"), {"x": None, "y": None}, ArgumentMissingError, "y", r"a null y"),
    (late(rules.present("x"), 561103), {"x": None}, ArgumentMissingError, "x", "a null x"),
    (rules.present("x", "out"), {"out": None}, ArgumentMissingError, "out", "expected a value"),
    (rules.present("x"), {"x": "left out"}, ArgumentMissingError, "x", "found none"),
    (rules.present("slope", "x"), {"slope": None}, ArgumentMissingError, "slope", "a null slope"),
    (rules.present("text"), {"text": None}, ArgumentMissingError, "text", "a null text"),
    (
        rules.supported("x", "y"),
        {"y": spec(dtype=DOUBLE)},
        DTypeError,
        "y",
        r"y: expected FLOAT, FLOAT16 or BF16 on Ascend910B .*, found DOUBLE",
    ),
    (rules.supported("out"), {"out": spec(dtype=INT32)}, DTypeError, "out", "found INT32"),
    (rules.supported("slope"), {"slope": Scalar(BOOL, 1)}, DTypeError, "slope", "found BOOL"),
    (
        rules.supported("slope", besides=(BOOL,)),
        {"slope": Scalar(INT32, 1)},
        DTypeError,
        "slope",
        "expected FLOAT, FLOAT16, BF16 or BOOL on .*, found INT32",
    ),
    (rules.castable("x", to="out"), {"out": spec(dtype=INT32)}, DTypeError, "out", "found INT32"),
    (rules.castable("x", to="out"), {"out": spec(dtype=BOOL)}, DTypeError, "out", "found BOOL"),
    (PAIR, {"y": spec(dtype=UINT16)}, DTypeError, "x y", "found FLOAT and UINT16"),
    (
        rules.promoted("x", "y", "extra", into="all"),
        {"extra": spec(dtype=UINT16)},
        DTypeError,
        "x y extra",
        "x, y and extra: expected dtypes that promote to one, found FLOAT and UINT16",
    ),
    (rules.same_dtype("y", as_="x"), {"y": spec(dtype=BF16)}, DTypeError, "y", "the dtype of x"),
    (
        rules.same_dtype("extra", "y", as_="x"),
        {"x": spec(dtype=BF16), "extra": spec()},
        DTypeError,
        "extra",
        "extra: expected BF16",
    ),
    (
        rules.rank_at_most(2, "x", "out"),
        {"out": spec((1, 1, 1))},
        ShapeError,
        "out",
        "out: expected at most 2 dimensions, found 3",
    ),
    (
        rules.broadcast("x", "y", into="common"),
        {"y": spec((2,))},
        ShapeError,
        "x y",
        r"x and y: .* found \(2, 3\) and \(2,\)",
    ),
    (
        rules.expandable("y", to="x", meaning="the shape of x"),
        {"y": spec((4, 1, 1))},
        ShapeError,
        "y",
        r"broadcasts to \(2, 3\), the shape of x, without enlarging it, found \(4, 1, 1\)",
    ),
    (rules.same_shape("out", "x"), {"out": spec((1, 2, 3))}, ShapeError, "out", "that of x"),
    (
        late(rules.same_shape("y", "x", "what x is")),
        {"y": spec((3,))},
        ShapeError,
        "y",
        r"y: expected shape \(2, 3\), what x is, found \(3,\)",
    ),
    (rules.same_shape("x", "out"), {"out": spec((6,))}, ShapeError, "x", "that of out"),
    (
        late(rules.rank_is("x", 1, 3)),
        {},
        ShapeError,
        "x",
        "x: expected 1 or 3 dimensions, found 2",
    ),
    (POSITIVE, {"mode": 0}, AttributeValueError, "mode amount", "mode: expected more than 0, fo"),
    (NEVER, {}, ShapeError, "x", r"x: expected nothing, found \(2, 3\)"),
    (rules.dim_of("x", "mode"), {"mode": 2}, AttributeValueError, "mode", "expected -2 to 1, a"),
    (rules.dim_of("x", "mode"), {"mode": -3}, AttributeValueError, "mode", "found -3"),
    (
        rules.dim_of("x", "mode"),
        {"x": spec(()), "mode": 1},
        AttributeValueError,
        "mode",
        "expected -1 to 0",
    ),
    (
        late(rules.dtype_in("x", INT32, INT64)),
        {},
        DTypeError,
        "x",
        "x: expected INT32 or INT64, found FLOAT",
    ),
    (rules.dtype_in("slope", FLOAT), {"slope": Scalar(BOOL, 1)}, DTypeError, "slope", "BOOL"),
    (rules.real("slope"), {"slope": Scalar(COMPLEX64, 1)}, DTypeError, "slope", "found COMPLEX64"),
    (rules.not_negative("amount"), {"amount": -1e-9}, AttributeValueError, "amount", "0 or more"),
    (rules.not_negative("amount"), {"amount": float("nan")}, AttributeValueError, "amount", "nan"),
    (rules.positive("amount"), {"amount": 0}, AttributeValueError, "amount", "1 or more"),
    (
        rules.same_format("y", "x"),
        {"y": spec(format=Format.NCL)},
        FormatError,
        "y",
        "y: expected ND, the format of x, found NCL",
    ),
    (rules.one_of("mode", 0, 1), {"mode": 2}, AttributeValueError, "mode", r"\(0, 1\), found 2"),
    (
        late(rules.one_of("text", "none", "tanh")),
        {"text": "Tanh"},
        AttributeValueError,
        "text",
        "found Tanh",
    ),
    (
        rules.public_format("x", "y"),
        {"y": spec(format=Format.FRACTAL_NZ)},
        FormatError,
        "y",
        "found FRACTAL_NZ",
    ),
    (ON_A2, {}, ShapeError, "x", "expected nothing"),
    (IF_FULL, {}, ShapeError, "x", "expected nothing"),
]

PASSED = [
    (rules.present("x", "out"), {"out": "left out"}),  # derived
    (rules.present("mode", "amount"), {}),  # they have defaults
    (rules.present("slope"), {"slope": Scalar(COMPLEX64, 1)}),
    (rules.supported("x", "extra", "out", "slope"), {"extra": None}),
    (rules.supported("x", besides=(INT32,)), {"x": spec(dtype=INT32)}),
    (rules.supported("slope"), {"slope": Scalar(BF16, 1)}),
    (rules.castable("x", to="out"), {}),
    (rules.castable("x", to="out"), {"out": spec(dtype=COMPLEX64)}),
    (PAIR, {"y": spec(dtype=INT64)}),
    (rules.promoted("x", "extra", into="all"), {"extra": None}),
    (rules.same_dtype("extra", "out", as_="x"), {"extra": None}),
    (rules.same_dtype("x", as_="out"), {}),  # the output is derived
    (rules.rank_at_most(2, "x", "extra", "out"), {}),
    (rules.broadcast("x", "y", into="common"), {"y": spec((4, 1, 3))}),
    (rules.expandable("y", to="x", meaning="x"), {"y": spec((1, 3))}),
    (rules.expandable("extra", to="x", meaning="x"), {"extra": None}),
    (rules.same_shape("out", "x"), {}),
    (rules.same_shape("x", "out"), {}),
    (rules.rank_is("x", 2), {}),
    (rules.rank_is("extra", 2), {}),
    (POSITIVE, {"mode": 1}),
    (rules.dim_of("x", "mode"), {"mode": -2}),
    (rules.dim_of("x", "mode"), {"mode": 0, "x": spec(())}),
    (rules.dtype_in("extra", INT32), {}),
    (rules.dtype_in("slope", BOOL), {}),  # its default is a plain number
    (rules.real("slope"), {"slope": Scalar(FLOAT8_E5M2, 1)}),
    (rules.real("slope"), {"slope": None}),
    (rules.bfloat16_if_product_has("x"), {"x": spec(dtype=BF16)}),
    (rules.not_negative("amount"), {"amount": -0.0}),
    (rules.not_negative("amount"), {"amount": float("inf")}),
    (rules.positive("amount"), {"amount": 1}),
    (rules.same_format("extra", "x"), {}),
    (rules.one_of("text", "", "tanh"), {}),
    (rules.public_format("x", "extra"), {"x": spec(format=Format.NHWC)}),
    (NOT_A2, {}),
    (IF_FULL, {"x": spec((2, 0))}),
    (rules.succeed_if_empty("x", "extra"), {"y": spec((0,))}),
]


@each("rule changes error blamed words", REFUSED)
def test_a_rule_refuses_with_its_class_status_blame_and_words(
    rule: Rule, changes: Any, error: type[NpucallError], blamed: str, words: str
) -> None:
    found = verdict(rule, **changes)
    assert type(found) is error
    assert found.parameters == tuple(blamed.split())
    assert found.aclnn_status == rule.status
    with pytest.raises(error, match=words):
        raise found


@each("rule changes", PASSED)
def test_a_rule_lets_pass_what_it_does_not_speak_of(rule: Rule, changes: Any) -> None:
    assert verdict(rule, **changes) is None


@each("rule", [row[0] for row in REFUSED])
def test_a_rule_that_refuses_says_so(rule: Rule) -> None:
    assert rule.status in (161001, 161002, 561002, 561103)
    assert rule.blames
    assert all(name in rule.description for name in rule.blames[:1])


def test_a_rule_has_status_161002_unless_it_says_another() -> None:
    assert {row[0].status for row in REFUSED} == {161001, 161002, 561002, 561103}
    assert late(SQUARE).status == 0
    assert rules.rank_is("x", 1).status == rules.one_of("mode", 1).status == 161002
    assert rules.dtype_in("x", FLOAT).status == NEVER.status == 161002
