"""A process that stands still, and keeps its connections open, is found out by its peer."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.certificates import Authority
from tests.server.fakes import BlockingDevice, until
from tests.server.serving import Served, serving

import npucall_client
from npucall_client import aio

from .peer import ALIVE, FramePeer, StreamPeer, connected, framed

ONE = np.ones(64, np.float32)
CALL = ("aclnnL1LossBackward", ONE, ONE, ONE)


class QuickBlockingDevice(BlockingDevice):
    """Runs calls in the thread that reads."""

    runs_in_calling_thread = True


def begun(peer: FramePeer, kind: str) -> None:
    """A call begins."""
    if kind == "stream":
        StreamPeer(peer).begin(1)
    else:
        peer.execute(1)


def passing(served: Served, seconds: float) -> None:
    served.clock.advance(seconds)
    served.look()


@pytest.mark.parametrize("kind", ["call", "stream"])
def test_a_peer_that_says_nothing_for_30_s_loses_its_calls(tmp_path: Path, kind: str) -> None:
    device = BlockingDevice(checks=True)
    with framed(tmp_path, device) as served, connected(served) as peer:
        begun(peer, kind)
        until(lambda: device.running, "it runs")
        served.look()
        passing(served, 10.0)
        assert peer.receive() == (ALIVE, 0, b"")
        for seconds in 19.9, 10.0:
            passing(served, seconds)
            assert not served.events("cut")
        passing(served, 0.1)
        (cut,) = served.events("cut")
        assert cut["message"] == "waited 30 s for a sign of life"
        until(lambda: not device.running, "its call ends")


def run(target: str) -> Any:
    with npucall_client.connect(target) as client:
        return client.run(*CALL)


def pipeline(target: str) -> Any:
    with npucall_client.connect(target) as client, client.pipeline() as calls:
        return calls.submit(*CALL).result()


def on_a_loop(target: str) -> Any:
    async def answer() -> Any:
        async with aio.connect(target) as client:
            return await client.run(*CALL)

    return asyncio.run(answer())


def pipeline_on_a_loop(target: str) -> Any:
    async def answer() -> Any:
        async with aio.connect(target) as client, client.pipeline() as calls:
            return await (await calls.submit(*CALL))

    return asyncio.run(answer())


def lives_through(served: Served, device: BlockingDevice, call: Callable[[], Any]) -> None:
    """A call that takes two minutes, with nothing said on its connection but that."""
    device.result = bytes(range(256))
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(call)
        until(lambda: device.running, "it runs")
        (connection,) = served.parts.methods.frames._connections
        served.look()
        for _ in range(12):
            passing(served, 10.0)
            until(lambda: served.look() or connection._pulse._asked is None, "it has answered")
        device.let_all_go()
        assert answer.result().tobytes() == device.result
    assert not served.events("cut")


@pytest.mark.parametrize("call", [run, pipeline, on_a_loop, pipeline_on_a_loop])
@pytest.mark.parametrize("make", [BlockingDevice, QuickBlockingDevice])
def test_a_client_lives_through_a_long_call(
    tmp_path: Path, call: Callable[[str], Any], make: type[BlockingDevice]
) -> None:
    device = make()
    with framed(tmp_path, device) as served:
        lives_through(served, device, lambda: call(served.target))


def test_a_connection_without_a_call_says_nothing(tmp_path: Path) -> None:
    with framed(tmp_path) as served, connected(served) as peer:
        for call in 1, 2:
            for _ in range(10):
                passing(served, 10.0)
            peer.execute(call)
            assert peer.receive().response


def test_tls_has_it_too(tmp_path: Path) -> None:
    authority, device = Authority(tmp_path), BlockingDevice()
    pair = authority.server()
    with serving(
        device,
        frames_listen="tls:127.0.0.1:0",
        tls_certificate=pair.certificate,
        tls_key=pair.key,
    ) as served:

        def call() -> Any:
            with npucall_client.connect(served.target, ca=str(authority.ca)) as client:
                assert client.carrier().startswith("frames")
                return client.run(*CALL)

        lives_through(served, device, call)
