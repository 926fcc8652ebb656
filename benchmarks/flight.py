"""Arrow Flight as a peer: one long-lived exchange a caller, a handler in Python, kept memory.

A development tool: it needs pyarrow, and stands beside us at equal bytes. Run as a program it
serves, and prints its address.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall import memory
from npucall.limits import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Arrays = Sequence[np.ndarray[Any, Any]]
    Runs = list[Callable[[], np.ndarray[Any, Any]]]

_NAMES = ["grad_output", "self", "target"]


def _arrow() -> Any:
    """Arrow with its Flight, whose memory is kept as ours is."""
    arrow = import_module("pyarrow")  # no other way needs it
    import_module("pyarrow.flight")
    memory.keep(2 * GIB)
    arrow.set_memory_pool(arrow.system_memory_pool())
    return arrow


def _batch(arrow: Any, names: Sequence[str], arrays: Arrays) -> Any:
    """Arrays as columns, not copied."""
    columns = [
        arrow.Array.from_buffers(
            arrow.from_numpy_dtype(array.dtype), len(array), [None, arrow.py_buffer(array)]
        )
        for array in arrays
    ]
    return arrow.RecordBatch.from_arrays(columns, names=list(names))


def _arrays(batch: Any) -> Arrays:
    return [column.to_numpy() for column in batch.columns]


@contextmanager
def flight(target: str, arrays: Arrays, callers: int) -> Iterator[Runs]:
    """The way: what a caller gets is its own, since it is what was received."""
    arrow = _arrow()
    with ExitStack() as opened:
        client = opened.enter_context(arrow.flight.connect(f"grpc://{target}"))

        def caller() -> Callable[[], np.ndarray[Any, Any]]:
            batch = _batch(arrow, _NAMES, arrays)
            descriptor = arrow.flight.FlightDescriptor.for_command(b"KlDivBackward")
            writer, reader = client.do_exchange(descriptor)
            opened.callback(writer.close)
            writer.begin(batch.schema)

            def run() -> np.ndarray[Any, Any]:
                writer.write_batch(batch)
                return _arrays(reader.read_chunk().data)[0]

            return run

        yield [caller() for _ in range(callers)]


@contextmanager
def running_flight() -> Iterator[tuple[str, int]]:
    """A Flight server in a process of its own: its address, its process id."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the Flight server has no output")
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.kill()


def main() -> None:
    """Serves until it is killed."""
    arrow = _arrow()

    class Server(arrow.flight.FlightServerBase):  # type: ignore[misc]  # without types
        """Answers each batch of three columns with one of one column."""

        def do_exchange(self, _: Any, __: Any, reader: Any, writer: Any) -> None:
            """One caller's calls, from first to last."""
            begun = False
            for chunk in reader:
                grad_output, own, target = _arrays(chunk.data)
                out = -(target * grad_output) * own.dtype.type(1 / own.size)
                batch = _batch(arrow, ["out"], [out])
                if not begun:
                    writer.begin(batch.schema)
                    begun = True
                writer.write_batch(batch)

    server = Server("grpc://127.0.0.1:0")
    print(f"127.0.0.1:{server.port}", flush=True)
    server.serve()


if __name__ == "__main__":
    main()
