"""Operators known by their C prototype alone: how they are made, bound, listed and declared."""

from __future__ import annotations

import keyword
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.declare.declaration import Operator, prototype_only
from npucall.declare.parameters import Attribute, Input, Kind, Output, Parameter, parameter_of
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2, ASCEND_310B
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.listing import declare, describe

from .prototypes import ADD_IN_PLACE, CAT, EVERY_KIND, SPLIT

# Types that a header has: those of every kind, with and without const [src:header-grammar].
BARE = [kind.value.removeprefix("const ") for kind in Kind]
ATTRIBUTES = [*BARE, *(f"const {c_type}" for c_type in BARE)]
TENSORS = ["aclTensor*", "const aclTensor*", "aclTensorList*", "const aclTensorList*"]


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Parameter, ...]:
    identifiers = st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True)
    names = draw(st.lists(identifiers, unique=True, max_size=8))
    made = []
    for name in names:
        role = draw(st.sampled_from([None, Input, Output]))
        c_type = draw(st.sampled_from(TENSORS if role else ATTRIBUTES))
        in_place = role is Output and draw(st.booleans())
        made.append(parameter_of(name, c_type, role, in_place=in_place))
    return tuple(made)


def through_the_wire(info: pb.OperatorInfo) -> pb.OperatorInfo:
    return pb.OperatorInfo.FromString(info.SerializeToString())


@pytest.mark.more
@given(parameters())
def test_an_operator_comes_back_from_its_listing_as_it_was(listed: tuple[Parameter, ...]) -> None:
    operator = prototype_only("aclnnAny", listed, "aclnn_any.h")
    info = describe(operator, A2)
    found = declare(through_the_wire(info))
    assert found.parameters == operator.parameters
    assert found.prototype == operator.prototype
    assert (found.name, found.source, found.reference) == ("aclnnAny", "aclnn_any.h", False)
    assert describe(found, A2) == info


@given(parameters())
def test_a_prototype_has_every_type_and_name_as_the_header_spells_them(
    listed: tuple[Parameter, ...],
) -> None:
    types = [(parameter.c_type, parameter.name) for parameter in listed]
    prototype = prototype_only("aclnnAny", listed, "").prototype
    inner = prototype.removeprefix("aclnnStatus aclnnAnyGetWorkspaceSize(").removesuffix(");")
    spelled = [tuple(each.rsplit(" ", 1)) for each in inner.split(", ")]
    assert spelled == [*types, ("uint64_t*", "workspaceSize"), ("aclOpExecutor**", "executor")]


# From the headers [src:cann-headers]
@each(
    ("operator", "own"),
    [
        (CAT, "const aclTensorList* tensors, int64_t dim, aclTensor* out"),
        (
            SPLIT,
            "const aclTensor* self, const aclIntArray* splitSize, int64_t dim, aclTensorList* out",
        ),
        (ADD_IN_PLACE, "const aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha"),
    ],
)
def test_the_prototype_is_that_of_the_document(operator: Operator[..., Any], own: str) -> None:
    assert operator.prototype == (
        f"aclnnStatus {operator.name}GetWorkspaceSize({own}, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


@each("c_type", ["aclTensor*", "void*", "int64_t*", "const", "int16_t", ""])
def test_a_type_that_no_attribute_has_is_refused(c_type: str) -> None:
    with pytest.raises(ValueError, match="x: expected a type of an attribute, found"):
        parameter_of("x", c_type, None)


@each("role", [Input, Output])
@each("c_type", ["int64_t", "aclScalar*", "aclTensor", "aclTensor**"])
def test_a_type_that_no_tensor_has_is_refused(c_type: str, role: Any) -> None:
    with pytest.raises(ValueError, match="x: expected a type of a tensor, found"):
        parameter_of("x", c_type, role)


def test_a_listing_says_what_is_read_written_and_both() -> None:
    roles = [parameter.role for parameter in describe(ADD_IN_PLACE, A2).parameters]
    assert roles == [pb.ROLE_INPUT_OUTPUT, pb.ROLE_INPUT, pb.ROLE_ATTRIBUTE]
    assert describe(CAT, A2).parameters[2].role == pb.ROLE_OUTPUT


def test_a_listing_says_that_there_is_no_reference() -> None:
    info = describe(CAT, A2)
    assert (info.reference, info.available, info.unavailable_because) == (False, True, "")
    assert info.summary == "Known by its C prototype alone: no reference, unvalidated."
    assert not info.products
    assert not info.rules
    assert describe(kl_div_backward, A2).reference is True


def test_every_pointer_may_be_absent_and_no_value() -> None:
    optional = {p.name: p.optional for p in describe(EVERY_KIND, A2).parameters}
    absent = {"text", "scalar", "scalars", "integers", "numbers", "booleans"}
    assert {name for name, may_be in optional.items() if may_be} == absent
    assert describe(CAT, A2).parameters[0].optional


@each(
    ("operator", "product", "given_reason", "reason"),
    [
        (CAT, ASCEND_310B, "", ""),
        (CAT, A2, "not in libopapi.so", "not in libopapi.so"),
        (kl_div_backward, A2, "not in libopapi.so", "not in libopapi.so"),
        (
            kl_div_backward,
            ASCEND_310B,
            "",
            "Ascend310B (Atlas 200I/500 A2 inference) does not have it",
        ),
    ],
)
def test_a_listing_says_why_an_operator_is_unavailable(
    operator: Operator[..., Any], product: Any, given_reason: str, reason: str
) -> None:
    info = describe(operator, product, given_reason)
    assert (info.available, info.unavailable_because) == (not reason, reason)


# What a client does with an operator that a newer server declares and it does not know itself.


@each("operator", list(CATALOGUE))
def test_a_declared_operator_is_found_in_its_listing_without_its_formula(
    operator: Operator[..., Any],
) -> None:
    found = declare(through_the_wire(describe(operator, A2)))
    assert (found.name, found.variant, found.reference) == (operator.name, operator.variant, True)
    assert [(p.name, p.c_type) for p in found.parameters] == [
        (p.name, p.c_type) for p in operator.parameters
    ]
    assert [(p.read, p.optional) for p in found.inputs] == [
        (p.read, p.optional) for p in operator.inputs
    ]
    assert found.formula is None


@each("operator", list(CATALOGUE))
def test_what_a_declared_operator_requires_its_listing_requires_too_but_for_null_pointers(
    operator: Operator[..., Any],
) -> None:
    found = declare(through_the_wire(describe(operator, A2)))
    pointers = {p.name for p in operator.attributes if p.kind.nullable}
    assert found.required - pointers == operator.required - pointers
    assert found.required <= operator.required


def test_defaults_come_back_from_a_listing_with_their_types() -> None:
    found = declare(through_the_wire(describe(kl_div_backward, A2)))
    defaults = {attribute.name: found.default(attribute) for attribute in found.attributes}
    assert defaults == {"reduction": 1, "log_target": False}
    assert [type(value) for value in defaults.values()] == [int, bool]


@each("role", [pb.ROLE_UNSPECIFIED, 99])
def test_a_listing_with_a_role_that_is_not_known_is_refused(role: int) -> None:
    parameter = pb.ParameterInfo(name="x", c_type="aclTensor*", role=role)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"x: expected a known role, found {role}"):
        declare(pb.OperatorInfo(name="aclnnNew", parameters=[parameter]))


def test_a_listing_with_a_type_that_is_not_known_is_refused() -> None:
    parameter = pb.ParameterInfo(name="x", c_type="aclNew*", role=pb.ROLE_ATTRIBUTE)
    with pytest.raises(ValueError, match=r"x: expected a type of an attribute, found aclNew\*"):
        declare(pb.OperatorInfo(name="aclnnNew", parameters=[parameter]))


# Binding without a signature.


def test_arguments_by_name_are_bound_in_any_order() -> None:
    given = {"dim": 0, "tensors": [1]}
    assert CAT.bind((), given) == given


def test_a_pointer_may_be_left_out_and_a_value_may_not() -> None:
    assert CAT.required == {"dim"}
    assert CAT.bind((), {"dim": 0}) == {"dim": 0}
    with pytest.raises(TypeError, match="aclnnCat: missing a required argument: dim"):
        CAT.bind((), {"tensors": [1]})


def test_arguments_without_a_name_are_refused() -> None:
    with pytest.raises(TypeError, match="aclnnCat: expected arguments by name, found 2 by"):
        CAT.bind(([1], 0), {})


@each("name", ["tensor", "out"])
def test_an_argument_that_is_no_input_or_attribute_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"got an unexpected keyword argument '{name}'; it has ten"):
        CAT.bind((), {"dim": 0, name: 1})


@each("name", keyword.kwlist)
def test_c_may_name_a_parameter_as_python_names_none(name: str) -> None:
    # aclnnInplaceUniform has "from".
    parameter = parameter_of(name, "double", None)
    operator = prototype_only("aclnnInplaceUniform", (parameter,), "")
    assert operator.bind((), {name: 0.5}) == {name: 0.5}
    with pytest.raises(TypeError, match=f"missing a required argument: {name}"):
        operator.bind((), {})


def test_an_operator_without_formula_has_no_signature() -> None:
    with pytest.raises(TypeError, match="aclnnCat has no formula"):
        _ = CAT.signature


# Roles, as a caller states them.


@each("operator", [CAT, SPLIT, ADD_IN_PLACE])
def test_stated_roles_change_nothing_of_a_prototype(operator: Operator[..., Any]) -> None:
    tensors = [p.name for p in operator.parameters if not isinstance(p, Attribute)]
    for role in Input, Output:
        changed = operator.with_roles(dict.fromkeys(tensors, role))
        assert changed.prototype == operator.prototype
        assert {type(changed.by_name[name]) for name in tensors} == {role}


def test_an_input_that_is_stated_may_be_absent_like_any_other() -> None:
    assert CAT.with_roles({"out": Input}).by_name["out"] == replace(
        CAT.inputs[0], name="out", c_name="out", const=False, many=False
    )


def test_an_output_that_is_stated_is_not_read_unless_it_is_sent() -> None:
    (output,) = ADD_IN_PLACE.with_roles({"selfRef": Output}).outputs
    assert not output.in_place


def test_an_attribute_has_no_role() -> None:
    with pytest.raises(TypeError, match="dim is not a tensor"):
        CAT.with_roles({"dim": Input})
