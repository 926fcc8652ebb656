"""Servers on a simulated NPU, started as a user starts one on a host with CANN."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.simulator.build import build

import npucall_client
from npucall.errors import VariantUnavailableError
from npucall_client import Client
from npucall_client.sending.transport import Transport
from npucall_client.testing import ServerProcess, running_server


def environment(
    generation: str = "9.x", *, custom: bool = False, **variables: str
) -> dict[str, str]:
    """This process's environment after ``source set_env.sh`` of a simulated toolkit.

    ``custom``: with a custom package. ``variables``: others to set, such as those by which the
    simulator is told what to do.
    """
    need_compiler()
    tree = build()
    packages = (tree.custom,) if custom else ()
    return {**os.environ, **tree.generation(generation).environment(*packages), **variables}


@contextmanager
def running_npu_server(
    *flags: str,
    device: int = 0,
    generation: str = "9.x",
    custom: bool = False,
    listen: str = "127.0.0.1:0",
    **variables: str,
) -> Iterator[ServerProcess]:
    """``npucall-server --device cann:N`` with these flags, in such an environment."""
    given, name = environment(generation, custom=custom, **variables), f"--device=cann:{device}"
    with running_server(name, *flags, listen=listen, environment=given) as server:
        yield server


@contextmanager
def spotless_npu_server(folder: Path, *flags: str, **options: Any) -> Iterator[ServerProcess]:
    """``running_npu_server``, which drains at the end and has then left nothing behind.

    Nothing that it took may be left, and nothing undefined have happened.
    """
    report = folder / "report.json"
    with running_npu_server(*flags, NPUCALL_SIM_REPORT=str(report), **options) as server:
        yield server
        assert server.stop() == 0, server.log.read_text()[-2000:]
    told = json.loads(report.read_text())
    assert (told["violations"], told["live_objects"]) == ([], {})


def need_compiler() -> None:
    """Skips the test where the simulator cannot be built; in CI it fails."""
    if shutil.which("g++") is None:
        _give_up("expected g++ on the path, found none")


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def client_of_any_variant(target: str, other: str) -> Iterator[Client]:
    """A client for tests that name variants freely, of two hosts with one of them each.

    The other host is asked what the first one refuses for its variant. Where it refuses too the
    test ends there, as skipped.
    """
    with npucall_client.connect(target) as client, npucall_client.connect(other) as second:
        client._calls.transport = _AnyVariant(client._transport, second._transport)
        yield client


class _AnyVariant:
    """A transport that asks the next one instead of raising VariantUnavailableError."""

    def __init__(self, *transports: Transport) -> None:
        self._transports = transports

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._transports[0], name)
        if not iscoroutinefunction(found):
            return found

        async def call(*arguments: Any) -> Any:
            refused = ""
            for transport in self._transports:
                try:
                    return await getattr(transport, name)(*arguments)
                except VariantUnavailableError as error:
                    refused = str(error)
            return pytest.skip(refused)

        return call
