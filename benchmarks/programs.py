"""What ``npucall exec`` costs a program in C, beside the same calls of a client.

``python benchmarks/programs.py``: the CPU of a small call in the program and in the command; then
20 operators on 16 MiB over a link of 20 ms, in turns with the same in a session of the client.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import IO

import numpy as np
from figures import MIB
from link import Link, command_at, far_server, missing

import npucall_client
from npucall.operators.sigmoid import sigmoid

_SOURCE = Path(__file__).with_suffix(".cpp")
_EXEC = (sys.executable, "-c", "from npucall_client.commands.command import main; main()", "exec")
_LINK = Link("lab", 0.020, 1e9)
_CHAIN, _CALLS = 20, 3000


def main() -> int:
    """Measures and prints; answers the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", help="measure the chain alone, with this server")
    asked = parser.parse_args()
    if asked.target:
        _chain(asked.target, asked.rounds)
        return 0
    _small()
    if lacking := missing():
        print(f"programs: skipped: {lacking}", file=sys.stderr)
        return 3
    with _LINK.up() as ends, far_server(ends) as far:
        there = ("--target", far.target, "--rounds", str(asked.rounds))
        subprocess.run(command_at(ends.client, Path(__file__).name, *there), check=True)
    return 0


def _small() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*_EXEC, "--quiet", "--target", "local:", "--compile", _SOURCE, "--", "small"],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    everything = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"a small call: {float(done.stdout):.1f} us of CPU in the program; "
          f"{everything / _CALLS * 1e6:.0f} in all, with start and compiler")  # fmt: skip


def _chain(target: str, rounds: int) -> None:
    values = np.full(16 * MIB // 4, 0.5, np.float32)
    command = [*_EXEC, "--quiet", "--target", target, "--compile", _SOURCE]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        npucall_client.connect(target, timeout=600) as client,
        client.session() as session,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        pairs = [
            (_of_program(process.stdin, process.stdout, values.size), _of_session(session, values))
            for _ in range(rounds + 1)
        ][1:]
        process.stdin.close()
    program, own = (median(column) for column in zip(*pairs, strict=True))
    ratio = median(one / other for one, other in pairs)
    print(f"{_CHAIN} operators on 16 MiB over {_LINK.round_trip * 1e3:g} ms: {program:.2f} s, "
          f"in a session {own:.2f} s, ratio {ratio:.2f}")  # fmt: skip


def _of_program(asked: IO[bytes], told: IO[bytes], elements: int) -> float:
    asked.write(b"%d\n" % elements)
    asked.flush()
    return float(told.readline())


def _of_session(
    session: npucall_client.Session, values: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> float:
    start = time.perf_counter()
    result = session.put(values)
    with session.program() as program:
        for _ in range(_CHAIN):
            result = program.run(sigmoid, result)
    result.numpy()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
