"""Spans of calls, by OpenTelemetry's API, if the application has set a provider for them."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from npucall.errors import NpucallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.trace import Status


_own: ContextVar[Any] = ContextVar("npucall_span", default=None)
"""The span that was made for the call."""


class Spans:
    """Makes a span for each call, below whatever span is current."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self._tracer, self._kind = tracer, SpanKind.CLIENT
        self._failed: Callable[[str], Status] = partial(Status, StatusCode.ERROR)
        self._inject: Any = TraceContextTextMapPropagator().inject

    @contextmanager
    def call(self, method: str, operator: str, target: str) -> Iterator[None]:
        """The span of one call, its repeats inside."""
        attributes = {
            "rpc.system": "grpc",
            "rpc.method": method,
            "server.address": target,
            "npucall.operator": operator,
        }
        with self._tracer.start_as_current_span(
            f"{method} {operator}",
            kind=self._kind,
            attributes=attributes,
            set_status_on_exception=False,
        ) as span:
            token = _own.set(span)
            try:
                yield
            except NpucallError as error:
                span.set_attribute("npucall.reason", error.reason)
                span.set_status(self._failed(str(error)))
                raise
            finally:
                _own.reset(token)

    def travels(self, carrier: str) -> None:
        """The call of the span that ``call`` made, if there is one, travels so."""
        if (span := _own.get()) is not None:
            span.set_attribute("rpc.system", carrier)

    def traceparent(self) -> str:
        """What tells a server of the current span; empty where there is none."""
        carrier: dict[str, str] = {}
        self._inject(carrier)
        return carrier.get("traceparent", "")


def spans() -> Spans | None:
    """The maker of spans; None if no provider is set, so that calls then cost nothing."""
    try:
        from opentelemetry import trace  # noqa: PLC0415
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Spans(trace.get_tracer("npucall_client"))
