"""npucall.wire.rpcs: the rows are the methods of the .proto."""

from npucall.v1 import (
    access_service_pb2,
    directory_service_pb2,
    operator_service_pb2,
    session_service_pb2,
)
from npucall.wire.rpcs import RPCS, RpcKind, rpcs_of

SERVICES = [
    service
    for file in (
        operator_service_pb2,
        access_service_pb2,
        session_service_pb2,
        directory_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
]


def test_each_method_of_each_service_has_a_row_with_its_messages() -> None:
    for service in SERVICES:
        rows = {rpc.name: (rpc.request, rpc.answer) for rpc in rpcs_of(service.full_name)}
        listed = {
            each.name: (each.input_type._concrete_class, each.output_type._concrete_class)
            for each in service.methods
        }
        assert rows == listed
    assert len(RPCS) == sum(len(service.methods) for service in SERVICES)


def test_an_rpc_is_a_stream_where_the_proto_says_so() -> None:
    streams = {RpcKind.STREAM, RpcKind.CHUNKS}
    for rpc in RPCS.values():
        described = rpc.described
        is_stream = described.client_streaming or described.server_streaming
        assert (rpc.kind in streams) == is_stream, rpc.name


def test_names_are_written_as_grpc_and_as_python_write_them() -> None:
    rpc = RPCS["GetServerInfo"]
    assert rpc.path == "/npucall.v1.OperatorService/GetServerInfo"
    assert (rpc.service, rpc.function) == ("npucall.v1.OperatorService", "get_server_info")
