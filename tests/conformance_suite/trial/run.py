"""Runs the suite against every fault, and prints what it caught.

``python -m tests.conformance_suite.trial.run [--quick | --full] [--only WORDS] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from npucall_client.conformance import command

from .faults import BY_ID, FAULTS
from .planted import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .planted import Planted

_START_SECONDS = 60.0


@dataclass
class Found:
    """What a run of the suite said."""

    fault: str
    quick: bool
    caught: bool
    blocks: list[str] = field(default_factory=list)
    """Those with failures."""
    problem: str = ""
    """The first of them, or why the verdict is lowered."""
    seconds: float = 0.0


def judge(target: str, fault: Planted, *, quick: bool, blocks: tuple[str, ...] = ()) -> Found:
    """Runs ``npucall conform`` as a user would, on the operators that the fault is about."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        start, code, said = time.monotonic(), 0, io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                command.conform(
                    target, operator=list(fault.operators), block=list(blocks), quick=quick,
                    profile=fault.profile, json=report,
                )  # fmt: skip
        except typer.Exit as end:
            code = end.exit_code
        except Exception as error:  # noqa: BLE001  # the command says it and ends with 1
            return Found(fault.id, quick, True, ["command"], f"{type(error).__name__}: {error}")
        seconds = time.monotonic() - start
        data = json.loads(report.read_text())
        failed = [each for each in data["outcomes"] if each["status"] == "failed"]
        blocks = sorted({each["block"] for each in failed})
        problem = f"{failed[0]['case']}: {failed[0]['problems'][0]}" if failed else ""
        return Found(fault.id, quick, code != 0, blocks, problem, seconds)


@contextmanager
def served(fault: Planted, name: str) -> Iterator[str]:
    """A server process with the fault of that name."""
    with tempfile.TemporaryDirectory(prefix="trial") as folder:
        ready, log = Path(folder) / "ready", Path(folder) / "log"
        flags = [
            f"--listen=unix:{folder}/s", f"--soc={fault.soc}", f"--ready-file={ready}",
            f"--shared-memory={folder}/m", *fault.flags,
        ]  # fmt: skip
        words = [sys.executable, "-m", f"{__package__}.spoilt_server", name, *flags]
        with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as process:
            try:
                end = time.monotonic() + _START_SECONDS
                while not ready.exists() and process.poll() is None and time.monotonic() < end:
                    time.sleep(0.02)
                if not ready.exists():
                    raise RuntimeError(log.read_text()[-3000:])
                yield f"unix:{folder}/s"
            finally:
                process.kill()


@contextmanager
def there(fault: Planted, *, planted: bool) -> Iterator[str]:
    """A server, with the fault or without, and how it is reached."""
    if fault.over != LOCAL:
        with served(fault, fault.id if planted else "-") as target:
            yield target
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPUCALL_SOC", fault.soc)
        if planted:
            fault.plant(patch)
        yield "local:"


def tried(
    fault: Planted, *, quick: bool, planted: bool = True, blocks: tuple[str, ...] = ()
) -> Found:
    """What the suite says of a server with the fault, or of one without."""
    with there(fault, planted=planted) as target:
        return judge(target, fault, quick=quick, blocks=blocks)


def table(found: list[Found]) -> str:
    """Shares by kind; escapes by name."""
    lines = []
    for quick in (True, False):
        of = [each for each in found if each.quick is quick]
        if not of:
            continue
        kinds: dict[str, list[Found]] = defaultdict(list)
        for each in of:
            if not BY_ID[each.fault].allowed:
                kinds[BY_ID[each.fault].kind].append(each)
        lines.append("quick" if quick else "full")
        for name, those in {**kinds, "all": [e for es in kinds.values() for e in es]}.items():
            caught = sum(each.caught for each in those)
            lines.append(
                f"  {name:45} {caught:4} of {len(those):4}"
                f"  {100 * caught / max(1, len(those)):5.1f} %"
            )
        lines += [
            f"  escaped: {e.fault} ({' '.join(BY_ID[e.fault].operators)})"
            for e in of
            if not e.caught and not BY_ID[e.fault].allowed
        ]
        lines += [
            f"  allowed: {e.fault}{' (caught)' if e.caught else ''}: {BY_ID[e.fault].allowed}"
            for e in of
            if BY_ID[e.fault].allowed
        ]
    return "\n".join(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument(
        "--only", default="", help="faults with these words in kind, title or module"
    )
    parser.add_argument("--over", default="")
    parser.add_argument("--blocks", default="", help="these alone, since all take long")
    parser.add_argument("--sound", action="store_true", help="servers without faults")
    parser.add_argument("--again", type=Path, help="only those that escaped in this file")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.environ.pop("NPUCALL_TARGET", None)
    chosen = [f for f in FAULTS if asked.only in f"{f.kind} {f.id}" and asked.over in f.over]
    if asked.again:
        old = [Found(**each) for each in json.loads(asked.again.read_text())]
        escaped = {each.fault for each in old if not each.caught}
        chosen = [f for f in chosen if f.id in escaped]
    ways = [True] * asked.quick + [False] * asked.full or [True]
    blocks = tuple(asked.blocks.split())
    found: list[Found] = []
    seen: set[Any] = set()
    for fault in chosen:
        for quick in ways:
            key = (fault.over, fault.soc, fault.profile, fault.operators, quick)
            if asked.sound and key in seen:
                continue
            seen.add(key)
            one = tried(fault, quick=quick, planted=not asked.sound, blocks=blocks)
            found.append(one)
            print(
                "caught " if one.caught else "ESCAPED",
                "quick" if quick else "full ",
                f"{one.seconds:5.1f} s  {fault.id}  {' '.join(one.blocks)}  {one.problem[:150]}",
                flush=True,
            )
            if asked.json:
                asked.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    print(table(found))


if __name__ == "__main__":
    main()
