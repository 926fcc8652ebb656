"""An operator to try rules on: declared here, with parameters of every sort."""

from typing import Any

from npucall.declare import rules
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator, operator
from npucall.declare.domain import elementwise
from npucall.declare.draft import Draft
from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall.declare.rules import Rule
from npucall.dtypes import (
    FLOAT,
    FLOATS,
    HALF_AND_SINGLE,
    DType,
)
from npucall.errors import (
    AttributeValueError,
    NpucallError,
)
from npucall.products import A2, A3, ASCEND_910
from npucall.tensors import TensorSpec


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
        area="arithmetic",
        source="this test",
    )
    return declare(formula)


def formula(
    facts: Any, x: Any, y: Any, extra: Any = None, mode: int = 0, amount: float = 0.0,
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
    found = None
    try:
        rule.check(draft_of(rule, product=product, **arguments))
    except NpucallError as error:
        found = error
    assert found is None or found.aclnn_status == rule.status
    assert found is None or set(found.parameters) <= set(rule.blames)
    return found


PAIR = rules.promoted("x", "y", into="both")
SQUARE = rules.shape_of("x", into="square", make=lambda draft: draft.shape("x")[:1] * 2)


def late(rule: Rule, status: int = 561002) -> Rule:
    """A rule of what the software finds late."""
    (found,) = rules.with_status(status, rule)
    return found


POSITIVE = late(
    rules.requires(
        "more than 0",
        "mode",
        "amount",
        holds=lambda draft: draft.attribute("mode") > 0,
        found=lambda draft: draft.attribute("mode"),
        error=AttributeValueError,
    )
)
NEVER = rules.requires("nothing", "x", holds=lambda _: False, found=lambda draft: draft.shape("x"))
NOT_A2 = rules.except_on((A2,), NEVER)
ON_A2 = rules.on((A2,), NEVER)
IF_FULL = rules.when(rules.not_empty("x"), NEVER, "x not empty")
