"""Several directories over etcd: a real one of Debian (``apt-get install etcd-server``)."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.rows import each
from tests.server.fakes import until

from npucall.v1 import directory_service_pb2 as pb
from npucall_server.directory.etcd.client import Endpoints, EtcdClient, Pair
from npucall_server.directory.settings import DirectorySettings

from .directories import GONE, SERVING, member, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@each(
    ("store", "parts"),
    [
        ("etcd://a:2379", (("a:2379",), "npucall")),
        ("etcd://a:1,b:1,[::1]:1/lab.one", (("a:1", "b:1", "[::1]:1"), "lab.one")),
        ("", ((), "npucall")),
    ],
)
def test_a_store_is_its_hosts_and_the_pools_name(store: str, parts: object) -> None:
    assert DirectorySettings(store=store).store_parts == parts


@each("store", ["a:2379", "etcd://a", "http://a:1", "etcd://a:1/b/c", "etcd://a:1/x y"])
def test_a_store_that_is_none_is_refused(store: str) -> None:
    with pytest.raises(ValueError, match="store"):
        DirectorySettings(store=store)


def test_where_the_store_does_not_answer_the_table_is_never_said_to_be_complete() -> None:
    with running(store="etcd://127.0.0.1:1") as directory:  # nobody may listen there
        watching = directory.watch()
        directory.pass_time(60.0)
        directory.announce(member())
        watching.until_state("a.lab:1", SERVING)
        assert not watching.messages[-1].complete


@contextmanager
def running_etcd(folder: Path) -> Iterator[str]:
    """One etcd, and its address."""
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            ports.append(probe.getsockname()[1])
    client, peer = (f"http://127.0.0.1:{port}" for port in ports)
    command = [
        "etcd", "--name=e", f"--data-dir={folder}/e", f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=e={peer}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"127.0.0.1:{ports[0]}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.more
@pytest.mark.skipif(not shutil.which("etcd"), reason="etcd is not installed: etcd-server")
def test_what_one_directory_hears_the_others_know(tmp_path: Path) -> None:
    with (
        running_etcd(tmp_path) as etcd,
        running(store=f"etcd://{etcd}") as east,
        running(store=f"etcd://{etcd}") as west,
    ):
        watching = west.watch()
        announcing = east.announce(member("a.lab:1", labels={"rack": "7"}))
        watching.until_state("a.lab:1", SERVING)
        announcing.beat(member("a.lab:1", load=pb.MemberLoad(running=5)))
        watching.until(lambda each: each.members["a.lab:1"].load.running == 5, "its load")
        client = EtcdClient(Endpoints((etcd,)))
        junk = [b"/npucall/members/", b"/npucall/members/x/y", b"/npucall/members/\xff/z"]
        client.write([Pair(key, b"\xff\xff", 0) for key in junk], 0)
        client.close()
        announcing.beat(member("a.lab:1", state=GONE))
        watching.until_state("a.lab:1", None)
        assert not watching.members
        until(lambda: not east.directory.feed.counts()["serving"], "it is gone everywhere")
