"""What ``npucall exec`` costs a program in C, beside the same calls of a client.

``python benchmarks/programs.py``: the CPU of a start, and of a small call in the program and in the
command; a large call in memory that a server shares; then 20 operators on 16 MiB over a link of 20
ms. Both in turns with the same of a client.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING

import numpy as np
from figures import MIB
from link import Link, command_at, far_server, missing

import npucall_client
from npucall.operators.sigmoid import sigmoid
from npucall.operators.sigmoid_backward import sigmoid_backward
from npucall_client.testing import running_server
from npucall_exec import toolkit

if TYPE_CHECKING:
    from collections.abc import Callable

_SOURCE = Path(__file__).with_suffix(".cpp")
_EXEC = (sys.executable, "-c", "from npucall_client.commands import main; main()", "exec")
_LINK = Link("lab", 0.020, 1e9)
_CHAIN, _CALLS = 20, 3000
_ELEMENTS = 16 * MIB // 4


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
    _large(20 * asked.rounds)
    if lacking := missing():
        print(f"programs: skipped: {lacking}", file=sys.stderr)
        return 3
    with _LINK.up() as ends, far_server(ends) as far:
        there = ("--target", far.target, "--rounds", str(asked.rounds))
        subprocess.run(command_at(ends.client, Path(__file__).name, *there), check=True)
    return 0


def _small() -> None:
    home = toolkit.built()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program")
        flags = [f"-I{home}/include", f"-L{home}/lib64", "-lopapi_nn", "-lnnopbase", "-lascendcl"]
        subprocess.run(["g++", _SOURCE, "-o", program, *flags], check=True)
        (start, _), (every, own) = (_cpu(program, calls) for calls in (0, _CALLS))
    print(f"start: {start:.2f} s of CPU; a small call: {own / _CALLS * 1e6:.1f} us of CPU in the "
          f"program, {(every - start - own) / _CALLS * 1e6:.0f} us in the command")  # fmt: skip


def _cpu(program: Path, calls: int) -> tuple[float, float]:
    """Seconds of CPU of the command with the program, and of the calls in the program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*_EXEC, "--quiet", "--target", "local:", "--", program, "small", str(calls)],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    everything = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return everything, float(done.stdout) / 1e6


def _large(rounds: int) -> None:
    """A call in shared memory, of a program and of a client."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(f"--shared-memory={folder}/side") as server,
        npucall_client.connect(server.target) as client,
        client.shared(4 * _ELEMENTS * 4) as memory,
    ):
        one, other, out = (memory.array(np.full(_ELEMENTS, 0.5, np.float32)) for _ in range(3))
        kept = client.options(outputs={"grad_input": out})

        def of_client() -> float:
            start = time.perf_counter()
            kept.run(sigmoid_backward, one, other)
            return time.perf_counter() - start

        program, own, ratio = _in_turns("large", server.target, of_client, rounds, "--shared")
    print(f"a call of three tensors of 16 MiB in shared memory: {program * 1e3:.1f} ms, "
          f"client.run {own * 1e3:.1f} ms, ratio {ratio:.2f}")  # fmt: skip


def _chain(target: str, rounds: int) -> None:
    values = np.full(_ELEMENTS, 0.5, np.float32)
    with (
        npucall_client.connect(target, timeout=600) as client,
        client.session() as session,
    ):
        program, own, ratio = _in_turns(
            "chain", target, lambda: _of_session(session, values), rounds
        )
    print(f"{_CHAIN} operators on 16 MiB over {_LINK.round_trip * 1e3:g} ms: {program:.2f} s, "
          f"in a session {own:.2f} s, ratio {ratio:.2f}")  # fmt: skip


def _in_turns(
    asked: str, target: str, of_client: Callable[[], float], rounds: int, *flags: str
) -> tuple[float, float, float]:
    """Medians of the seconds of the program, of those of a client, and of their ratios."""
    command = [*_EXEC, "--quiet", *flags, "--target", target, "--compile", _SOURCE, "--", asked]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pairs = [
            (_of_program(process.stdin, process.stdout), of_client()) for _ in range(rounds + 1)
        ][1:]
        process.stdin.close()
    program, own = (median(column) for column in zip(*pairs, strict=True))
    return program, own, median(one / other for one, other in pairs)


def _of_program(asked: IO[bytes], told: IO[bytes]) -> float:
    asked.write(b"%d\n" % _ELEMENTS)
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
