"""npucall.operators.rules: each rule on its own, with an operator declared here."""

from __future__ import annotations

from typing import Any

import pytest

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT8_E5M2,
    FLOAT16,
    FLOATS,
    HALF_AND_SINGLE,
    INT32,
    INT64,
    UINT16,
    DType,
)
from npucall.errors import (
    ArgumentError,
    ArgumentMissingError,
    AttributeValueError,
    DTypeError,
    FormatError,
    NpucallError,
    ShapeError,
)
from npucall.operators import rules
from npucall.operators.catalogue import Catalogue
from npucall.operators.draft import Draft
from npucall.operators.prepare import prepare
from npucall.operators.rules import EndOfChecks, Rule
from npucall.operators.spec import (
    Attribute,
    Call,
    Input,
    Kind,
    Operator,
    Output,
    Scalar,
    elementwise,
    operator,
)
from npucall.products import A2, A3, ASCEND_310, ASCEND_910
from npucall.tensors import Format, TensorSpec


def tiny(*checks: Rule) -> Operator[..., Any]:
    """Two inputs, one that may be absent, an attribute of every sort that rules look at."""
    declare = operator(
        "aclnnTiny",
        Input("x", "first"),
        Input("y", "second"),
        Input("extra", "may be absent", optional=True),
        Attribute("mode", Kind.INT64, "a number"),
        Attribute("amount", Kind.DOUBLE, "another"),
        Attribute("text", Kind.STRING, "a text"),
        Attribute("slope", Kind.SCALAR, "an aclScalar"),
        Output("out", "result", shape="x", dtype="x"),
        products={A2: FLOATS, A3: FLOATS},
        legacy={ASCEND_910: HALF_AND_SINGLE},
        checks=checks,
        kernel_dtype=rules.dtype_of("x"),
        over=elementwise("x"),
        source="this test",
    )
    return declare(formula)


def formula(
    whole: Any, x: Any, y: Any, extra: Any = None, mode: int = 0, amount: float = 0.0,
    text: str = "", slope: float = 0.0,
) -> Any:  # fmt: skip
    return x


def spec(shape: tuple[int, ...] = (2, 3), dtype: DType = FLOAT, **more: Any) -> TensorSpec:
    return TensorSpec(dtype, shape, **more)


def draft_of(*checks: Rule, product: Any = A2, **arguments: Any) -> Draft:
    """A call with x and y of (2, 3) FLOAT and these changes; "left out" takes one away."""
    given = {"x": spec(), "y": spec()} | arguments
    mentioned = {name: value for name, value in given.items() if value != "left out"}
    declared = tiny(*checks)
    return Draft(Call(declared, mentioned, ()), product, Catalogue([declared]))


def verdict(rule: Rule, product: Any = A2, **arguments: Any) -> NpucallError | None:
    """The error of a rule, which must keep to what the rule says of itself."""
    try:
        rule.check(draft_of(rule, product=product, **arguments))
    except NpucallError as error:
        assert error.aclnn_status == rule.status
        assert set(error.parameters) <= set(rule.blames)
        return error
    return None


PAIR = rules.promoted("x", "y", into="both")
SQUARE = rules.shape_of("x", into="square", make=lambda draft: draft.shape("x")[:1] * 2)
POSITIVE = rules.requires(
    "more than 0",
    "mode",
    "amount",
    holds=lambda draft: draft.attribute("mode") > 0,
    found=lambda draft: draft.attribute("mode"),
    error=AttributeValueError,
    status=561002,
)
NEVER = rules.requires("nothing", "x", holds=lambda _: False, found=lambda draft: draft.shape("x"))
NOT_A2 = rules.except_on((A2,), NEVER)
ON_A2 = rules.on((A2,), NEVER)
IF_FULL = rules.when(rules.not_empty("x"), NEVER, "x not empty")

# rule; what is wrong with the call; class, blamed parameters and words of the error
REFUSED = [
    (rules.present("y", "x"), {"x": None, "y": None}, ArgumentMissingError, "y", r"a null y"),
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
        rules.same_shape("y", "x", "what x is", status=561002),
        {"y": spec((3,))},
        ShapeError,
        "y",
        r"y: expected shape \(2, 3\), what x is, found \(3,\)",
    ),
    (rules.same_shape("x", "out"), {"out": spec((6,))}, ShapeError, "x", "that of out"),
    (
        rules.rank_is("x", 1, 3, status=561002),
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
        rules.dtype_in("x", INT32, INT64, status=561002),
        {},
        DTypeError,
        "x",
        "x: expected INT32 or INT64, found FLOAT",
    ),
    (rules.dtype_in("slope", FLOAT), {"slope": Scalar(BOOL, 1)}, DTypeError, "slope", "BOOL"),
    (rules.real("slope"), {"slope": Scalar(COMPLEX64, 1)}, DTypeError, "slope", "found COMPLEX64"),
    (rules.not_negative("amount"), {"amount": -1e-9}, AttributeValueError, "amount", "0 or more"),
    (rules.not_negative("amount"), {"amount": float("nan")}, AttributeValueError, "amount", "nan"),
    (
        rules.same_format("y", "x"),
        {"y": spec(format=Format.NCL)},
        FormatError,
        "y",
        "y: expected ND, the format of x, found NCL",
    ),
    (rules.one_of("mode", 0, 1), {"mode": 2}, AttributeValueError, "mode", r"\(0, 1\), found 2"),
    (
        rules.one_of("text", "none", "tanh", status=561002),
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
    (rules.same_format("extra", "x"), {}),
    (rules.one_of("text", "", "tanh"), {}),
    (rules.public_format("x", "extra"), {"x": spec(format=Format.NHWC)}),
    (NOT_A2, {}),
    (IF_FULL, {"x": spec((2, 0))}),
    (rules.succeed_if_empty("x", "extra"), {"y": spec((0,))}),
]


@pytest.mark.parametrize(("rule", "changes", "error", "blamed", "words"), REFUSED)
def test_a_rule_refuses_with_its_class_status_blame_and_words(
    rule: Rule, changes: Any, error: type[NpucallError], blamed: str, words: str
) -> None:
    found = verdict(rule, **changes)
    assert type(found) is error
    assert found.parameters == tuple(blamed.split())
    assert found.aclnn_status == (161001 if error is ArgumentMissingError else rule.status)
    with pytest.raises(error, match=words):
        raise found


@pytest.mark.parametrize(("rule", "changes"), PASSED)
def test_a_rule_lets_pass_what_it_does_not_speak_of(rule: Rule, changes: Any) -> None:
    assert verdict(rule, **changes) is None


@pytest.mark.parametrize("rule", [row[0] for row in REFUSED])
def test_a_rule_that_refuses_says_so(rule: Rule) -> None:
    assert rule.status in (161001, 161002, 561002)
    assert rule.blames
    assert all(name in rule.description for name in rule.blames[:1])


def test_a_rule_has_status_161002_unless_it_says_another() -> None:
    assert {row[0].status for row in REFUSED} == {161001, 161002, 561002}
    assert rules.rank_is("x", 1).status == rules.one_of("mode", 1).status == 161002
    assert rules.dtype_in("x", FLOAT).status == NEVER.status == 161002


@pytest.mark.parametrize(
    ("rule", "names"), [(PAIR, "both"), (rules.broadcast("x", "y", into="common"), "common")]
)
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


@pytest.mark.parametrize("besides", [(), (INT32,)])
def test_supported_refuses_every_dtype_on_a_product_that_has_nothing(besides: Any) -> None:
    found = verdict(rules.supported("x", besides=besides), ASCEND_310, x=spec(dtype=INT32))
    assert isinstance(found, DTypeError)
    assert "expected a product that has aclnnTiny, found Ascend310" in str(found)


@pytest.mark.parametrize(("product", "refused"), [(A2, False), (ASCEND_910, True)])
def test_bf16_is_refused_where_the_product_has_none(product: Any, refused: bool) -> None:
    rule = rules.bfloat16_if_product_has("x")
    found = verdict(rule, product, x=spec(dtype=BF16))
    assert (found is not None and found.parameters == ("x",)) is refused


@pytest.mark.parametrize("product", [A2, A3, ASCEND_910])
def test_on_and_except_on_divide_the_products(product: Any) -> None:
    there = verdict(rules.on((A2, A3), NEVER), product)
    elsewhere = verdict(rules.except_on((A2, A3), NEVER), product)
    assert (there is None, elsewhere is None) == (product is ASCEND_910, product is not ASCEND_910)


def test_a_rule_under_a_condition_says_the_condition() -> None:
    assert rules.on((A2, A3), NEVER).description == ("on Ascend910B and Ascend910_93: x: nothing")
    assert NOT_A2.description == "not on Ascend910B: x: nothing"
    assert IF_FULL.description == "x not empty: x: nothing"
    assert (IF_FULL.status, IF_FULL.blames) == (NEVER.status, NEVER.blames)


@pytest.mark.parametrize("empty", ["x", "extra"])
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


@pytest.mark.parametrize(
    ("mode", "warnings"),
    [(0, []), (1, []), (7, [("mode", "mode: 7 is not one of (0, 1); it acts as 0")])],
)
def test_a_warning_is_given_for_other_values_and_the_call_passes(mode: int, warnings: Any) -> None:
    rule = rules.warn_unless("mode", 0, 1, meaning="it acts as 0")
    draft = draft_of(rule, mode=mode)
    rule.check(draft)
    assert draft.warnings == warnings
    assert rule.status == 0


@pytest.mark.parametrize(
    ("x", "y", "half", "short"),
    [
        (FLOAT16, FLOAT16, FLOAT16, FLOAT16),
        (BF16, BF16, FLOAT, BF16),
        (FLOAT16, BF16, FLOAT, FLOAT),
        (FLOAT, FLOAT16, FLOAT, FLOAT),
        (FLOAT, FLOAT, FLOAT, FLOAT),
        (DOUBLE, DOUBLE, FLOAT, FLOAT),
    ],
    ids=str,
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


def test_every_error_of_a_rule_but_a_null_is_an_argument_error() -> None:
    classes = {row[2] for row in REFUSED} - {ArgumentMissingError}
    assert all(issubclass(error, ArgumentError) for error in classes)
