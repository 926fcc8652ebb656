"""Spans of calls, with OpenTelemetry's API. They are made from records of answered calls.

A span of the call, below the client's if it told of one, and below it one for each phase, in their
order and as long as each took: pauses between them do not show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from npucall_server.telemetry.log import Record


class _Api(NamedTuple):
    """What of OpenTelemetry is needed."""

    tracer: Any
    extract: Callable[[dict[str, str]], Any]
    below: Callable[[Any], Any]
    server: Any
    internal: Any
    failed: Callable[[str], Any]


class Traces:
    """Makes spans. ``device``: its name."""

    def __init__(self, api: _Api, device: str) -> None:
        self._api, self._device = api, device

    def called(self, record: Record) -> None:
        """A call has been answered."""
        api, ends = self._api, time.time_ns()
        begins = ends - record.total_ns
        span = api.tracer.start_span(
            f"{record.method} {record.operator}".strip(),
            api.extract({"traceparent": record.traceparent}),
            kind=api.server,
            attributes=_attributes(record),
            start_time=begins,
        )
        if span.is_recording():
            if record.reason != "OK":
                span.set_status(api.failed(record.message))
            self._phases(record, api.below(span), begins, ends)
        span.end(ends)

    def _phases(self, record: Record, parent: Any, begins: int, ends: int) -> None:
        now = begins
        for name, nanoseconds in (
            ("decode", record.decode_ns),
            ("check", record.check_ns),
            ("queue", record.queue_ns),
        ):
            now = self._phase(name, parent, now, nanoseconds)
        self._on_device(record, parent, now)
        self._phase("encode", parent, ends - record.encode_ns, record.encode_ns)

    def _on_device(self, record: Record, parent: Any, begins: int) -> None:
        phases = list(_device_phases(record))
        ends = begins + sum(nanoseconds for _, nanoseconds in phases)
        if ends == begins:
            return
        span = self._api.tracer.start_span(
            "device",
            parent,
            kind=self._api.internal,
            attributes={"npucall.device": self._device, "npucall.device_ns": record.device_ns},
            start_time=begins,
        )
        inside, now = self._api.below(span), begins
        for name, nanoseconds in phases:
            now = self._phase(name, inside, now, nanoseconds)
        span.end(ends)

    def _phase(self, name: str, parent: Any, begins: int, nanoseconds: int) -> int:
        if nanoseconds:
            span = self._api.tracer.start_span(name, parent, start_time=begins)
            span.end(begins + nanoseconds)
        return begins + nanoseconds


def traces(device: str) -> Traces | None:
    """None if no provider of spans is set, so that calls cost nothing then."""
    try:
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    api = _Api(
        trace.get_tracer("npucall_server"),
        tracecontext.TraceContextTextMapPropagator().extract,
        trace.set_span_in_context,
        trace.SpanKind.SERVER,
        trace.SpanKind.INTERNAL,
        lambda text: trace.Status(trace.StatusCode.ERROR, text),
    )
    return Traces(api, device)


def _attributes(record: Record) -> dict[str, str | int]:
    return {
        "rpc.system": record.carrier,
        "rpc.method": record.method,
        "client.address": record.peer,
        "npucall.operator": record.operator,
        "npucall.variant": record.variant,
        "npucall.tenant": record.tenant,
        "npucall.caller": record.caller,
        "npucall.request_id": record.request_id,
        "npucall.reason": record.reason,
        "npucall.request_bytes": record.request_bytes,
        "npucall.response_bytes": record.response_bytes,
    }


def _device_phases(record: Record) -> Iterator[tuple[str, int]]:
    yield "copy in", record.copy_in_ns
    yield "plan", record.plan_ns
    yield "run", record.run_ns
    yield "copy out", record.copy_out_ns
