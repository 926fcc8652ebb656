"""Operators that only the server knows: asked for once, then called as any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.declare.parameters import Scalar
from npucall.dtypes import FLOAT, FLOAT16
from npucall.errors import (
    ArgumentMissingError,
    ArgumentUnknownError,
    OperatorUnknownError,
    TensorLayoutError,
)
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.listing import describe

from .fake_transport import SERVER, FakeTransport, connected, operator

PAIR, TRIPLE = np.array([1, 2], np.float32), np.array([3, 4, 5], np.float32)


def cat(tensors: Any, dim: int, out: Any) -> None:
    out[...] = np.concatenate(tensors, dim)


def split(self: Any, sizes: Any, out: Any) -> None:
    start = 0
    for size, part in zip(sizes, out, strict=True):
        part[...] = self[start : start + size]
        start += size


def add_in_place(other: Any, alpha: Scalar, **written: Any) -> None:
    written["selfRef"] += other * np.float32(alpha.value)


def exp2(self: Any, out: Any) -> None:
    out[...] = np.exp2(self)


def cumsum(self: Any, dim: int, dtype: Any, out: Any) -> None:
    out[...] = self.astype(dtype.numpy).cumsum(dim)


def uniform(to: float, **given: Any) -> None:
    given["selfRef"][...] = (given["from"] + to) / 2


def maximum(self: Any, values: Any, where: Any) -> None:
    if values is not None:
        values[...] = self.max()
    if where is not None:
        where[...] = self.argmax()


FUNCTIONS = {
    operator(
        "aclnnCat", tensors="in const aclTensorList*", dim="int64_t", out="out aclTensor*"
    ): cat,
    operator(
        "aclnnSplit", self="in const aclTensor*", sizes="aclIntArray*", out="out aclTensorList*"
    ): split,
    operator(
        "aclnnInplaceAdd",
        selfRef="in/out const aclTensor*",
        other="in const aclTensor*",
        alpha="const aclScalar*",
    ): add_in_place,
    operator("aclnnExp2", self="in const aclTensor*", out="in const aclTensor*"): exp2,
    operator(
        "aclnnCumsum",
        self="in const aclTensor*",
        dim="int64_t",
        dtype="aclDataType",
        out="out aclTensor*",
    ): cumsum,
    operator(
        "aclnnInplaceUniform",
        selfRef="in/out const aclTensor*",
        **{"from": "double", "to": "double"},
    ): uniform,
    operator(
        "aclnnMaxDim",
        self="in const aclTensor*",
        values="out aclTensor*",
        where="out aclTensor*",
    ): maximum,
}


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport(FUNCTIONS)


@pytest.fixture
def client(transport: FakeTransport) -> npucall_client.Client:
    return connected(transport)


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def test_a_list_goes_in(client: npucall_client.Client) -> None:
    out = zeros(5)
    assert client.run("aclnnCat", tensors=[PAIR, TRIPLE], dim=0, outputs={"out": out}) is out
    assert out.tolist() == [1, 2, 3, 4, 5]


def test_a_list_comes_out(client: npucall_client.Client) -> None:
    out = [zeros(1), zeros(2)]
    found = client.run("aclnnSplit", self=TRIPLE, sizes=[1, 2], outputs={"out": out})
    assert [part.tolist() for part in found] == [[3], [4, 5]]
    assert found[0] is out[0]


def test_a_list_that_comes_out_may_have_gaps(client: npucall_client.Client) -> None:
    memory = np.full((3, 2), 9, np.float32)
    out = [memory[:1, 0], memory[1:, 0]]
    client.run("aclnnSplit", self=TRIPLE, sizes=[1, 2], outputs={"out": out})
    assert memory.tolist() == [[3, 9], [4, 9], [5, 9]]


def test_an_operator_works_in_place(client: npucall_client.Client) -> None:
    data = PAIR.copy()
    outputs = {"selfRef": data}
    assert client.run("aclnnInplaceAdd", other=PAIR, alpha=10.0, outputs=outputs) is data
    assert data.tolist() == [11, 22]


@pytest.mark.parametrize("keep_layout", [False, True])
def test_an_operator_works_in_place_through_gaps(
    client: npucall_client.Client, keep_layout: bool
) -> None:
    memory = np.array([1, 9, 2, 9], np.float32)
    options = client.options(outputs={"selfRef": memory[::2]}, keep_layout=keep_layout)
    options.run("aclnnInplaceAdd", other=PAIR, alpha=10.0)
    assert memory.tolist() == [11, 9, 22, 9]


def test_an_output_that_the_listing_takes_for_an_input_is_written(
    client: npucall_client.Client,
) -> None:
    found = client.run("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
    assert found.tolist() == [1, 1]


def test_an_output_that_the_listing_takes_for_one_may_be_an_input(
    client: npucall_client.Client, transport: FakeTransport
) -> None:
    client.run("aclnnMaxDim", self=TRIPLE, values=None, outputs={"where": None})
    (call,) = transport.ran
    assert [type(parameter).__name__ for parameter in call.operator.parameters] == [
        "Input", "Input", "Output"
    ]  # fmt: skip


def test_several_outputs_are_a_named_tuple_in_the_order_of_c(client: npucall_client.Client) -> None:
    outputs = {"where": zeros(dtype=np.int64), "values": zeros()}
    found = client.run("aclnnMaxDim", self=TRIPLE, outputs=outputs)
    assert (found._fields, found.values, found.where) == (("values", "where"), 5, 2)


def test_an_output_that_is_null_is_not_among_the_results(client: npucall_client.Client) -> None:
    outputs = {"where": zeros(dtype=np.int64), "values": None}
    result = client.execute("aclnnMaxDim", self=TRIPLE, outputs=outputs)
    assert list(result.outputs) == ["where"]
    assert result.value == 2


def test_an_attribute_travels_as_its_c_type_says(
    client: npucall_client.Client, transport: FakeTransport
) -> None:
    out = zeros(3, dtype=np.float16)
    client.run("aclnnCumsum", self=TRIPLE, dim=0, dtype=np.float16, outputs={"out": out})
    assert transport.ran[0].values == {"dim": 0, "dtype": FLOAT16}
    client.run("aclnnInplaceAdd", other=PAIR, alpha=2, outputs={"selfRef": PAIR.copy()})
    assert str(transport.ran[1].values["alpha"].dtype) == "INT64"


def test_a_name_that_python_reserves_goes_as_a_dictionary(client: npucall_client.Client) -> None:
    ends = {"from": 2.0, "to": 4}
    found = client.run("aclnnInplaceUniform", outputs={"selfRef": zeros(2)}, **ends)
    assert found.tolist() == [3, 3]


def test_execute_answers_what_is_known_without_reference(client: npucall_client.Client) -> None:
    result = client.execute("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
    assert (result.variant, result.kernel_dtype, result.warnings) == ("", None, ())
    assert result.server == SERVER
    assert result.outputs["out"] is result.value


def test_plan_answers_the_specs_of_a_list_one_by_one(client: npucall_client.Client) -> None:
    outputs = {"out": [zeros(1), zeros(2)]}
    plan = client.plan("aclnnSplit", self=TRIPLE, sizes=[1, 2], outputs=outputs)
    assert plan.outputs == {"out[0]": TensorSpec(FLOAT, (1,)), "out[1]": TensorSpec(FLOAT, (2,))}
    assert (plan.workspace_bytes, plan.kernel_dtype) == (512, None)


# What is asked of the server.


def test_the_server_is_asked_for_an_operator_once(
    client: npucall_client.Client, transport: FakeTransport
) -> None:
    for _ in range(3):
        client.run("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
    client.plan("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
    assert [name for name, _ in transport.asked] == ["aclnnExp2"]


def test_what_is_known_of_an_operator_is_shared_with_clients_of_other_options(
    client: npucall_client.Client, transport: FakeTransport
) -> None:
    options = client.options(outputs={"out": zeros(2)})
    options.run("aclnnExp2", self=zeros(2))
    client.run("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
    options.options(timeout=3.0).run("aclnnExp2", self=zeros(2))
    assert [name for name, _ in transport.asked] == ["aclnnExp2"]


def test_each_operator_is_asked_for(
    client: npucall_client.Client, transport: FakeTransport
) -> None:
    client.run("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
    client.run("aclnnCat", tensors=[PAIR], dim=0, outputs={"out": zeros(2)})
    assert [name for name, _ in transport.asked] == ["aclnnExp2", "aclnnCat"]


def test_two_connections_ask_on_their_own() -> None:
    first, second = FakeTransport(FUNCTIONS), FakeTransport(FUNCTIONS)
    for each in (first, second):
        connected(each).run("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
        assert len(each.asked) == 1


def test_a_declared_operator_is_not_asked_for(
    client: npucall_client.Client, transport: FakeTransport
) -> None:
    with pytest.raises(OperatorUnknownError):  # the scripted server has it not
        client.run("aclnnKlDivBackward", PAIR, PAIR, PAIR)
    with pytest.raises(OperatorUnknownError):
        client.run(kl_div_backward, PAIR, PAIR, PAIR)
    assert transport.asked == []


@pytest.mark.parametrize(
    ("options", "given", "timeout"),
    [
        ({}, {}, 7.0),
        ({"timeout": 5.0}, {}, 5.0),
        ({"timeout": 5.0}, {"timeout": 3.0}, 3.0),
    ],
)
def test_the_timeout_of_the_call_bounds_the_question_too(
    client: npucall_client.Client,
    transport: FakeTransport,
    options: Any,
    given: Any,
    timeout: float,
) -> None:
    client.options(**options).run("aclnnExp2", self=PAIR, outputs={"out": zeros(2)}, **given)
    assert transport.asked == [("aclnnExp2", timeout)]


def test_a_name_that_the_server_does_not_know_is_unknown_each_time(
    client: npucall_client.Client, transport: FakeTransport
) -> None:
    for _ in range(2):
        with pytest.raises(OperatorUnknownError, match="found 'aclnnNope'"):
            client.run("aclnnNope", self=PAIR)
    assert len(transport.asked) == 2
    assert transport.ran == []


def test_local_knows_no_other_operators() -> None:
    with (
        npucall_client.connect("local:") as client,
        pytest.raises(OperatorUnknownError, match="found 'aclnnExp2'"),
    ):
        client.run("aclnnExp2", self=PAIR, outputs={"out": zeros(2)})


# What the server refuses.


def test_an_output_that_is_not_given_is_missing(client: npucall_client.Client) -> None:
    with pytest.raises(ArgumentMissingError, match="out: expected the output's shape") as caught:
        client.run("aclnnCat", tensors=[PAIR], dim=0)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("out", None)


def test_a_tensor_in_place_that_is_not_given_is_missing(client: npucall_client.Client) -> None:
    with pytest.raises(ArgumentMissingError, match="selfRef: expected the output's shape"):
        client.run("aclnnInplaceAdd", other=PAIR, alpha=1.0)


def test_an_output_that_the_operator_has_not_is_unknown(client: npucall_client.Client) -> None:
    with pytest.raises(ArgumentUnknownError, match="'y': expected a parameter of aclnnCat"):
        client.run("aclnnCat", tensors=[PAIR], dim=0, outputs={"out": zeros(2), "y": zeros(2)})


def test_a_list_with_another_number_of_storages_is_refused(transport: FakeTransport) -> None:
    class Losing(FakeTransport):
        async def execute(self, request: Any, timeout: float, request_id: str) -> Any:
            request.storage.popitem()
            return await super().execute(request, timeout, request_id)

    with pytest.raises(TensorLayoutError, match=r"expected 2 \(tensors\[0\], tensors\[1\]\), fou"):
        connected(Losing(FUNCTIONS)).run(
            "aclnnCat", tensors=[PAIR, TRIPLE], dim=0, outputs={"out": zeros(5)}
        )


# A server that is newer than this client declares operators that it does not know.


class Newer(FakeTransport):
    """Lists a declared operator by another name."""

    variant = ""

    async def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        info = describe(kl_div_backward, A2)
        info.name, info.variant = name, self.variant
        return info

    async def execute(self, request: Any, timeout: float, request_id: str) -> Any:
        self.call = pb.Call.FromString(request.call)
        raise TimeoutError


def called(transport: Newer, **kwargs: Any) -> pb.Call:
    with pytest.raises(TimeoutError):
        connected(transport).run("aclnnNew", grad_output=PAIR, self=PAIR, target=PAIR, **kwargs)
    return transport.call


def test_defaults_and_outputs_of_a_newer_operator_are_left_to_the_server() -> None:
    call = called(Newer({}))
    assert [argument.name for argument in call.arguments] == ["grad_output", "self", "target"]


def test_a_newer_operator_with_reference_takes_no_roles() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        connected(Newer({})).run("aclnnNew", grad_output=PAIR, self=PAIR, target=PAIR, out=PAIR)
    call = called(Newer({}), outputs={"out": zeros(2)})
    assert {argument.role for argument in call.arguments} == {pb.ROLE_UNSPECIFIED}


def test_what_a_newer_operator_requires_is_a_type_error_before_anything_is_sent() -> None:
    with pytest.raises(TypeError, match="aclnnNew: missing a required argument: self, target"):
        connected(Newer({})).run("aclnnNew", grad_output=PAIR)


@pytest.mark.parametrize(("listed", "sent"), [("", ""), ("builtin", "community")])
def test_a_variant_is_asked_for_where_a_newer_operator_has_variants(listed: str, sent: str) -> None:
    transport = Newer({})
    transport.variant = listed
    assert called(transport, variant="community").variant == sent
