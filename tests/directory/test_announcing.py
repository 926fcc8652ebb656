"""Servers announce themselves to directories, over real sockets."""

import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.certificates import Authority
from tests.rows import each
from tests.server.fakes import PATIENCE, BlockingDevice, until
from tests.server.serving import serving

import npucall_client
from npucall_client.testing import running_server
from npucall_server.announcing import announcer
from npucall_server.announcing.member import Beats
from npucall_server.directory import app

from .directories import DRAINING, SERVING, Watching, running, running_with_tenants


def test_a_server_says_who_it_is_and_how_busy() -> None:
    with running() as directory:
        labels = {"rack": "7", "b": "8"}
        with (
            serving(announce=directory.addresses[0], labels=labels) as server,
            npucall_client.connect(server.target) as client,
        ):
            watching = directory.watch()
            watching.until_state(server.target, SERVING)
            told, info = watching.members[server.target], client.server_info()
        watching.until_state(server.target, None)
    assert told.server == info.server
    assert (told.product, told.version) == (info.product, info.version)
    assert dict(told.labels) == dict(info.labels) == labels
    assert told.catalogue == info.catalogue != 0
    assert told.memory_limit == info.limits.memory_limit
    assert told.load.lanes == 1
    assert told.host == socket.gethostname()


def test_it_is_draining_while_a_call_runs_and_gone_as_the_last() -> None:
    device = BlockingDevice()
    device.result = bytes(4)
    with (
        running() as directory,
        serving(device, announce=directory.addresses[0]) as server,
        npucall_client.connect(server.target) as client,
    ):
        watching = directory.watch()
        watching.until_state(server.target, SERVING)
        call = threading.Thread(target=run_one, args=(client,))
        call.start()
        watching.until(lambda each: each.members[server.target].load.running, "the call runs")
        drain = threading.Thread(target=server.server.drain)
        drain.start()
        watching.until_state(server.target, DRAINING)
        assert device.running == 1
        device.let_all_go()
        watching.until_state(server.target, None)
        for thread in call, drain:
            thread.join()


def run_one(client: npucall_client.Client) -> None:
    one = np.ones(1, np.float32)
    client.run("aclnnTanhBackward", one, one)


def test_a_directory_that_is_lost_is_said_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(announcer, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(app, "_LAST_ANSWERS_SECONDS", 0.1)
    where, advertised = f"unix:{tmp_path}/d", "npu1.lab:50051"
    hear, heard = Beats.hear, threading.Semaphore(0)

    def counted(beats: Beats, answer: bytes) -> None:
        hear(beats, answer)
        heard.release()

    monkeypatch.setattr(Beats, "hear", counted)

    def happened(event: str, count: int) -> None:
        until(lambda: len(server.events(event)) >= count, f"{event}, {count} times")
        assert len(server.events(event)) == count

    with serving(announce=where, advertise=advertised) as server:
        happened("directory lost", 1)
        assert server.events("directory lost")[0]["directory"] == where
        for count in 1, 2:
            with running(listen=where) as directory:
                happened("announced", count)
                directory.watch().until_state(advertised, SERVING)
                for _ in range(5):
                    assert heard.acquire(timeout=PATIENCE)
                happened("announced", count)
            happened("directory lost", count + 1)


def test_one_directory_that_hangs_delays_no_other_one_and_no_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, running() as directory:
        where = f"127.0.0.1:{mute.getsockname()[1]},{directory.addresses[0]}"
        with serving(announce=where) as server:
            directory.watch().until_state(server.target, SERVING)


@each(("by_token", "announced"), [(False, "localhost:50051"), (True, "rack7-1.lab:50051")])
def test_a_server_proves_who_it_is_by_its_certificate_or_a_token(
    tmp_path_factory: pytest.TempPathFactory, by_token: bool, announced: str
) -> None:
    folder = tmp_path_factory.mktemp("proof")
    with running_with_tenants(folder) as directory:
        given = directory.server_settings(folder, token=by_token)
        user = directory.token("vision")
        with serving(advertise=announced, **given) as server, directory.channel_of() as channel:
            watching = Watching(channel, [("authorization", f"Bearer {user}")])
            watching.until_state(announced, SERVING)
            assert not server.events("directory lost")


def test_a_server_is_told_why_it_is_refused(tmp_path: Path) -> None:
    with running_with_tenants(tmp_path) as directory:
        given = directory.server_settings(tmp_path, token=True)
        with serving(advertise="other.lab:50051", **given) as server:
            until(lambda: bool(server.events("directory lost")), "it is refused")
            (lost,) = server.events("directory lost")
    assert "expected a host that servers/alice may announce, found other.lab" in lost["message"]


def test_who_is_no_directory_gets_no_token(tmp_path: Path) -> None:
    """A server of another authority is at the directory's address: TLS ends before all else."""
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    with running_with_tenants(tmp_path) as directory:
        given = directory.server_settings(tmp_path, token=True)
        with serving(**{**given, "announce_ca": other.ca}) as server:
            until(lambda: bool(server.events("directory lost")), "the handshake fails")
        assert not [line for line in directory.events() if line.get("method") == "Announce"]
        assert not directory.directory.feed.counts()["serving"]


@pytest.mark.more
def test_the_catalogue_is_the_same_in_every_process_and_another_one_for_another_product() -> None:
    digests = []
    for soc in ("Ascend910B1", "Ascend910B1", "Ascend310P3"):
        environment = {**os.environ, "PYTHONHASHSEED": str(len(digests) + 1)}
        with (
            running_server(f"--soc={soc}", environment=environment) as server,
            npucall_client.connect(server.target) as client,
        ):
            digests.append(client.server_info().catalogue)
    assert digests[0] == digests[1] != digests[2]
    assert 0 not in digests
