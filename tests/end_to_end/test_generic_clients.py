"""Clients that know nothing of npucall: generated stubs, reflection, health, google.rpc."""

from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from npucall.v1 import operator_service_pb2 as pb

from . import wire
from .contract import KL, Caller

VERSIONS = ("v1", "v1alpha")


def call(*tensors: str) -> pb.Call:
    arguments = [wire.tensor(name, 2) for name in tensors]
    return pb.Call(operator=KL, arguments=[*arguments, pb.Argument(name="reduction", integer=2)])


INPUTS = ("grad_output", "self", "target")


def test_operators_are_listed_by_name_as_they_are_described(caller: Caller) -> None:
    stub, within = caller.stub, wire.PATIENCE
    operators = stub.ListOperators(pb.ListOperatorsRequest(), timeout=within).operators
    listed = [(operator.name, operator.variant) for operator in operators]
    assert listed == sorted(listed)
    assert (KL, "") in listed
    for operator in operators:
        request = pb.GetOperatorRequest(operator=operator.name, variant=operator.variant)
        assert stub.GetOperator(request, timeout=within).operator == operator


@pytest.fixture
def reflected(channel: grpc.Channel) -> ProtoReflectionDescriptorDatabase:
    return ProtoReflectionDescriptorDatabase(channel)


def test_reflection_lists_the_services(reflected: ProtoReflectionDescriptorDatabase) -> None:
    assert set(reflected.get_services()) == {
        "npucall.v1.AccessService",
        "npucall.v1.OperatorService",
        "npucall.v1.SessionService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }


def test_a_client_made_of_reflection_alone_can_plan(
    channel: grpc.Channel, reflected: ProtoReflectionDescriptorDatabase
) -> None:
    """As grpcurl does it: no file of npucall's is there."""
    pool = DescriptorPool(reflected)
    service = pool.FindServiceByName("npucall.v1.OperatorService")
    assert {method.name for method in service.methods} == {*wire.METHODS, "ExecuteStream"}
    plan = service.methods_by_name["Plan"]
    request: Any = message_factory.GetMessageClass(plan.input_type)()
    assert type(request) is not pb.PlanRequest
    request.call.operator = KL
    for name in INPUTS:
        argument = request.call.arguments.add(name=name, stored=True)
        argument.tensor.dtype = 1
        argument.tensor.shape.extend([5, 4])
    data = wire.ask(channel, "Plan", request.SerializeToString())
    response: Any = message_factory.GetMessageClass(plan.output_type).FromString(data)
    (out,) = response.reply.outputs
    assert list(out.tensor.shape) == [5, 4]


def reflection_answer(channel: Any, version: str, **asked: str) -> Any:
    """Of either version, whose messages have the same fields."""
    describe: Any = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    )
    request = reflection_pb2.ServerReflectionRequest(**asked).SerializeToString()
    (answer,) = describe(iter([request]), timeout=wire.PATIENCE)
    return reflection_pb2.ServerReflectionResponse.FromString(answer)


def test_both_versions_of_reflection_answer_alike_and_describe_themselves(
    channel: grpc.Channel,
) -> None:
    for asked, answered in (
        ({"list_services": ""}, "list_services_response"),
        ({"file_containing_symbol": "npucall.v1.OperatorService"}, "file_descriptor_response"),
        ({"file_by_filename": "google/rpc/status.proto"}, "file_descriptor_response"),
        ({"file_containing_symbol": "google.rpc.Nothing"}, "error_response"),
    ):
        one, other = (reflection_answer(channel, version, **asked) for version in VERSIONS)
        assert one == other
        assert one.WhichOneof("message_response") == answered
    for version in VERSIONS:
        name = f"grpc.reflection.{version}.ServerReflection"
        answer = reflection_answer(channel, version, file_containing_symbol=name)
        (data,) = answer.file_descriptor_response.file_descriptor_proto
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
        assert file.package == f"grpc.reflection.{version}"
        (method,) = file.service[0].method
        assert method.input_type == f".grpc.reflection.{version}.ServerReflectionRequest"


def test_a_client_made_of_reflection_alone_can_read_an_error(
    caller: Caller, reflected: ProtoReflectionDescriptorDatabase
) -> None:
    """As grpcurl does it: the types of the details are asked for by the names in the status."""
    named = [("npucall-request-id", "mine")]
    wrong = pb.PlanRequest(call=call("grad_output", "self"))
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.Plan(wrong, timeout=wire.PATIENCE, metadata=named)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    (trailer,) = [value for key, value in error.trailing_metadata() if key.endswith("-bin")]
    pool = DescriptorPool(reflected)
    status: Any = message_class(pool, "google.rpc.Status").FromString(trailer)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    details = {
        each.type_url: message_class(pool, each.type_url.rpartition("/")[2]).FromString(each.value)
        for each in status.details
    }
    info = details["type.googleapis.com/google.rpc.ErrorInfo"]
    assert (info.domain, info.reason) == ("npucall", "ARGUMENT_MISSING")
    told = {"aclnn_status": "161001", "parameter": "target", "request_id": "mine"}
    assert dict(info.metadata).items() >= told.items()
    violations = details["type.googleapis.com/google.rpc.BadRequest"].field_violations
    assert [violation.field for violation in violations] == ["target"]


def message_class(pool: DescriptorPool, name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_a_compressed_request_is_refused_before_it_is_unpacked(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        wire.method(channel, "Execute")(
            wire.long_call(4), timeout=wire.PATIENCE, compression=grpc.Compression.Gzip
        )
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_fields_that_this_server_does_not_know_are_passed_over(channel: grpc.Channel) -> None:
    """Field 1000 of a later version: bytes, a number, a fixed64 and a fixed32."""
    unknown = (
        b"\xc2\x3e\x03abc" + b"\xc0\x3e\x07" + b"\xc1\x3e" + b"\1" * 8 + b"\xc5\x3e" + b"\1" * 4
    )
    assert wire.refusal(channel, "Execute", unknown + wire.long_call(4) + unknown) == "OK"
    assert wire.refusal(channel, "GetServerInfo", unknown) == "OK"
