"""``npucall.v1.OperatorService``: Execute, Plan and the listings."""

from __future__ import annotations

import time
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError, Message

from npucall.errors import MessageError, TooLargeError
from npucall.tensors import MAX_RANK
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import PreparedCalls
from npucall.wire.listing import describe
from npucall.wire.messages import join_response, split_request
from npucall.wire.replies import Timings, encode_identity, encode_reply, encode_timings
from npucall_server.shared.places import PlacedCall, is_placed

if TYPE_CHECKING:
    import grpc

    from npucall.declare.declaration import Operator
    from npucall.declare.prepare import Prepared
    from npucall.wire.messages import Request
    from npucall.wire.replies import ServerIdentity
    from npucall_server.devices.base import DeviceFacts
    from npucall_server.executor import Executor, Result
    from npucall_server.handling import Method
    from npucall_server.log import Record
    from npucall_server.settings import ServerSettings
    from npucall_server.shared.regions import Regions

NAME: str = pb.DESCRIPTOR.services_by_name["OperatorService"].full_name
_KEPT_REPLIES = 1024
MAX_ANSWER_BYTES = 2**31 - 2**20
"""Of outputs in one message: gRPC sends less than 2 GiB, of which some is for the rest."""

M = TypeVar("M", bound=Message)


class OperatorService:
    """The methods, from bytes to bytes."""

    def __init__(
        self,
        executor: Executor,
        settings: ServerSettings,
        identity: ServerIdentity,
        regions: Regions,
    ) -> None:
        self._executor = executor
        self._device = device = executor.device
        self._settings = settings
        self._identity = identity
        self._regions = regions
        self._started = time.monotonic()
        self._calls = PreparedCalls(device.catalogue, device.product, device.default_variant)
        self._reply = lru_cache(_KEPT_REPLIES)(lambda call: encode_reply(call, identity))

    def methods(self) -> dict[str, Method]:
        """The methods by the names that the proto gives them."""
        return {
            "Execute": self.execute,
            "Plan": self.plan,
            "ListOperators": self.list_operators,
            "GetOperator": self.get_operator,
            "GetServerInfo": self.get_server_info,
        }

    def execute(self, request: bytes, record: Record, context: grpc.ServicerContext) -> bytes:
        """Runs one call."""
        start = time.perf_counter_ns()
        asked = split_request(request)
        decoded = time.perf_counter_ns()
        record.decode_ns = decoded - start
        prepared = self.prepared(asked.call, record)
        if is_placed(asked):
            return self._execute_placed(prepared, asked, record, context)
        storages = prepared.storages(asked.storage)  # type: ignore[arg-type]  # no regions
        _check_answer(prepared.replied_bytes)
        record.check_ns = time.perf_counter_ns() - decoded
        result = self._executor.run(prepared, storages, context)
        reply, timings = self.reply(prepared, result, record)
        return join_response(reply, timings, result.outputs)

    def _execute_placed(
        self, prepared: Prepared, asked: Request, record: Record, context: grpc.ServicerContext
    ) -> bytes:
        """Runs one call of which something is in shared memory."""
        start = time.perf_counter_ns()
        placed = self.placed(prepared, asked)
        _check_answer(prepared.replied_bytes - sum(map(len, placed.targets.values())))
        record.check_ns = time.perf_counter_ns() - start
        self._executor.admit(prepared)
        try:
            storages, targets = placed.storages(), placed.targets
            result = self._executor.run_admitted(prepared, storages, context, targets)
        finally:
            self._executor.dismiss(prepared)
        reply, timings = self.reply(prepared, result, record)
        return join_response(reply, timings, placed.replied(result.outputs))

    def plan(self, request: bytes, record: Record, context: grpc.ServicerContext) -> bytes:
        """Checks one call without its data."""
        start = time.perf_counter_ns()
        asked = split_request(request)
        if is_placed(asked):
            raise MessageError("plan: expected a call alone, found places in shared memory")
        call = asked.call  # its size is checked before the class parses it
        decoded = time.perf_counter_ns()
        prepared = self.prepared(call, record)
        record.decode_ns = decoded - start
        record.check_ns = time.perf_counter_ns() - decoded
        workspace_bytes = self._executor.plan(prepared, context)
        return pb.PlanResponse(
            reply=pb.Reply.FromString(self._reply(prepared)),
            timings=pb.Timings.FromString(_timings(record)),
            workspace_bytes=workspace_bytes,
        ).SerializeToString()

    def list_operators(self, request: bytes, _: Record, __: grpc.ServicerContext) -> bytes:
        """Every operator."""
        _parse(pb.ListOperatorsRequest, request)
        operators = [self._describe(operator) for operator in self._device.catalogue]
        return pb.ListOperatorsResponse(operators=operators).SerializeToString()

    def get_operator(self, request: bytes, record: Record, _: grpc.ServicerContext) -> bytes:
        """One operator."""
        wanted = _parse(pb.GetOperatorRequest, request)
        record.operator, record.variant = wanted.operator, wanted.variant
        catalogue, default = self._device.catalogue, self._device.default_variant
        operator = catalogue.find(wanted.operator, wanted.variant, default)
        return pb.GetOperatorResponse(operator=self._describe(operator)).SerializeToString()

    def get_server_info(self, request: bytes, _: Record, __: grpc.ServicerContext) -> bytes:
        """What this server is and allows."""
        _parse(pb.GetServerInfoRequest, request)
        executor, settings, device = self._executor, self._settings, self._device
        facts, path = device.facts(), settings.shared_memory
        return pb.GetServerInfoResponse(
            server=encode_identity(self._identity),
            product=device.product.soc,
            default_variant=device.default_variant,
            version=version("npucall-server"),
            limits=pb.Limits(
                max_message_bytes=settings.max_message_bytes,
                memory_limit=settings.memory_limit,
                queue_length=settings.queue_length,
                call_timeout_seconds=settings.call_timeout,
                max_rank=MAX_RANK,
                stream_window=settings.stream_window,
                chunk_bytes=settings.chunk_bytes,
            ),
            calls_in_flight=executor.calls_in_flight,
            bytes_in_flight=executor.bytes_in_flight,
            uptime_seconds=time.monotonic() - self._started,
            device=_device_info(facts) if facts else None,
            shared_memory_socket=str(path.absolute()) if path else "",
        ).SerializeToString()

    def _describe(self, operator: Operator[Any, Any]) -> pb.OperatorInfo:
        device = self._device
        return describe(operator, device.product, device.unavailable_because(operator))

    def prepared(self, call: bytes, record: Record) -> Prepared:
        """The prepared call in its bytes; raises the first rule that it breaks."""
        prepared = self._calls.of(call)
        record.operator = prepared.operator.name
        record.variant = prepared.operator.variant
        return prepared

    def placed(self, prepared: Prepared, asked: Request) -> PlacedCall:
        """What of a call is in shared memory; raises what does not fit."""
        return PlacedCall(prepared, asked, self._regions)

    def reply(self, prepared: Prepared, result: Result, record: Record) -> tuple[bytes, bytes]:
        """The bytes of the reply to a call that ran, and of its timings."""
        ran = time.perf_counter_ns()
        record.queue_ns = result.queue_ns
        record.copy_in_ns, record.plan_ns, record.run_ns, record.copy_out_ns = result.phases
        reply = self._reply(prepared)
        record.encode_ns = time.perf_counter_ns() - ran
        return reply, _timings(record)


def _check_answer(size: int) -> None:
    if size > MAX_ANSWER_BYTES:
        raise TooLargeError(
            f"response: expected at most {MAX_ANSWER_BYTES} bytes of outputs in one message, found "
            f"{size}; ExecuteStream sends them in chunks",
            limit=str(MAX_ANSWER_BYTES),
            method="ExecuteStream",
        )


def _timings(record: Record) -> bytes:
    return encode_timings(
        Timings(
            record.decode_ns, record.check_ns, record.queue_ns, record.run_ns, record.encode_ns,
            record.copy_in_ns, record.plan_ns, record.copy_out_ns,
        )
    )  # fmt: skip


_HEALTH = {
    None: pb.DEVICE_HEALTH_UNSPECIFIED,
    True: pb.DEVICE_HEALTH_NORMAL,
    False: pb.DEVICE_HEALTH_ABNORMAL,
}


def _device_info(facts: DeviceFacts) -> pb.DeviceInfo:
    return pb.DeviceInfo(
        cann_version=facts.cann_version,
        driver_version=facts.driver_version,
        runtime_version=facts.runtime_version,
        memory_total_bytes=facts.memory_total_bytes,
        memory_free_bytes=facts.memory_free_bytes,
        utilization=pb.DeviceUtilization(
            cube_percent=facts.cube_percent,
            vector_percent=facts.vector_percent,
            aicpu_percent=facts.aicpu_percent,
        ),
        health=_HEALTH[facts.healthy],
    )


def _parse(kind: type[M], data: bytes) -> M:
    try:
        message: Any = kind.FromString(data)
    except DecodeError as error:
        raise MessageError(f"request: expected a serialised {kind.__name__}") from error
    parsed: M = message
    return parsed
