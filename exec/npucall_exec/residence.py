"""What of a device's memory stays on the server that computes for a program.

Launches between two synchronises travel as one program. Tensors of more than 64 KiB go to the
server once, and their results stay there until the host reads them; smaller ones travel with the
calls, so that what is small needs one round trip.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npucall.errors import HandleMemoryError, NpucallError
from npucall.places import HandlePart, StepOutput
from npucall_client.calls.tensors import Empty, HeldTensor
from npucall_exec.calls import LOST, ProgramCalls
from npucall_exec.launched import ByteRange, Launch, TensorPlace
from npucall_exec.launches import SATURATED, each, saturate

if TYPE_CHECKING:
    from npucall.tensors import Buffer, TensorSpec
    from npucall_client.client import Client
    from npucall_client.sessions.remote import Remote
    from npucall_client.sessions.session import Session
    from npucall_exec.device_memory import Memory


class _Held(NamedTuple):
    """A range whose bytes the server has."""

    range: ByteRange
    remote: Remote
    start: int
    """The first byte of the remote that belongs to it."""
    is_here: bool
    """Whether the host has them too."""

    def part(self, range_: ByteRange) -> _Held:
        """The same of some of its bytes."""
        return self._replace(range=range_, start=self.start + range_.begin - self.range.begin)


class _Part(HeldTensor):
    """Bytes of a remote, as a tensor of another shape or dtype."""

    __slots__ = ("_remote", "_size", "_start", "from_torch", "home", "tensor")

    def __init__(self, remote: Remote, start: int, spec: TensorSpec) -> None:
        self.home, self.from_torch = remote.home, False
        self.tensor = spec.dtype.numpy, spec.shape, None, None
        self._remote, self._start, self._size = remote, start, spec.storage_bytes

    def place(self, within: object) -> Buffer | HandlePart | StepOutput:
        place = self._remote.place(within)
        if isinstance(place, HandlePart):
            return HandlePart(place.id, place.offset + self._start, self._size)
        return place


class Residence:
    """The tensors of one process that are on the server. For several threads."""

    def __init__(self, client: Client, calls: ProgramCalls, memory: Memory, steps: int) -> None:
        self._client, self._calls, self._memory = client, calls, memory
        self._steps = steps
        """Most steps of a program."""
        self._lock = threading.Lock()
        self._held: list[_Held] = []
        """In order, and none has bytes of another."""
        self._session: Session | None = None

    def run(self, launches: Sequence[Launch]) -> None:
        """Runs launches in order; those behind one that fails too. Raises the first failure."""
        failure: Exception | None = None
        with self._lock:
            for batch in self._batches(launches):
                if self._together(batch):
                    continue
                for launch in batch:
                    try:
                        self._alone(launch)
                    except LOST:
                        raise
                    except Exception as error:  # noqa: BLE001  # whatever it is, others go on
                        failure = failure or error
        if failure is not None:
            raise failure

    def reach(self, range_: ByteRange, *, writes: bool) -> None:
        """The host reads these bytes now, or writes them."""
        with self._lock:
            self._bring(range_, but_within=range_ if writes else None)
            if writes:
                self._drop(range_)

    def close(self) -> None:
        """The server releases all of it."""
        if self._session is not None:
            self._session.close()

    def _batches(self, launches: Sequence[Launch]) -> Iterator[list[Launch]]:
        """Runs of launches that can be one program, or one launch that is to run alone."""
        batch: list[Launch] = []
        written: set[ByteRange] = set()
        steps = 0
        for launch in launches:
            more = 1 + len(launch.writes)  # each with a check
            alone = not (self._may_stay(launch) and all(map(self._may_stay, batch[-1:])))
            if batch and (alone or steps + more > self._steps or launch.cuts(written)):
                yield batch
                batch, written, steps = [], set(), 0
            batch.append(launch)
            steps += more
            written.update(place.range for place in launch.writes)
        if batch:
            yield batch

    def _may_stay(self, launch: Launch) -> bool:
        places = (*launch.reads, *launch.writes)
        return launch.may_stay and all(p.range.end <= self._memory.size for p in places)

    def _is_worth_it(self, batch: Sequence[Launch]) -> bool:
        """Whether these are better a program of a session: else one call has one round trip."""
        places = [place for one in batch for place in (*one.reads, *one.writes)]
        return len(batch) > 1 or any(not p.is_small or self._over(p.range) for p in places)

    def _alone(self, launch: Launch) -> None:
        """Runs a launch with what the host has."""
        for place in (*launch.reads, *launch.writes):
            self._bring(place.range)
        for place in launch.writes:
            self._drop(place.range)
        launch.run(self._calls, self._memory)

    def _together(self, batch: Sequence[Launch]) -> bool:
        """Runs launches as one program; False, and nothing has happened, if they are to run alone.

        That is where one failed, and where a stream that saturates would have changed a result.
        """
        if not (self._may_stay(batch[0]) and self._is_worth_it(batch)):
            return False
        try:
            results = self._results(batch)
        except LOST:
            raise
        except HandleMemoryError:
            self._bring(ByteRange(0, self._memory.size))
            self._held.clear()
            return False
        except (NpucallError, TypeError, ValueError):
            return False
        if results is None:
            return False
        for place, (remote, saturates) in results.items():
            self._drop(place.range)
            if not place.is_small:
                self._hold(_Held(place.range, remote, 0, is_here=False))
                continue
            array = self._memory.array(place.spec, place.offset)
            np.copyto(array, remote.numpy())
            if saturates:
                saturate(array)
        return True

    def _results(self, batch: Sequence[Launch]) -> dict[TensorPlace, tuple[Remote, bool]] | None:
        """What stays of a program; None if a number of it is not finite, but was to be."""
        results: dict[ByteRange, tuple[TensorPlace, Remote, bool]] = {}
        checks: list[Remote] = []
        with self._opened().program() as program:
            for number, launch in enumerate(batch):
                inputs, outputs = launch.split
                given = {n: self._given(value, results) for n, value in inputs.items()}
                wanted = {n: _empty(value) for n, value in outputs.items()}
                made = program.run(
                    launch.planned.call.operator,
                    variant=launch.planned.variant,
                    outputs=wanted,
                    **given,
                )
                for place, remote in zip(
                    launch.writes, each(made if isinstance(made, tuple) else [made]), strict=True
                ):
                    for other in [r for r in results if r.meets(place.range)]:
                        del results[other]
                    results[place.range] = place, remote, launch.saturates
                    if launch.saturates and _is_read(place, batch[number + 1 :]):
                        # that of what is not finite is not
                        dtype = place.spec.dtype
                        checks.append(
                            program.run("aclnnMean", remote, dim=(), keep_dim=False, dtype=dtype)
                        )
            small = [remote for place, remote, _ in results.values() if place.is_small]
            program.fetch(*small, *checks)
        if not all(np.isfinite(check.numpy()) for check in checks):
            return None
        return {place: (remote, saturates) for place, remote, saturates in results.values()}

    def _given(self, value: Any, results: dict[ByteRange, tuple[TensorPlace, Remote, bool]]) -> Any:
        """An argument for a program."""
        if isinstance(value, list):
            return [self._given(item, results) for item in value]
        if not isinstance(value, TensorPlace):
            return value
        spec, range_ = value.spec, value.range
        if range_ in results and range_.begin < range_.end:
            return _Part(results[range_][1], 0, spec)
        if spec.row_major:
            if not value.is_small and not self._whole(range_):
                self._bring(range_)
                remote = self._opened().put(self._memory.array(spec, value.offset))
                self._hold(_Held(range_, remote, 0, is_here=True))
            if held := self._whole(range_):
                return _Part(held.remote, held.part(range_).start, spec)
        self._bring(range_)
        return self._memory.array(spec, value.offset)

    def _opened(self) -> Session:
        if self._session is None:
            self._session = self._client.session()
        return self._session

    def _over(self, range_: ByteRange) -> list[_Held]:
        """What is held of these bytes."""
        first = bisect_right(self._held, range_.begin, key=lambda held: held.range.end)
        found = []
        for held in self._held[first:]:
            if not held.range.meets(range_):
                break
            found.append(held)
        return found

    def _whole(self, range_: ByteRange) -> _Held | None:
        """What holds all of these bytes."""
        over = self._over(range_)
        return over[0] if over and over[0].range.holds(range_) else None

    def _bring(self, range_: ByteRange, but_within: ByteRange | None = None) -> None:
        """Fetches what the host does not have of these bytes."""
        for held in self._over(range_):
            if held.is_here or (but_within and but_within.holds(held.range)):
                continue
            begin, end = held.range
            data = held.remote.numpy().reshape(-1).view(np.uint8).data
            self._memory.bytes[begin:end] = data[held.start : held.start + end - begin]
            self._held[self._held.index(held)] = held._replace(is_here=True)

    def _drop(self, range_: ByteRange) -> None:
        """The server's bytes of this range are old."""
        for held in self._over(range_):
            at = self._held.index(held)
            left, right = (
                ByteRange(held.range.begin, range_.begin),
                ByteRange(range_.end, held.range.end),
            )
            self._held[at : at + 1] = [held.part(r) for r in (left, right) if r.begin < r.end]

    def _hold(self, held: _Held) -> None:
        self._drop(held.range)
        self._held.insert(
            bisect_right(self._held, held.range.begin, key=lambda one: one.range.begin), held
        )


def _empty(value: Any) -> Any:
    if isinstance(value, list):
        return [_empty(item) for item in value]
    return (
        Empty(value.spec.shape, value.spec.dtype.numpy) if isinstance(value, TensorPlace) else value
    )


def _is_read(place: TensorPlace, later: Sequence[Launch]) -> bool:
    """Whether something reads a result on the server, so that it must be finite there."""
    if place.spec.dtype.numpy not in SATURATED or not place.spec.elements:
        return False
    return not place.is_small or any(
        place.range.meets(other.range) for launch in later for other in launch.reads
    )
