"""Operators known by their C prototype alone: how they are made and bound, and stated roles."""

import keyword
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proto.prototypes import ADD_IN_PLACE, CAT, SPLIT
from tests.rows import each

from npucall.declare.declaration import Operator, prototype_only
from npucall.declare.parameters import Attribute, Input, Kind, Output, Parameter, parameter_of
from npucall.products import A2
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.listing import declare, describe

# Types that a header has: those of every kind, with and without const [src:header-grammar].
BARE = [kind.value.removeprefix("const ") for kind in Kind]
ATTRIBUTES = [*BARE, *(f"const {c_type}" for c_type in BARE)]
TENSORS = ["aclTensor*", "const aclTensor*", "aclTensorList*", "const aclTensorList*"]
NAMES = st.lists(st.sampled_from(["self", "x_2", "_", "from", "gradOut", "A"]), unique=True)


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Parameter, ...]:
    made = []
    for name in draw(NAMES):
        role = draw(st.sampled_from([None, Input, Output]))
        c_type = draw(st.sampled_from(TENSORS if role else ATTRIBUTES))
        in_place = role is Output and draw(st.booleans())
        made.append(parameter_of(name, c_type, role, in_place=in_place))
    return tuple(made)


@given(parameters())
@settings(max_examples=50)
def test_an_operator_comes_back_from_its_listing_as_it_was(listed: tuple[Parameter, ...]) -> None:
    operator = prototype_only("aclnnAny", listed, "aclnn_any.h")
    info = describe(operator, A2)
    found = declare(pb.OperatorInfo.FromString(info.SerializeToString()))
    assert found.parameters == operator.parameters
    assert found.prototype == operator.prototype
    assert (found.name, found.source, found.reference) == ("aclnnAny", "aclnn_any.h", False)
    assert describe(found, A2) == info
    inner = found.prototype.removeprefix("aclnnStatus aclnnAnyGetWorkspaceSize(")
    spelled = [tuple(one.rsplit(" ", 1)) for one in inner.removesuffix(");").split(", ")]
    types = [(parameter.c_type, parameter.name) for parameter in listed]
    assert spelled == [*types, ("uint64_t*", "workspaceSize"), ("aclOpExecutor**", "executor")]


WRONG_TYPES = {
    None: ("aclTensor*", "void*", "int64_t*", "const", "int16_t", ""),
    Input: ("int64_t", "aclScalar*", "aclTensor", "aclTensor**"),
    Output: ("int64_t", "aclScalar*", "aclTensor", "aclTensor**"),
}


@each(("role", "c_type"), [(role, one) for role, wrong in WRONG_TYPES.items() for one in wrong])
def test_a_type_that_no_parameter_of_the_role_has_is_refused(role: Any, c_type: str) -> None:
    expected = "a tensor" if role else "an attribute"
    with pytest.raises(ValueError, match=f"x: expected a type of {expected}, found"):
        parameter_of("x", c_type, role)


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


def test_an_attribute_has_no_role() -> None:
    with pytest.raises(TypeError, match="dim is not a tensor"):
        CAT.with_roles({"dim": Input})
