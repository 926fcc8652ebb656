"""npucall.wire.listing against the declarations."""

from __future__ import annotations

from typing import Any

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

everywhere = each("operator", list(CATALOGUE))


def types(*names: str) -> list[int]:
    return [DataType.Value(f"DATA_TYPE_{name}") for name in names]


@everywhere
def test_a_listing_names_the_operator_as_it_is_declared(operator: Operator[..., Any]) -> None:
    info = describe(operator, A2)
    assert (info.name, info.variant, info.source) == (
        operator.name,
        operator.variant,
        operator.source,
    )
    assert info.description.startswith(info.summary)
    assert info.summary


@everywhere
def test_parameters_are_listed_in_the_order_of_the_c_function(
    operator: Operator[..., Any],
) -> None:
    info = describe(operator, A2)
    declared = [(p.name, p.c_type, p.description) for p in operator.parameters]
    assert [(p.name, p.c_type, p.description) for p in info.parameters] == declared


@everywhere
def test_rules_are_listed_in_the_order_in_which_they_are_checked(
    operator: Operator[..., Any],
) -> None:
    info = describe(operator, A2)
    declared = [(r.description, r.blames, r.status) for r in operator.checks]
    assert [(r.description, tuple(r.blames), r.aclnn_status) for r in info.rules] == declared


def test_the_parameters_of_kl_div_backward_are_those_of_the_document() -> None:
    listed = [(p.name, p.role, p.c_type, p.read) for p in describe(kl_div_backward, A2).parameters]
    assert listed == [
        ("grad_output", pb.ROLE_INPUT, "const aclTensor*", True),
        ("self", pb.ROLE_INPUT, "const aclTensor*", False),
        ("target", pb.ROLE_INPUT, "const aclTensor*", True),
        ("reduction", pb.ROLE_ATTRIBUTE, "int64_t", False),
        ("log_target", pb.ROLE_ATTRIBUTE, "bool", False),
        ("out", pb.ROLE_OUTPUT, "aclTensor*", False),
    ]


def test_a_parameter_is_listed_with_its_name_in_c() -> None:
    listed = {p.name: p.c_name for p in describe(kl_div_backward, A2).parameters}
    assert listed == {
        "grad_output": "gradOutput",
        "self": "self",
        "target": "target",
        "reduction": "reduction",
        "log_target": "logTarget",
        "out": "out",
    }


@everywhere
def test_a_prototype_is_made_of_the_types_and_names_that_are_listed(
    operator: Operator[..., Any],
) -> None:
    info = describe(operator, A2)
    listed = ", ".join(f"{p.c_type} {p.c_name}" for p in info.parameters)
    assert f"({listed}, uint64_t* workspaceSize" in info.prototype


@everywhere
def test_an_operator_that_is_known_by_its_listing_has_the_same_prototype(
    operator: Operator[..., Any],
) -> None:
    info = describe(operator, A2)
    assert declare(info).prototype == info.prototype


def test_a_listing_of_an_older_server_gives_parameters_their_own_names() -> None:
    info = describe(kl_div_backward, A2)
    for parameter in info.parameters:
        parameter.ClearField("c_name")
    assert [c_name(p) for p in declare(info).parameters] == [p.name for p in info.parameters]


def test_attributes_have_the_defaults_of_the_document_and_tensors_none() -> None:
    parameters = {p.name: p for p in describe(kl_div_backward, A2).parameters}
    members = {name: p.WhichOneof("default_value") for name, p in parameters.items()}
    assert members == {
        "grad_output": None,
        "self": None,
        "target": None,
        "reduction": "integer",
        "log_target": "boolean",
        "out": None,
    }
    assert (parameters["reduction"].integer, parameters["log_target"].boolean) == (1, False)


@everywhere
def test_an_attribute_may_be_absent_if_its_default_is_a_null_pointer(
    operator: Operator[..., Any],
) -> None:
    info = {p.name: p for p in describe(operator, A2).parameters}
    for attribute in operator.attributes:
        null_by_default = operator.signature.parameters[attribute.name].default is None
        assert info[attribute.name].optional == null_by_default


def test_a_scalar_without_default_may_not_be_absent() -> None:
    (slope,) = (p for p in describe(leaky_relu_backward, A2).parameters if "Scalar" in p.c_type)
    assert (slope.optional, slope.WhichOneof("default_value")) == (False, None)


def test_products_are_listed_with_their_types_and_whether_documents_name_them() -> None:
    products = describe(kl_div_backward, A2).products
    assert [(p.soc, list(p.dtypes), p.legacy) for p in products] == [
        ("Ascend910B", types("FLOAT", "FLOAT16", "BF16"), False),
        ("Ascend910_93", types("FLOAT", "FLOAT16", "BF16"), False),
        ("Ascend950", types("FLOAT", "FLOAT16", "BF16"), False),
        ("Ascend910", types("FLOAT", "FLOAT16"), True),
        ("Ascend310P", types("FLOAT", "FLOAT16"), True),
    ]


def test_the_prototype_is_that_of_the_document() -> None:
    # From the header [src:cann-headers]
    assert describe(kl_div_backward, A2).prototype == (
        "aclnnStatus aclnnKlDivBackwardGetWorkspaceSize(const aclTensor* gradOutput, "
        "const aclTensor* self, const aclTensor* target, int64_t reduction, bool logTarget, "
        "aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@each(
    ("operator", "product", "available"),
    [
        (kl_div_backward, A2, True),
        (kl_div_backward, ASCEND_310B, False),
        (l1_loss_backward, ASCEND_310B, True),  # legacy counts
        (l1_loss_backward, ASCEND_310, False),
    ],
)
def test_an_operator_is_available_where_its_product_takes_any_type(
    operator: Operator[..., Any], product: Any, available: bool
) -> None:
    assert describe(operator, product).available is available
