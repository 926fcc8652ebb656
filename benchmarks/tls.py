"""What TLS costs: the same calls over loopback, without it, with it, and with a token besides.

``python benchmarks/tls.py``: ways in turn, round after round; a row a size with the median of each
way, and the median of the ratios to the plain way of the same round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from figures import KIB, MIB, size_text
from rich.console import Console
from rich.table import Table
from service import in_turn

from npucall_client import connect
from npucall_client.testing import running_server
from npucall_server.commands.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall_client import Client

_FLAGS = "--log-calls=errors", "--memory-limit=4GiB", "--keep-memory=1GiB"
_SIZES = {KIB: 400, 16 * MIB: 4, 256 * MIB: 1}
"""Of one tensor, and the calls that a round makes: three tensors go, one comes back."""
_TENSORS = 4
_PLAIN, _TLS, _TOKEN = "plain", "TLS", "mutual TLS and a token"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args(arguments).rounds
    table = Table(box=None)
    for heading in ("size", *(_PLAIN, _TLS, _TOKEN), f"{_TLS} / plain", f"{_TOKEN} / plain"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clients = _clients(Path(folder), stack)
        for size, calls in _SIZES.items():
            table.add_row(size_text(size), *_row(clients, size, calls, rounds))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _clients(folder: Path, stack: ExitStack) -> dict[str, Client]:
    authority = Authority.new()
    made = {
        "ca": authority.issued,
        "server": authority.server(["127.0.0.1"], 1),
        "client": authority.client("bench", 1),
    }
    for name, issued in made.items():
        (folder / f"{name}.pem").write_bytes(issued.certificate)
        (folder / f"{name}.key").write_bytes(issued.key)
    tls = f"--tls-certificate={folder}/server.pem", f"--tls-key={folder}/server.key"
    mutual = *tls, f"--tls-client-ca={folder}/ca.pem"
    ca = {"ca": folder / "ca.pem", "keep_memory": True}
    pair = {"certificate": folder / "client.pem", "key": folder / "client.key"}
    servers = {
        way: stack.enter_context(running_server(*_FLAGS, *flags)).target
        for way, flags in {_PLAIN: (), _TLS: tls, _TOKEN: mutual}.items()
    }
    ways = {_PLAIN: {"keep_memory": True}, _TLS: ca, _TOKEN: {**ca, **pair, "token": "t" * 900}}
    return {way: stack.enter_context(connect(servers[way], **given)) for way, given in ways.items()}


def _row(clients: dict[str, Client], size: int, calls: int, rounds: int) -> list[str]:
    array = np.ones(size // 4, np.float32)
    seconds: dict[str, list[float]] = {way: [] for way in clients}
    for client in clients.values():
        _p50(client, array, calls)  # warm
    for index in range(rounds):
        for way in in_turn(list(clients), index):
            seconds[way].append(_p50(clients[way], array, calls))
    ratios = [
        median(mine / plain for mine, plain in zip(seconds[way], seconds[_PLAIN], strict=True))
        for way in (_TLS, _TOKEN)
    ]
    return [
        *(_time(median(each), size) for each in seconds.values()),
        *(f"{ratio:.2f}" for ratio in ratios),
    ]


def _p50(client: Client, array: np.ndarray, calls: int) -> float:
    taken = []
    for _ in range(calls):
        start = time.perf_counter()
        client.run("aclnnL1LossBackward", array, self=array, target=array)
        taken.append(time.perf_counter() - start)
    return median(taken)


def _time(seconds: float, size: int) -> str:
    if size < MIB:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.0f} ms, {size * _TENSORS / seconds / 2**30:.2f} GiB/s"


if __name__ == "__main__":
    main()
