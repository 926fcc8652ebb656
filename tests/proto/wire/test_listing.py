"""npucall.wire.listing: what a server tells of operators, and what a client finds in it."""

from typing import Any

import pytest
from tests.proto.prototypes import ADD_IN_PLACE, CAT, EVERY_KIND
from tests.rows import each

from npucall.declare.declaration import Operator
from npucall.declare.parameters import c_name
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.products import A2, ASCEND_310, ASCEND_310B
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1.tensor_pb2 import DataType
from npucall.wire.listing import declare, describe

everywhere = each("operator", CATALOGUE)
KL = describe(kl_div_backward, A2)


@everywhere
def test_a_listing_says_what_an_operator_declares(operator: Operator[..., Any]) -> None:
    info = describe(operator, A2)
    identity = (operator.name, operator.variant, operator.source)
    assert (info.name, info.variant, info.source) == identity
    assert info.summary
    assert info.description.startswith(info.summary)
    declared = [(p.name, p.c_type, p.description) for p in operator.parameters]
    assert [(p.name, p.c_type, p.description) for p in info.parameters] == declared
    checks = [(r.description, r.blames, r.status) for r in operator.checks]
    assert [(r.description, tuple(r.blames), r.aclnn_status) for r in info.rules] == checks
    listed = ", ".join(f"{p.c_type} {p.c_name}" for p in info.parameters)
    assert f"({listed}, uint64_t* workspaceSize" in info.prototype
    optional = {p.name: p.optional for p in info.parameters}
    for attribute in operator.attributes:
        null_by_default = operator.signature.parameters[attribute.name].default is None
        assert optional[attribute.name] == null_by_default


@everywhere
def test_an_operator_that_a_client_does_not_know_is_found_in_its_listing_without_its_formula(
    operator: Operator[..., Any],
) -> None:
    info = describe(operator, A2)
    found = declare(pb.OperatorInfo.FromString(info.SerializeToString()))
    assert (found.name, found.variant, found.reference) == (operator.name, operator.variant, True)
    assert (found.prototype, found.formula) == (info.prototype, None)
    declared = [(p.name, p.c_type) for p in operator.parameters]
    assert [(p.name, p.c_type) for p in found.parameters] == declared
    inputs = [(p.read, p.optional) for p in operator.inputs]
    assert [(p.read, p.optional) for p in found.inputs] == inputs
    pointers = {p.name for p in operator.attributes if p.kind.nullable}
    # Without a formula what is updated is an output whose storage the call sends.
    others = pointers | {output.name for output in operator.outputs if output.in_place}
    assert found.required - others == operator.required - others
    assert found.required <= operator.required


# Those of the document: name, name in C, role, type, whether it is read, member of the default.


def test_the_prototype_is_that_of_the_document() -> None:
    # From the header [src:cann-headers]
    assert KL.prototype == (
        "aclnnStatus aclnnKlDivBackwardGetWorkspaceSize(const aclTensor* gradOutput, "
        "const aclTensor* self, const aclTensor* target, int64_t reduction, bool logTarget, "
        "aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


def test_a_listing_of_an_older_server_gives_parameters_their_own_names() -> None:
    info = describe(kl_div_backward, A2)
    for parameter in info.parameters:
        parameter.ClearField("c_name")
    assert [c_name(p) for p in declare(info).parameters] == [p.name for p in info.parameters]


def test_a_scalar_without_default_may_not_be_absent() -> None:
    (slope,) = (p for p in describe(leaky_relu_backward, A2).parameters if "Scalar" in p.c_type)
    assert (slope.optional, slope.WhichOneof("default_value")) == (False, None)


def test_defaults_come_back_from_a_listing_with_their_types() -> None:
    found = declare(KL)
    defaults = {attribute.name: found.default(attribute) for attribute in found.attributes}
    assert defaults == {"reduction": 1, "log_target": False}
    assert [type(value) for value in defaults.values()] == [int, bool]


def test_products_are_listed_with_their_types_and_whether_documents_name_them() -> None:
    def types(*names: str) -> list[int]:
        return [DataType.Value(f"DATA_TYPE_{name}") for name in names]

    three, two = types("FLOAT", "FLOAT16", "BF16"), types("FLOAT", "FLOAT16")
    assert [(p.soc, list(p.dtypes), p.legacy) for p in KL.products] == [
        ("Ascend910B", three, False),
        ("Ascend910_93", three, False),
        ("Ascend950", three, False),
        ("Ascend910", two, True),
        ("Ascend310P", two, True),
    ]


NOT_ON_310B = "Ascend310B (Atlas 200I/500 A2 inference) does not have it"
NOT_ON_310 = "Ascend310 (Ascend 310) does not have it"


@each(
    ("operator", "product", "given_reason", "reason"),
    [
        (kl_div_backward, A2, "", ""),
        (kl_div_backward, A2, "not in libopapi.so", "not in libopapi.so"),
        (kl_div_backward, ASCEND_310B, "", NOT_ON_310B),
        (l1_loss_backward, ASCEND_310B, "", ""),  # legacy counts
        (l1_loss_backward, ASCEND_310, "", NOT_ON_310),
        (CAT, ASCEND_310B, "", ""),
        (CAT, A2, "not in libopapi.so", "not in libopapi.so"),
    ],
)
def test_a_listing_says_why_an_operator_is_unavailable(
    operator: Operator[..., Any], product: Any, given_reason: str, reason: str
) -> None:
    info = describe(operator, product, given_reason)
    assert (info.available, info.unavailable_because) == (not reason, reason)


# Operators known by their C prototype alone.


def test_a_listing_says_what_is_read_written_and_both() -> None:
    roles = [parameter.role for parameter in describe(ADD_IN_PLACE, A2).parameters]
    assert roles == [pb.ROLE_INPUT_OUTPUT, pb.ROLE_INPUT, pb.ROLE_ATTRIBUTE]
    assert describe(CAT, A2).parameters[2].role == pb.ROLE_OUTPUT


def test_a_listing_says_that_there_is_no_reference() -> None:
    info = describe(CAT, A2)
    assert (info.reference, KL.reference) == (False, True)
    assert info.summary == "Known by its C prototype alone: no reference, unvalidated."
    assert not info.products
    assert not info.rules


def test_every_pointer_may_be_absent_and_no_value() -> None:
    optional = {p.name for p in describe(EVERY_KIND, A2).parameters if p.optional}
    assert optional == {"text", "scalar", "scalars", "integers", "numbers", "booleans"}
    assert describe(CAT, A2).parameters[0].optional


@each(
    ("c_type", "role", "why"),
    [
        ("aclTensor*", pb.ROLE_UNSPECIFIED, "x: expected a known role, found 0"),
        ("aclTensor*", 99, "x: expected a known role, found 99"),
        ("aclNew*", pb.ROLE_ATTRIBUTE, r"x: expected a type of an attribute, found aclNew\*"),
    ],
)
def test_a_listing_that_is_not_understood_is_refused(c_type: str, role: Any, why: str) -> None:
    parameter = pb.ParameterInfo(name="x", c_type=c_type, role=role)
    with pytest.raises(ValueError, match=why):
        declare(pb.OperatorInfo(name="aclnnNew", parameters=[parameter]))
