"""Operators that only the server knows: asked for once, then called as any other."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tests.client.prototypes import operator
from tests.rows import each

from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator
from npucall.declare.parameters import Attribute, Scalar
from npucall.declare.prepare import Prepared
from npucall.dtypes import FLOAT
from npucall.errors import OperatorUnknownError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.products import A2
from npucall.tensors import Buffer, TensorSpec, view
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import PreparedCalls
from npucall.wire.listing import describe
from npucall.wire.messages import Response
from npucall.wire.rpcs import GET_OPERATOR
from npucall_client.client import Client
from npucall_client.local.transport import LocalTransport
from npucall_client.sending.request import Request
from npucall_client.settings import ClientSettings

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


def maximum(self: Any, values: Any, where: Any) -> None:
    if values is not None:
        values[...] = self.max()
    if where is not None:
        where[...] = self.argmax()


IN, OUT, IN_OUT = "in const aclTensor*", "out aclTensor*", "in/out const aclTensor*"
LIST_IN, LIST_OUT = "in const aclTensorList*", "out aclTensorList*"
NUMBER = "const aclScalar*"
FUNCTIONS: dict[Any, Any] = {
    operator("aclnnConcat", tensors=LIST_IN, dim="int64_t", out=OUT): cat,
    operator("aclnnSplit", self=IN, sizes="aclIntArray*", out=LIST_OUT): split,
    operator("aclnnInplaceVendorAdd", selfRef=IN_OUT, other=IN, alpha=NUMBER): add_in_place,
    operator("aclnnExp2", self=IN, out=IN): exp2,
    operator("aclnnMaxDim", self=IN, values=OUT, where=OUT): maximum,
}


class FakeTransport(LocalTransport):
    """Runs functions, which get arrays, lists of them, and attributes, by name."""

    def __init__(self, functions: Mapping[Operator[..., Any], Callable[..., None]]) -> None:
        super().__init__("Ascend910B1")
        self._functions = {called.name: function for called, function in functions.items()}
        self._catalogue = Catalogue(functions)
        self._calls = PreparedCalls(self._catalogue, A2, "")
        self.asked: list[tuple[str, float]] = []
        """Names and timeouts of GetOperator."""
        self.ran: list[Prepared] = []

    async def execute(self, request: Request) -> Response:
        call: Any = request.call
        prepared = self.prepared(call.call)
        self.ran.append(prepared)
        sent = prepared.storages(list(call.storage.values()))
        written = {
            name: bytearray(sent.get(name, bytes(spec.storage_bytes)))
            for name, spec in prepared.outputs.items()
        }
        self._functions[prepared.operator.name](**_given(prepared, {**sent, **written}))
        return self.response(prepared, list(written.values()), 0)

    async def answer(self, request: Request, rpc: Any, asked: Any) -> Any:
        if rpc is GET_OPERATOR:
            self.asked.append((asked.operator, request.timeout))
        return await super().answer(request, rpc, asked)

    def list_operators(self, asked: pb.ListOperatorsRequest) -> pb.ListOperatorsResponse:
        every = [describe(called, A2) for called in self._catalogue]
        return pb.ListOperatorsResponse(operators=every)

    def get_operator(self, asked: pb.GetOperatorRequest) -> pb.GetOperatorResponse:
        operator = self._catalogue.find(asked.operator, asked.variant)
        return pb.GetOperatorResponse(operator=describe(operator, A2))


def _given(call: Prepared, storages: Mapping[str, Buffer]) -> dict[str, Any]:
    specs = {**call.inputs, **call.outputs}
    arrays = {name: view(spec, storages[name]) for name, spec in specs.items()}
    given: dict[str, Any] = dict(call.values)
    for parameter in call.operator.parameters:
        if not isinstance(parameter, Attribute):
            places = call.lists.get(parameter.name)
            one = arrays.get(parameter.name)
            given[parameter.name] = one if places is None else [arrays[place] for place in places]
    return given


def connected(transport: LocalTransport) -> Client:
    return Client(transport, ClientSettings.of(target="local:", timeout=7.0))


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport(FUNCTIONS)


@pytest.fixture
def client(transport: FakeTransport) -> Client:
    return connected(transport)


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def run_exp2(client: Client, **options: Any) -> Any:
    return client.run("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)}, **options)


def test_lists_go_in_and_come_out_and_outputs_are_named_in_the_order_of_c(client: Client) -> None:
    out = zeros(5)
    assert client.run("aclnnConcat", tensors=[PAIR, TRIPLE], dim=0, outputs={"out": out}) is out
    assert out.tolist() == [1, 2, 3, 4, 5]
    memory = np.full((3, 2), 9, np.float32)
    parts = [memory[:1, 0], memory[1:, 0]]  # with gaps
    found = client.run("aclnnSplit", self=TRIPLE, sizes=[1, 2], outputs={"out": parts})
    assert [part.tolist() for part in found] == [[3], [4, 5]]
    assert found[0] is parts[0]
    assert memory.tolist() == [[3, 9], [4, 9], [5, 9]]
    outputs = {"where": zeros(dtype=np.int64), "values": zeros()}
    found = client.run("aclnnMaxDim", self=TRIPLE, outputs=outputs)
    assert (found._fields, found.values, found.where) == (("values", "where"), 5, 2)
    outputs = {"where": zeros(dtype=np.int64), "values": None}
    result = client.execute("aclnnMaxDim", self=TRIPLE, outputs=outputs)
    assert (list(result.outputs), result.value) == (["where"], 2)
    assert run_exp2(client).tolist() == [1, 1]  # the listing takes its output for an input
    data = PAIR.copy()
    outputs = {"selfRef": data}
    assert client.run("aclnnInplaceVendorAdd", other=PAIR, alpha=10.0, outputs=outputs) is data
    assert data.tolist() == [11, 22]


def test_execute_and_plan_answer_what_is_known_without_reference(client: Client) -> None:
    result = client.execute("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
    assert (result.variant, result.kernel_dtype, result.warnings) == ("", None, ())
    assert result.server.device == "local"
    assert result.outputs["out"] is result.value
    outputs = {"out": [zeros(1), zeros(2)]}
    plan = client.plan("aclnnSplit", self=TRIPLE, sizes=[1, 2], outputs=outputs)
    assert plan.outputs == {"out[0]": TensorSpec(FLOAT, (1,)), "out[1]": TensorSpec(FLOAT, (2,))}
    assert plan.kernel_dtype is None


# What is asked of the server.


def test_the_server_is_asked_for_each_operator_once_whatever_the_options(
    client: Client, transport: FakeTransport
) -> None:
    options = client.options(outputs={"out": zeros(2)})
    options.run("aclnnExp2", self=zeros(2))
    run_exp2(client)
    client.plan("aclnnExp2", self=zeros(2), outputs={"out": zeros(2)})
    options.options(timeout=3.0).run("aclnnExp2", self=zeros(2))
    client.run("aclnnConcat", tensors=[PAIR], dim=0, outputs={"out": zeros(2)})
    assert [name for name, _ in transport.asked] == ["aclnnExp2", "aclnnConcat"]
    other = FakeTransport(FUNCTIONS)
    run_exp2(connected(other))
    assert len(other.asked) == 1


def test_a_declared_operator_is_not_asked_for(client: Client, transport: FakeTransport) -> None:
    called: Any
    for called in "aclnnKlDivBackward", kl_div_backward:
        with pytest.raises(OperatorUnknownError):  # the fake server has it not
            client.run(called, PAIR, PAIR, PAIR)
    assert transport.asked == []


@each(
    ("options", "given", "timeout"),
    [({}, {}, 7.0), ({"timeout": 5.0}, {}, 5.0), ({"timeout": 5.0}, {"timeout": 3.0}, 3.0)],
)
def test_the_timeout_bounds_the_question_too(options: Any, given: Any, timeout: float) -> None:
    transport = FakeTransport(FUNCTIONS)
    run_exp2(connected(transport).options(**options), **given)
    assert transport.asked == [("aclnnExp2", timeout)]


def test_a_name_that_the_server_does_not_know_is_unknown_each_time(
    client: Client, transport: FakeTransport
) -> None:
    for _ in range(2):
        with pytest.raises(OperatorUnknownError, match="found 'aclnnNope'"):
            client.run("aclnnNope", self=PAIR)
    assert len(transport.asked) == 2
    assert transport.ran == []


# A server that is newer than this client declares operators that it does not know.


class Newer(FakeTransport):
    """Lists a declared operator by another name."""

    def __init__(self, variant: str = "") -> None:
        super().__init__({})
        self.variant = variant

    def get_operator(self, asked: pb.GetOperatorRequest) -> pb.GetOperatorResponse:
        info = describe(kl_div_backward, A2)
        info.name, info.variant = asked.operator, self.variant
        return pb.GetOperatorResponse(operator=info)

    async def execute(self, request: Any) -> Any:
        self.call = pb.Call.FromString(request.call.call)
        raise TimeoutError


GIVEN: Any = {"grad_output": PAIR, "self": PAIR, "target": PAIR}


def called(transport: Newer, **kwargs: Any) -> pb.Call:
    with pytest.raises(TimeoutError):
        connected(transport).run("aclnnNew", **GIVEN, **kwargs)
    return transport.call


def test_defaults_outputs_and_roles_of_a_newer_operator_are_left_to_the_server() -> None:
    assert [argument.name for argument in called(Newer()).arguments] == list(GIVEN)
    call = called(Newer(), outputs={"out": zeros(2)})
    assert {argument.role for argument in call.arguments} == {pb.ROLE_UNSPECIFIED}
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        connected(Newer()).run("aclnnNew", **GIVEN, out=PAIR)
    with pytest.raises(TypeError, match="aclnnNew: missing a required argument: self, target"):
        connected(Newer()).run("aclnnNew", grad_output=PAIR)


def test_a_variant_is_asked_for_where_a_newer_operator_has_variants() -> None:
    assert called(Newer(), variant="community").variant == ""
    assert called(Newer("builtin"), variant="community").variant == "community"
