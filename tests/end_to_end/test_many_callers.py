"""Many callers at once: each has his own answer, to the bit, and nothing of another's."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from tests.summary import figures

import npucall_client
from npucall_client import Client
from npucall_client.testing import running_server

from . import wire
from .test_every_path import Case, bits, expected, quick, run


@pytest.fixture(scope="module")
def calls() -> list[tuple[Case, Any]]:
    """With the bits of each in this process."""
    return [(case, bits(expected(case))) for case in quick() if len(case.inputs) < 5] * 2


def check_in_16_threads(calls: list[tuple[Case, Any]], *clients: Client) -> None:
    def found(number: int) -> Any:
        return bits(run(clients[number % len(clients)], calls[number][0]))

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(found, range(len(calls)))) == [right for _, right in calls]


@pytest.mark.parametrize("connections", [1, 16])
def test_16_threads_get_the_bits_that_this_process_has(
    npucall_server: str, calls: list[tuple[Case, Any]], connections: int
) -> None:
    with ExitStack() as stack:
        clients = [npucall_client.connect(npucall_server) for _ in range(connections)]
        for client in clients:
            stack.enter_context(client)
        check_in_16_threads(calls, *clients)


@pytest.mark.long
def test_thousands_of_calls_leave_the_server_as_it_was(calls: list[tuple[Case, Any]]) -> None:
    """A soak of 100 rounds; the first ones fill caches and start threads.

    Memory that a connection shares with its caller grows with the largest call that it has had, and
    goes with the connection.
    """
    with running_server() as server, wire.bare_channel(server.target) as channel:
        pid = server.process.pid
        shared = wire.shared_bytes(pid)
        with (
            npucall_client.connect(server.target) as one,
            npucall_client.connect(server.target) as other,
        ):
            for _ in range(10):
                check_in_16_threads(calls, one, other)
            before = wire.own_bytes(pid)
            for _ in range(100):
                check_in_16_threads(calls, one, other)
            grown = (wire.own_bytes(pid) - before) / 2**20
            with_callers = (wire.shared_bytes(pid) - shared) / 2**20
            figures(f"+{grown:.1f} MiB; {with_callers:.1f} MiB shared with callers")
            assert grown < 32
        wire.until(lambda: wire.shared_bytes(pid) <= shared, "nothing is shared any longer")
        info = wire.server_info(channel)
        assert (info.calls_in_flight, info.bytes_in_flight) == (0, 0)
