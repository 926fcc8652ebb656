"""The health service: names that nobody knows are not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2

from npucall_server.health import Health

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
SERVING = health_pb2.HealthCheckResponse.SERVING


class Context:
    """A stream that the test ends."""

    def __init__(self) -> None:
        self.ended: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self.ended.append(callback)
        return True

    def set_code(self, code: grpc.StatusCode) -> None:
        assert code is grpc.StatusCode.NOT_FOUND


def watch(health: Health, name: str) -> tuple[Any, list[Any]]:
    context, answers = Context(), list[Any]()
    health.Watch(health_pb2.HealthCheckRequest(service=name), context, answers.append)  # type: ignore[arg-type]
    return context, answers


def test_who_watches_an_unknown_name_is_told_so_and_the_name_is_not_kept() -> None:
    health = Health(["", "known"])
    for number in range(3):
        context, answers = watch(health, f"x{number}" * 1000)
        assert [each.status for each in answers] == [UNKNOWN]
        for end in context.ended:
            end()
        assert answers[1:] == [None]
    assert health._send_response_callbacks == {}
    assert set(health._server_status) == {""}


def test_who_watches_a_service_hears_of_each_change() -> None:
    health = Health(["", "known"])
    _, answers = watch(health, "known")
    health.set("known", SERVING)
    health.enter_graceful_shutdown()
    assert [each.status for each in answers] == [
        UNKNOWN,
        SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    ]
