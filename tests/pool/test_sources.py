"""One client, whatever lists the members; the name server is a real one."""

import time
from collections.abc import Iterator

import pytest

from .bench import PORTS, SOURCES, Bench
from .hosts import need
from .processes import running


@pytest.fixture
def _name_server(bench: Bench, source: str) -> Iterator[None]:
    if source != "dns":
        yield
        return
    need("dnsmasq", "dnsmasq")
    dnsmasq = bench.name_server()
    dnsmasq.ready.touch()
    with running([dnsmasq]):
        time.sleep(0.5)  # until it listens
        yield


@pytest.mark.usefixtures("_name_server")
@pytest.mark.parametrize("source", SOURCES)
def test_calls_go_to_every_member_and_none_is_lost(bench: Bench, source: str) -> None:
    with bench.calling(source, "--threads", "12") as callers:
        time.sleep(2)
        bench.servers[0].kill()
        bench.servers[0].wait()
        time.sleep(2)
        seen = callers.stop()
    seen.check()
    members = len(bench.servers) // (len(PORTS) if source == "dns" else 1)
    assert len(seen.by_server) >= members
