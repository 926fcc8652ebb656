"""Makes docs/top.svg: what ``npucall top`` shows of a server that the callers of three tenants use.

``python docs/top_picture.py``; the numbers are those of the moment.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rich.console import Console

import npucall_client
from npucall.operators.gelu_backward import gelu_backward
from npucall_client.commands.top import WatchedServer, shown
from npucall_client.testing import running_server

TENANTS = """
token_hashes = "{folder}/tokens"
[tenants.vision]
weight = 2
admins = ["ann"]
[tenants.audio]
[tenants.nightly]
class = "batch"
"""
CALLERS = (
    ("vision", "ann", 1_000),
    ("vision", "abe", 20_000),
    ("audio", "ada", 100_000),
    ("nightly", "ci", 1_000_000),
)
"""Tenant, name, elements of each of its calls."""
LOAD_SECONDS = 8.0


def main() -> None:
    """Starts a server, has people use it, and takes the picture."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "server.toml")
        config.write_text(TENANTS.format(folder=folder))
        tokens = [_token(config, tenant, name) for tenant, name, _ in CALLERS]
        with running_server("--config", str(config), "--log-calls", "errors") as server:
            picture = _picture(server.target, tokens)
    # Without the fonts that it would load from the network: any monospaced one will do.
    text = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    Path(__file__).with_name("top.svg").write_text(text)


def _picture(target: str, tokens: list[str]) -> str:
    """While all of them call."""
    stop = threading.Event()
    sizes = [size for _, _, size in CALLERS]
    console = Console(record=True, width=86, highlight=False)
    with ThreadPoolExecutor() as threads:
        calls = [
            threads.submit(_call, target, *each, stop) for each in zip(tokens, sizes, strict=True)
        ]
        stop.wait(LOAD_SECONDS)
        watched = WatchedServer("127.0.0.1:50051", npucall_client.connect(target, token=tokens[0]))
        console.print(shown([watched], threads, console.width))
        stop.set()
        for call in calls:
            call.result()
        watched.close()
    return console.export_svg(title="npucall top")


def _call(target: str, token: str, size: int, stop: threading.Event) -> None:
    x = np.ones(size, np.float32)
    with npucall_client.connect(target, token=token) as client:
        while not stop.is_set():
            client.run(gelu_backward, x, x)


def _token(config: Path, tenant: str, name: str) -> str:
    command = [sys.executable, "-m", "npucall_server", "token", "new", "--config", str(config)]
    made = subprocess.run(
        [*command, "--tenant", tenant, "--name", name], capture_output=True, text=True, check=True
    )
    return made.stdout.strip()


if __name__ == "__main__":
    main()
