"""What one directory costs: servers that announce, clients that watch, every load another one.

``python benchmarks/directory.py [ANNOUNCERS WATCHERS [SECONDS]]`` prints the directory's CPU time,
what its watchers receive, and how long a change takes to reach them. All run on this machine:
announcers and watchers take its cores too.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc

from npucall.v1 import directory_service_pb2 as pb

_SERVICE = "/npucall.v1.DirectoryService"
_OWN = [("grpc.use_local_subchannel_pool", 1)]
"""A connection for each, as servers and clients have."""
_WARM_SECONDS = 8.0


def member(number: int, beat: int) -> pb.Member:
    """A member as a server on an NPU says it, with a load that is another one each time."""
    told = pb.Member(
        address=f"npu{number // 8}.lab.example.org:{50051 + number % 8}",
        product="Ascend910B1",
        host=f"npu{number // 8}",
        catalogue=2**63 + 12345,
        state=pb.MEMBER_STATE_SERVING,
        load=pb.MemberLoad(running=beat % 3, waiting=beat % 7, lanes=2, bytes_in_flight=beat << 20),
        labels={"rack": str(number // 32), "driver": "24.1.rc3"},
        version="0.1.0",
        memory_limit=64 << 30,
        shared_memory_socket="/run/npucall/0/shared",
    )
    told.server.instance, told.server.device = f"{number:012x}", f"cann:{number % 8}"
    told.server.soc = "Ascend910B1"
    return told


async def announce(target: str, number: int) -> None:
    """A beat a second; the first member changes its state now and then, and says when."""
    await asyncio.sleep(number % 100 / 100)
    async with grpc.aio.insecure_channel(target, _OWN) as channel:
        call: Any = channel.stream_stream(f"{_SERVICE}/Announce")()
        for beat in range(1, 1_000_000):
            told = member(number, beat)
            if number == 0:
                told.labels["at"] = str(time.monotonic())
                told.state = pb.MEMBER_STATE_DRAINING if beat % 2 else pb.MEMBER_STATE_SERVING
            await call.write(pb.AnnounceRequest(member=told, sequence=beat).SerializeToString())
            await call.read()
            await asyncio.sleep(1.0)


async def watch(target: str, until: float, count: int) -> dict[str, Any]:
    """What so many watchers receive, and how late the first member's changes are."""
    seen: dict[str, Any] = {"bytes": 0, "messages": 0, "members": 0, "late": []}
    calls = await asyncio.gather(*(_watch_one(target, until, seen) for _ in range(count)))
    return {**seen, "watchers": len(calls)}


async def _watch_one(target: str, until: float, seen: dict[str, Any]) -> None:
    begin = until - float(os.environ["SECONDS"])
    async with grpc.aio.insecure_channel(target, _OWN) as channel:
        call: Any = channel.unary_stream(f"{_SERVICE}/WatchMembers")(b"")
        first = member(0, 0).address
        while (now := time.monotonic()) < until:
            message = await call.read()
            now = time.monotonic()
            if now < begin:
                continue
            seen["bytes"] += len(message)
            seen["messages"] += 1
            table = pb.WatchMembersResponse.FromString(message)
            seen["members"] += len(table.changed)
            at = [each.labels["at"] for each in table.changed if each.address == first]
            seen["late"] += [now - float(each) for each in at]


def announcers(target: str, numbers: range) -> None:
    """A process of them."""

    async def all_of_them() -> None:
        await asyncio.gather(*(announce(target, number) for number in numbers))

    asyncio.run(all_of_them())


def watchers(target: str, until: float, count: int, answers: Any) -> None:
    """A process of them."""
    answers.put(asyncio.run(watch(target, until, count)))


def cpu_seconds(process: int) -> float:
    """That a process has taken so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> int:
    """Bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(members: int, count: int, seconds: float) -> dict[str, float]:
    """The figures of one run."""
    os.environ["SECONDS"] = str(seconds)
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready")
        directory = subprocess.Popen(
            [sys.executable, "-m", "npucall_server.directory.command", "--listen=127.0.0.1:0",
             f"--ready-file={ready}", "--log-calls=errors"],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while not ready.exists():
                time.sleep(0.1)
            return _measured(ready.read_text(), directory.pid, members, count, seconds)
        finally:
            directory.terminate()
            directory.wait()


def _measured(
    target: str, process: int, members: int, count: int, seconds: float
) -> dict[str, float]:
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    until = time.monotonic() + _WARM_SECONDS + seconds
    children = [
        spawn.Process(target=announcers, args=(target, range(members)), daemon=True),
        spawn.Process(target=watchers, args=(target, until, count, answers), daemon=True),
    ]
    for child in children:
        child.start()
    time.sleep(max(0.0, until - seconds - time.monotonic()))
    before = cpu_seconds(process)
    time.sleep(max(0.0, until - time.monotonic()))
    used = cpu_seconds(process) - before
    seen = answers.get(timeout=60)
    for child in children:
        child.kill()
    late = sorted(seen["late"])
    return {
        "announcers": members,
        "watchers": count,
        "cores": used / seconds,
        "MB/s to watchers": seen["bytes"] / seconds / 1e6,
        "messages/s": seen["messages"] / seconds,
        "members/s": seen["members"] / seconds,
        "bytes/member": seen["bytes"] / max(seen["members"], 1),
        "change p50 ms": statistics.median(late) * 1e3,
        "change p99 ms": late[int(len(late) * 0.99)] * 1e3,
        "MiB resident": resident(process) / 2**20,
    }


if __name__ == "__main__":
    given = [float(text) for text in sys.argv[1:]]
    members, count, seconds = [*given, *(240, 100, 20)[len(given) :]]
    figures = measure(int(members), int(count), seconds)
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=1))
