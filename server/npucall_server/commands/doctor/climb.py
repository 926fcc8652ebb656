"""``npucall-server doctor --climb``: judges servers that use ever more of what CANN promises."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from npucall.texts import missing_distribution
from npucall_server.commands.command_line import show
from npucall_server.exits import ExitCode

_START_SECONDS = 300.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.1


class Rung(NamedTuple):
    """A server that uses a little more than the one before."""

    flags: str
    turns_on: str
    claims: tuple[str, ...] = ()
    """Keys of the claims that hold if it computes right."""


_CAREFUL = "--careful"
_PINNED = f"{_CAREFUL} --staging-limit 8MiB"
_KEPT = f"{_PINNED} --kept-device-memory 1GiB"
_CACHED = f"{_KEPT} --phase-one-cache 10000"
RUNGS = (
    Rung(
        _CAREFUL,
        "nothing: one lane, copies that wait, nothing kept, a wait after every step",
        ("library-names", "main-thread", "stream-order"),
    ),
    Rung(
        _PINNED,
        "pinned memory: small calls whole, larger ones in pieces",
        ("pinned-memory", "events-again"),
    ),
    Rung(_KEPT, "device memory that is kept for the next call", ("workspace-reuse",)),
    Rung(_CACHED, "CANN's own cache of first phases", ("phase-one-cache",)),
    Rung(
        f"{_CACHED} --kept-calls 256",
        "descriptors that are used again",
        ("kept-descriptors", "moved-descriptors"),
    ),
    Rung("--staging-limit 8MiB", "everything: two lanes, and programs without waits between steps"),
)
"""From the most careful server to the fastest."""


def climb(device: int, suite: Path | None = None, filters: tuple[str, ...] = ("--quick",)) -> int:
    """Judges each; answers the exit code: 0 if none fails more than the first.

    ``suite``: the command ``npucall``, if it is not beside this Python; ``filters``: of its cases.
    """
    suite = suite or Path(sys.executable).with_name("npucall")
    if not suite.exists():
        show(f"{missing_distribution('doctor --climb', 'conformance')}\n")
        return ExitCode.SETTINGS
    with tempfile.TemporaryDirectory(prefix="npucall-") as folder:
        known = f"{folder}/known.json"
        judge = [str(suite), "conform", f"unix:{folder}/socket", *filters, "--baseline", known]
        below = None
        for rung in RUNGS:
            show(f"\nnpucall-server {rung.flags}\n  {rung.turns_on}\n")
            with _serving(device, rung.flags, Path(folder)) as starts:
                # What fails in the first line may fail in all of them.
                write = [] if below else ["--write-baseline"]
                code = subprocess.run([*judge, *write], check=False).returncode if starts else 1  # noqa: S603
            if code and (below is not None or not starts):
                show(_verdict(rung, below))
                return ExitCode.NO_DEVICE
            below = rung
    show("\nNo line fails more than the first: serve without these flags.\n")
    return 0


def _verdict(rung: Rung, below: Rung | None) -> str:
    wrong = f"one of these claims is wrong on this host: {', '.join(rung.claims)}; "
    advice = f"serve with {below.flags}" if below else "npucall-server doctor says why"
    return f"\n{rung.flags}: {wrong if rung.claims else ''}{advice}. Send us the report.\n"


@contextmanager
def _serving(device: int, flags: str, folder: Path) -> Iterator[bool]:
    """A server with these flags; yields whether it serves."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    isolated = ["-I"] * sys.flags.isolated
    process = subprocess.Popen(  # noqa: S603  # our own server
        [
            *(sys.executable, *isolated, "-m", "npucall_server", "serve"),
            *(f"--device=cann:{device}", f"--listen=unix:{folder}/socket"),
            *(f"--ready-file={ready}", "--frames-socket=off", *flags.split()),
        ]
    )
    try:
        ends = time.monotonic() + _START_SECONDS
        while not ready.exists() and process.poll() is None and time.monotonic() < ends:
            time.sleep(_LOOK_SECONDS)
        yield ready.exists()
        process.terminate()
        process.wait(_STOP_SECONDS)
    finally:
        process.kill()
        process.wait()
