"""``grpc.reflection``: describes the services to clients that have no ``.proto`` files.

grpcio-reflection has only v1alpha. The messages of v1 have the same fields, so the same servicer
answers both versions; this module adds the description of v1 itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool

# A client that shows the details of an error asks for these files. Importing registers them.
from google.rpc import error_details_pb2, status_pb2  # noqa: F401
from grpc_reflection.v1alpha import reflection, reflection_pb2

ALPHA: str = reflection.SERVICE_NAME
NAME = ALPHA.replace("v1alpha", "v1")
METHOD = "ServerReflectionInfo"
read_request = reflection_pb2.ServerReflectionRequest.FromString
write_response = reflection_pb2.ServerReflectionResponse.SerializeToString
size_of = reflection_pb2.ServerReflectionResponse.ByteSize


def answers_for(names: Iterable[str]) -> Callable[..., Any]:
    """The function that answers a stream's questions about these services and about reflection."""
    servicer: Any = reflection.ReflectionServicer((*names, NAME, ALPHA), pool=_Files())
    answers: Callable[..., Any] = servicer.ServerReflectionInfo
    return answers


class _Files:
    """The default pool, and the file of v1.

    The file stays out of the default pool: a later grpcio-reflection may bring it, and protobuf
    refuses a second file of the same name.
    """

    def __init__(self) -> None:
        self._pools = descriptor_pool.Default(), _v1()

    def __getattr__(self, name: str) -> Any:
        """Everything that the file of v1 lacks, such as extensions, comes from the default pool."""
        return getattr(self._pools[0], name)

    def FindFileByName(self, name: str) -> Any:  # as pools have it
        """Raises KeyError."""
        return self._first("FindFileByName", name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        """Raises KeyError."""
        return self._first("FindFileContainingSymbol", symbol)

    def _first(self, find: str, name: str) -> Any:
        default, own = self._pools
        try:
            return getattr(default, find)(name)
        except KeyError:
            return getattr(own, find)(name)


def _v1() -> descriptor_pool.DescriptorPool:
    """A pool with only the file of v1: the file of v1alpha with other names."""
    alpha = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(alpha)
    types = [field for message in alpha.message_type for field in message.field if field.type_name]
    methods = [method for service in alpha.service for method in service.method]
    for named, fields in (
        ([alpha], ("name", "package")),
        ([alpha.options], ("java_package", "go_package")),
        (types, ("type_name",)),
        (methods, ("input_type", "output_type")),
    ):
        for each, field in product(named, fields):
            setattr(each, field, getattr(each, field).replace("v1alpha", "v1"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(alpha)
    return pool
