"""Servers on a simulated NPU, started as a user starts one on a host with CANN."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from tests.simulator.build import build

import npucall_client
from npucall.errors import VariantUnavailableError
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_client import Client
    from npucall_client.client import Transport
    from npucall_client.testing import ServerProcess


def environment(
    generation: str = "9.x", custom: tuple[Path, ...] = (), **variables: str
) -> dict[str, str]:
    """This process's environment after ``source set_env.sh`` of a simulated toolkit.

    ``custom``: folders of custom packages. ``variables``: others to set, such as those by which the
    simulator is told what to do.
    """
    need_compiler()
    toolkit = build().generation(generation)
    return {**os.environ, **toolkit.environment(*custom), **variables}


@contextmanager
def running_npu_server(
    *flags: str,
    generation: str = "9.x",
    custom: tuple[Path, ...] = (),
    listen: str = "127.0.0.1:0",
    **variables: str,
) -> Iterator[ServerProcess]:
    """``npucall-server --device cann:0`` with these flags, in such an environment."""
    given = environment(generation, custom, **variables)
    with running_server("--device=cann:0", *flags, listen=listen, environment=given) as server:
        yield server


def need_compiler() -> None:
    """Skips the test where the simulator cannot be built; in CI it fails."""
    if shutil.which("g++") is None:
        _give_up("expected g++ on the path, found none")


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def patient_client(target: str) -> Iterator[Client]:
    """A client for tests that name variants freely, of a host that has one of them.

    A test ends, as skipped, where the server refuses a call for its variant.
    """
    with npucall_client.connect(target) as connected:
        connected._transport = _OneVariant(connected._transport)
        yield connected


class _OneVariant:
    """A transport that skips the test instead of raising VariantUnavailableError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._transport, name)

        def call(*arguments: Any) -> Any:
            try:
                return method(*arguments)
            except VariantUnavailableError as error:
                pytest.skip(str(error))

        return call
