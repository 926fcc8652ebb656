"""Several directories over etcd: real ones of Debian (``apt-get install etcd-server``)."""

from __future__ import annotations

import io
import itertools
import secrets
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from npucall.v1 import directory_service_pb2 as pb
from npucall.wire.protobuf import number as number_of
from npucall_server.announce_settings import AnnounceSettings
from npucall_server.announcing.announcer import Announcer
from npucall_server.directory.etcd.client import Endpoints, EtcdClient, Pair
from npucall_server.directory.settings import DirectorySettings
from npucall_server.log import Log

from .house import PATIENCE, Watching, member, running
from .test_announcing import events, free_port, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


ETCD = shutil.which("etcd")
needs_etcd = pytest.mark.skipif(ETCD is None, reason="etcd is not installed: etcd-server")
SERVING, SUSPECT = pb.MEMBER_STATE_SERVING, pb.MEMBER_STATE_SUSPECT


class Cluster:
    """A few etcd on this host, that can be killed and started again."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.clients = [free_port() for _ in range(count)]
        self._peers = [free_port() for _ in range(count)]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(count):
            self.start(number, wait=False)
        for number in range(count):
            self.wait(number)

    @property
    def store(self) -> str:
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.clients)

    def start(self, number: int, *, wait: bool = True) -> None:
        client, peer = (
            f"http://127.0.0.1:{ports[number]}" for ports in (self.clients, self._peers)
        )
        cluster = ",".join(
            f"e{each}=http://127.0.0.1:{port}" for each, port in enumerate(self._peers)
        )
        with (self.folder / f"log{number}").open("ab") as log:
            self.processes[number] = subprocess.Popen(
                [
                    ETCD or "", f"--name=e{number}", f"--data-dir={self.folder}/e{number}",
                    f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster={cluster}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        if wait:
            self.wait(number)

    def wait(self, number: int) -> None:
        client = EtcdClient(Endpoints((f"127.0.0.1:{self.clients[number]}",)))
        until(lambda: answers(client), f"etcd {number} answers")
        client.close()

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def answers(client: EtcdClient) -> bool:
    try:
        client.read(b"/")
    except Exception:  # noqa: BLE001  # whatever it is: not yet
        return False
    return True


@contextmanager
def cluster_of(folder: Path, count: int) -> Iterator[Cluster]:
    cluster = Cluster(folder, count)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("store", "hosts", "name"),
    [
        ("etcd://a:2379", ("a:2379",), "npucall"),
        ("etcd://a:2379,b:2379,[::1]:2379/lab.one", ("a:2379", "b:2379", "[::1]:2379"), "lab.one"),
        ("", (), "npucall"),
    ],
)
def test_a_store_is_its_hosts_and_the_pools_name(
    store: str, hosts: tuple[str, ...], name: str
) -> None:
    assert DirectorySettings(store=store).store_parts == (hosts, name)


@pytest.mark.parametrize(
    "store", ["a:2379", "etcd://a", "http://a:1", "etcd://a:1/b/c", "etcd://a:1/x y"]
)
def test_a_store_that_is_none_is_refused(store: str) -> None:
    with pytest.raises(ValueError, match="store"):
        DirectorySettings(store=store)


@pytest.mark.more
def test_where_the_store_does_not_answer_the_table_is_never_said_to_be_complete() -> None:
    with running(store=f"etcd://127.0.0.1:{free_port()}") as house:
        house.announce(member("a.lab:1"))
        watching = house.watch()
        watching.until_state("a.lab:1", SERVING)
        watching.until_state("a.lab:1", SUSPECT)  # three seconds later
        assert not watching.messages[-1].complete
        names = [line["event"] for line in house.logged()]
        assert names.count("store lost") in (1, 2)


@needs_etcd
@pytest.mark.more
def test_what_one_directory_hears_the_others_know(tmp_path: Path) -> None:
    with (
        cluster_of(tmp_path, 1) as cluster,
        running(store=cluster.store) as east,
        running(store=cluster.store) as west,
    ):
        watching = west.watch()
        announcing = east.announce(member("a.lab:1", labels={"rack": "7"}))
        watching.until_state("a.lab:1", SERVING)
        assert dict(watching.members["a.lab:1"].labels) == {"rack": "7"}
        announcing.beat(member("a.lab:1", load=pb.MemberLoad(running=5)))
        watching.until(lambda each: each.members["a.lab:1"].load.running == 5, "its load")
        watching.until_state("a.lab:1", SUSPECT)
        gone = member("a.lab:1")
        gone.state = pb.MEMBER_STATE_GONE
        announcing.beat(gone)
        watching.until_state("a.lab:1", None)
        watching.until(lambda each: each.messages[-1].complete, "the table is complete")


@needs_etcd
@pytest.mark.more
def test_one_that_is_gone_is_gone_for_all_even_where_its_other_directory_hears_nothing(
    tmp_path: Path,
) -> None:
    with (
        cluster_of(tmp_path, 1) as cluster,
        running(store=cluster.store) as east,
        running(store=cluster.store) as west,
        running(store=cluster.store) as third,
    ):
        watching = third.watch()
        for house in east, west:
            house.announce(member("a.lab:1"))
        watching.until_state("a.lab:1", SERVING)
        until(lambda: len(keys(cluster)) == 2, "both have written it")
        gone = member("a.lab:1")
        gone.state = pb.MEMBER_STATE_GONE
        announcing = east.announce(member("a.lab:1"))
        announcing.beat(gone, sequence=9)
        watching.until_state("a.lab:1", None)


@needs_etcd
@pytest.mark.more
def test_a_directory_that_watched_too_little_reads_all_anew(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster, running(store=cluster.store) as house:
        watching = house.watch()
        cluster.kill(0)
        cluster.start(0)
        write(cluster, "a.lab:1", "elsewhere")
        watching.until_state("a.lab:1", SERVING)
        events_ = {line["event"] for line in house.logged()}
        assert {"store lost", "store found"} <= events_


@needs_etcd
@pytest.mark.more
def test_what_is_no_member_in_etcd_is_passed_over(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 1) as cluster, running(store=cluster.store) as house:
        watching = house.watch()
        client = EtcdClient(Endpoints((f"127.0.0.1:{cluster.clients[0]}",)))
        junk = [b"/npucall/members/", b"/npucall/members/x/y", b"/npucall/members/\xff/z"]
        client.write([Pair(key, b"\xff\xff", 0) for key in junk], 0)
        client.close()
        write(cluster, "b.lab:1", "elsewhere", key="a.lab:1")  # a member under another one's key
        write(cluster, "c.lab:1", "elsewhere")
        watching.until_state("c.lab:1", SERVING)
        assert watching.members.keys() == {"c.lab:1"}


@needs_etcd
@pytest.mark.more
def test_a_watch_from_what_etcd_has_forgotten_ends_so_that_all_is_read_anew(
    tmp_path: Path,
) -> None:
    with cluster_of(tmp_path, 1) as cluster:
        for number in range(5):
            write(cluster, f"a.lab:{number + 1}", "elsewhere")
        where = f"127.0.0.1:{cluster.clients[0]}"
        client = EtcdClient(Endpoints((where,)))
        pairs, revision = client.read(b"/npucall/members/")
        assert len(pairs) == 5
        with grpc.insecure_channel(where) as channel:  # of CompactionRequest the field 1: revision
            compact: Any = channel.unary_unary("/etcdserverpb.KV/Compact")
            compact(b"\x08" + number_of(revision), timeout=PATIENCE)
        assert list(client.watch(b"/npucall/members/", 1)) in ([], [[]])
        client.close()


def keys(cluster: Cluster) -> list[bytes]:
    client = EtcdClient(Endpoints((f"127.0.0.1:{cluster.clients[0]}",)))
    pairs, _ = client.read(b"/npucall/members/")
    client.close()
    return [pair.key for pair in pairs]


def write(cluster: Cluster, address: str, directory: str, key: str = "") -> None:
    """What another directory would write."""
    client = EtcdClient(Endpoints((f"127.0.0.1:{cluster.clients[0]}",)))
    value = pb.AnnounceRequest(member=member(address), sequence=1).SerializeToString()
    where = f"/npucall/members/{key or address}/{directory}".encode()
    client.write([Pair(where, value, 0)], client.grant(60))
    client.close()


# --- Kill each -----------------------------------------------------------------------------------


@contextmanager
def directory_process(folder: Path, port: int, store: str) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(exist_ok=True)
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "npucall_server.directory.command", f"--store={store}"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, f"--listen=127.0.0.1:{port}", f"--ready-file={ready}"], stderr=log
        )
    try:
        until(ready.exists, "the directory is ready")
        yield process
    finally:
        process.kill()
        process.wait()


class Beating:
    """A server as directories know it: its announcer, in this process."""

    def __init__(self, address: str, directory: int) -> None:
        self.address = address
        self._member = member(address, secrets.token_hex(6))
        self._sequence = itertools.count(1)
        settings = AnnounceSettings(announce=f"127.0.0.1:{directory}", advertise=address)
        self.announcer = Announcer(settings, self, Log("all", 1.0, io.StringIO()))  # type: ignore[arg-type]
        self.announcer.start()

    def next(self) -> bytes:
        request = pb.AnnounceRequest(member=self._member, sequence=next(self._sequence))
        return request.SerializeToString()

    def end(self) -> None:
        self._member.state = pb.MEMBER_STATE_GONE


@needs_etcd
@pytest.mark.long
def test_three_etcd_and_two_directories_one_of_each_killed_at_a_time(tmp_path: Path) -> None:
    """Each directory that is left knows all members, of which each announces itself to one."""
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        (tmp_path / "etcd").mkdir()
        cluster = stack.enter_context(cluster_of(tmp_path / "etcd", 3))
        directories = [
            stack.enter_context(directory_process(tmp_path / f"d{number}", port, cluster.store))
            for number, port in enumerate(ports)
        ]
        servers = [Beating(f"npu{number}.lab:1", ports[number % 2]) for number in range(20)]
        all_see(ports, servers)
        for number in range(3):
            cluster.kill(number)
            servers.append(Beating(f"late{number}.lab:1", ports[number % 2]))
            all_see(ports, servers)  # what is new is told with two of three
            cluster.start(number)
        for number, port in enumerate(ports):
            directories[number].kill()
            directories[number].wait()
            all_see([ports[1 - number]], servers)
            stack.enter_context(directory_process(tmp_path / f"d{number}", port, cluster.store))
            all_see(ports, servers)
        servers.pop().announcer.stop()
        all_see(ports, servers)
        for server in servers:
            server.announcer.stop()
    logs = [tmp_path / f"d{number}" / "log" for number in range(2)]
    assert not any(events(log, "bug") for log in logs)


def all_see(ports: list[int], servers: list[Beating]) -> None:
    for port in ports:
        sees(port, {server.address for server in servers})


def sees(port: int, addresses: set[str]) -> None:
    """Who watches there is told of exactly these, all of them serving, in a complete table."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        watching = Watching(channel)
        watching.until(
            lambda each: (
                {address for address, one in each.members.items() if one.state == SERVING}
                == addresses
                and each.messages[-1].complete
            ),
            f"{sorted(addresses)} at {port}",
        )
