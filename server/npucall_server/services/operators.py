"""``npucall.v1.OperatorService``: Execute, Plan and the listings."""

from __future__ import annotations

import time
from functools import cached_property
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

from npucall.declare import Operator
from npucall.limits import FRAMES_PER_MESSAGE, MAX_NAME_BYTES, MAX_PROGRAM_STEPS, MAX_RANK
from npucall.texts import cut
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.listing import describe, listing
from npucall.wire.messages import check_overhead
from npucall.wire.replies import ServerIdentity, encode_identity
from npucall_server.access.callers import Caller
from npucall_server.accounts.budget import Budget
from npucall_server.calls.beginning import Executions
from npucall_server.carriers.multiplex.stream import STREAM_WINDOW
from npucall_server.devices.base import DeviceFacts
from npucall_server.services import who
from npucall_server.services.parsing import parse
from npucall_server.sessions.open_sessions import SessionLimits
from npucall_server.settings.server import ServerSettings
from npucall_server.telemetry.log import Record

NAME: str = pb.DESCRIPTOR.services_by_name["OperatorService"].full_name


class OperatorService:
    """The methods, from bytes to bytes."""

    def __init__(
        self,
        executions: Executions,
        settings: ServerSettings,
        budget: Budget,
        identity: ServerIdentity,
    ) -> None:
        self._executions = executions
        self._executor = executor = executions.executor
        self._device = executor.device
        self._settings, self._budget = settings, budget
        self._identity = identity
        self._started = time.monotonic()
        self.frames_socket, self.frames_port, self.frames_user = "", 0, 0
        """Where frames come in, as clients see it, and whose process that is; empty and 0: none."""

    def execute(self, request: bytes, record: Record, caller: Caller) -> bytes:
        """Runs one call."""
        with self._executions.begin(caller, record) as call:
            call.prepare(request)
            del request  # freed with the storages
            call.answer_in_one(streams=self._budget.max_streams > 0)
            return call.answer_once_read()

    def execute_program(self, request: bytes, record: Record, caller: Caller) -> bytes:
        """Runs one program."""
        with self._executions.begin(caller, record, program=True) as program:
            program.prepare(request)
            del request
            return program.answer_once_read()

    def plan_program(self, request: bytes, record: Record, caller: Caller) -> bytes:
        """Checks one program without its data."""
        plan = self._executions.plan(request, caller, record, program=True)
        plans = [
            pb.PlanResponse(reply=pb.Reply.FromString(reply), workspace_bytes=workspace)
            for reply, workspace in plan.steps
        ]
        return pb.PlanProgramResponse(
            steps=plans, timings=pb.Timings.FromString(plan.timings), peak_device_bytes=plan.peak
        ).SerializeToString()

    def plan(self, request: bytes, record: Record, caller: Caller) -> bytes:
        """Checks one call without its data."""
        check_overhead("request", len(request))
        plan = self._executions.plan(request, caller, record)
        ((reply, workspace_bytes),) = plan.steps
        return pb.PlanResponse(
            reply=pb.Reply.FromString(reply),
            timings=pb.Timings.FromString(plan.timings),
            workspace_bytes=workspace_bytes,
        ).SerializeToString()

    def list_operators(self, request: bytes, _: Record, __: Caller) -> bytes:
        """Every operator."""
        parse(pb.ListOperatorsRequest, request)
        return self._listing

    @cached_property
    def catalogue(self) -> int:
        """A digest of the listing, never 0. Hosts with the same listing have the same digest."""
        return int.from_bytes(blake2b(self._listing, digest_size=8).digest(), "little") or 1

    def get_operator(self, request: bytes, record: Record, _: Caller) -> bytes:
        """One operator."""
        wanted = parse(pb.GetOperatorRequest, request)
        record.operator = cut(wanted.operator, MAX_NAME_BYTES)
        record.variant = cut(wanted.variant, MAX_NAME_BYTES)
        catalogue, default = self._device.catalogue, self._device.default_variant
        operator = catalogue.find(wanted.operator, wanted.variant, default)
        return pb.GetOperatorResponse(operator=self._describe(operator)).SerializeToString()

    def get_server_info(self, request: bytes, _: Record, caller: Caller) -> bytes:
        """What this server is and allows."""
        parse(pb.GetServerInfoRequest, request)
        executor, settings, device = self._executor, self._settings, self._device
        budget, sessions = self._budget, SessionLimits.of(settings, device)
        facts, path = device.facts(), settings.shared_memory
        return pb.GetServerInfoResponse(
            server=encode_identity(self._identity),
            product=device.product.soc,
            default_variant=device.default_variant,
            version=version("npucall-server"),
            limits=pb.Limits(
                max_message_bytes=budget.max_message_bytes,
                memory_limit=settings.memory_limit,
                queue_length=settings.queue_length,
                call_timeout_seconds=settings.call_timeout,
                max_rank=MAX_RANK,
                stream_window=STREAM_WINDOW if budget.max_streams else 0,
                chunk_bytes=budget.chunk_bytes,
                computation_limit=settings.computation_limit,
                frames_per_message=FRAMES_PER_MESSAGE if budget.max_streams else 0,
                program_steps=MAX_PROGRAM_STEPS,
                chunks_beside_places=True,
                early_outputs=True,
                handle_memory=0 if sessions.off else sessions.handle_memory,
                session_lease_seconds=0 if sessions.off else sessions.session_lease,
                digest_cache_bytes=settings.digest_cache_bytes,
            ),
            calls_in_flight=executor.calls_in_flight,
            bytes_in_flight=executor.bytes_in_flight,
            uptime_seconds=time.monotonic() - self._started,
            device=_device_info(facts) if facts else None,
            shared_memory_socket=str(path.absolute()) if path else "",
            frames_socket=self.frames_socket,
            frames_port=self.frames_port,
            frames_user=self.frames_user,
            frames_tls=self.frames_port > 0 and settings.has_frames_tls,
            reservation=who.reservation(self._executions.gate.shown(), caller.identity),
            caller=who.caller_info(caller.identity, caller.identity),
            labels=settings.labels,
            catalogue=self.catalogue,
        ).SerializeToString()

    @property
    def _listing(self) -> bytes:
        operators, device = tuple(self._device.catalogue), self._device
        reasons = tuple(map(device.unavailable_because, operators))
        return listing(operators, device.product, reasons)

    def _describe(self, operator: Operator[Any, Any]) -> pb.OperatorInfo:
        device = self._device
        return describe(operator, device.product, device.unavailable_because(operator))


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
        product_guess=facts.product_guess,
    )
