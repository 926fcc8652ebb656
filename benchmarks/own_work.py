"""Our own work on a warm call of 1 KiB, without gRPC: this tree beside another checkout, in turns.

``own_work.py --against PATH``: each tree has a process of its own, in which gRPC's ends are
replaced. The service gets the bytes of a request and a context, as gRPC would hand them over; the
client gets the bytes of the answer at once, from memory. Both trees are measured in the same run,
round by round; what counts is the median of the rounds' ratios, of CPU time and of time. Without
``--against`` it prints the times of this tree alone.

- server: all that gRPC calls, from the bytes of the request to those of the answer: who calls, the
  call with its formula, the log line, what is counted. The answer is read, and all given back.
- server, its method: the method of the service alone.
- client: ``client.run``, from arrays to an array, all but gRPC.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = "proto", "server", "client", "pool", "conformance", "exec"
WAYS = "server", "server, its method", "client"
_WORKER = Path(__file__).with_name("own_worker.py")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=500, help="of a round, for each way")
    options = parser.parse_args(arguments)
    for line in lines(options.against, options.rounds, options.calls):
        print(line)


class Times(NamedTuple):
    """Microseconds of a call: of the process's CPU, and of time."""

    cpu: float
    wall: float


class Side:
    """A process that measures one tree."""

    def __init__(self, tree: Path, calls: int) -> None:
        path = os.pathsep.join(str(tree / each) for each in DISTRIBUTIONS)
        self._process = subprocess.Popen(
            [sys.executable, _WORKER, str(calls)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "NPUCALL_CARRIER": "grpc"},
        )
        found = self._read()
        if not all(Path(each).is_relative_to(tree) for each in found):
            raise SystemExit(f"expected packages of {tree}, found {found}")

    def round(self, way: str) -> Times:
        """One round of a way."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{way}\n")
        self._process.stdin.flush()
        return Times(*self._read())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process that measures ended with {self._process.wait()}")
        return json.loads(line)


def lines(against: Path | None, rounds: int, calls: int) -> Iterator[str]:
    """A line for each way."""
    trees = [HERE] if against is None else [HERE, against.resolve()]
    with ExitStack() as opened:
        sides = [opened.enter_context(Side(tree, calls)) for tree in trees]
        for way in WAYS:
            measured: list[list[Times]] = [[] for _ in sides]
            for number in range(rounds):
                order = range(len(sides)) if number % 2 else reversed(range(len(sides)))
                for which in order:
                    measured[which].append(sides[which].round(way))
            yield f"{way}: {_text(measured)}"


def _text(measured: list[list[Times]]) -> str:
    ours, *others = measured
    text = f"{_middle(ours).cpu:.1f} us of CPU a call, {_middle(ours).wall:.1f} us of time"
    for theirs in others:
        ratios = [Times(a.cpu / b.cpu, a.wall / b.wall) for a, b in zip(ours, theirs, strict=True)]
        text += (
            f"; the other tree {_middle(theirs).cpu:.1f} and {_middle(theirs).wall:.1f}; "
            f"ratio {_middle(ratios).cpu:.2f} of CPU, {_middle(ratios).wall:.2f} of time"
        )
    return text


def _middle(times: list[Times]) -> Times:
    return Times(median(each.cpu for each in times), median(each.wall for each in times))


if __name__ == "__main__":
    main()
