"""Reservations over restarts and kills, of the server and of the holder."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npucall_client
from npucall.errors import ReservedError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server
from npucall_server.serving import core

from . import wire

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

SECRET = "a secret of the tests"
ONE = np.ones(4, np.float32)
COMMAND = [sys.executable, "-c", "from npucall_client.commands import main; main()"]


def run(client: npucall_client.Client) -> None:
    client.run(l1_loss_backward, ONE, ONE, ONE)


def events(log: Path) -> list[str]:
    lines = map(json.loads, log.read_text().splitlines())
    return [line["event"] for line in lines if "reserv" in line["event"]]


def test_a_reservation_ends_with_a_server_without_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "GAP_SECONDS", 0.0)
    with wire.server_here() as server:
        client = npucall_client.connect(server.address)
        quiet = client.reserve(60)
        run(quiet)
    with wire.server_here(server.address), client:
        for mine in quiet, client:
            with pytest.raises(ReservedError, match="the reservation has ended"):
                run(mine)
        quiet.close()
        run(client)
        with client.reserve(60) as again:
            run(again)


@pytest.mark.more
def test_neither_the_secret_nor_a_key_is_logged() -> None:
    environment = {**os.environ, "NPUCALL_RESERVATION_KEY": SECRET}
    with running_server(environment=environment) as server:
        with npucall_client.connect(server.target) as client, pytest.raises(ReservedError):
            client.reserve(60)
        log = server.log
        child = npucall_client.connect(server.target, reservation="1.2.3.4")
        with child, pytest.raises(ReservedError):
            run(child)
        server.stop()
        assert SECRET not in log.read_text()
        assert "1.2.3.4" not in log.read_text()


@pytest.mark.long
def test_a_holder_goes_on_where_the_server_is_killed_and_starts_again() -> None:
    environment = {**os.environ, "NPUCALL_RESERVATION_KEY": SECRET}
    with running_server(environment=environment) as server:
        client = npucall_client.connect(server.target)
        quiet = client.reserve(200, wait=40)
        run(quiet)
        server.process.kill()
        server.process.wait()
    with running_server(environment=environment, listen=server.target) as server, client, quiet:
        run(quiet)
        with npucall_client.connect(server.target) as other:
            with pytest.raises(ReservedError):
                run(other.options(timeout=2.0))
            with pytest.raises(ReservedError):
                other.reserve(10, wait=45)  # over the time in which keys of before are taken
        run(quiet)
        wire.until(lambda: events(server.log) == ["reservation restored"], "the log says so")


@pytest.mark.long
def test_a_holder_that_is_killed_is_free_30_s_later() -> None:
    with running_server() as server:
        command = [*COMMAND, "reserve", "200", "-t", server.target, "--", "sleep", "300"]
        holder = subprocess.Popen(command, start_new_session=True)
        try:
            with npucall_client.connect(server.target) as client:
                wire.until(
                    lambda: client.server_info().HasField("reservation"), "it has the device"
                )
                os.killpg(holder.pid, signal.SIGKILL)
                run(client.options(timeout=150))  # not 200 s later
                wire.until(lambda: len(events(server.log)) == 2, "the log is written")
                assert events(server.log) == ["reserved", "reservation not renewed"]
        finally:
            holder.kill()
            holder.wait()
