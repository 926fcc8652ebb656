"""Faults of a server that show only on one path: streams, places, plans, timings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest

from npucall.compute import evaluate
from npucall.errors import ArgumentError
from npucall.places import RegionPart, StepOutput
from npucall.tensors import view
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.replies import decode_timings, encode_timings
from npucall_server.execution import life, program
from npucall_server.execution.call import CallExecution
from npucall_server.execution.placed import Placed
from npucall_server.services.sessions import entries
from npucall_server.services.streams import stream
from npucall_server.sessions.digests import Digests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer

Seed: TypeAlias = Callable[[pytest.MonkeyPatch], None]
ANY = "aclnnL1LossBackward"
STREAMED = "stream chunks pipeline asyncio-pipeline pool-pipeline"


@dataclass(frozen=True)
class PathFault:
    """Something wrong with a server, and the paths that must report it."""

    title: str
    seed: Seed
    paths: frozenset[str]
    operator: str = ANY
    alone: bool = True
    """Whether other blocks cannot see it."""

    def __str__(self) -> str:
        return self.title.replace(" ", "-")


def fault(
    title: str, seed: Seed, paths: str, operator: str = ANY, *, alone: bool = True
) -> PathFault:
    """A fault; paths are separated by spaces."""
    return PathFault(title, seed, frozenset(paths.split()), operator, alone)


def flipped(places: Sequence[Any]) -> list[Any]:
    """Storages of an answer, of which one bit is another one: the last of the first element."""
    found = [bytearray(each) if not isinstance(each, tuple) and each else each for each in places]
    for each in found:
        if isinstance(each, bytearray):
            each[0] ^= 1
    return [memoryview(each) if isinstance(each, bytearray) else each for each in found]


def stream_flips_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers on streams are not computed as those of Execute are."""
    right = stream.answered

    def wrong(call: Any, chunk_bytes: int) -> Any:
        if isinstance(call.execution, CallExecution):
            reply = call.execution.reply
            call.execution.reply = lambda: (a := reply())._replace(storage=flipped(a.storage))
        return right(call, chunk_bytes)

    monkeypatch.setattr(stream, "answered", wrong)


def errors_of_streams_without_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame with an error has no aclnn status."""
    right = stream.to_status

    def wrong(error: Any) -> Any:
        error.aclnn_status = None
        return right(error)

    monkeypatch.setattr(stream, "to_status", wrong)


def errors_of_streams_blame_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame with an error names no parameter."""
    right = stream.to_status

    def wrong(error: Any) -> Any:
        error.parameters = ()
        return right(error)

    monkeypatch.setattr(stream, "to_status", wrong)


def answers_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """On streams a call gets the outputs of the call before it."""
    right = stream.answered
    last: list[Any] = []

    def wrong(call: Any, chunk_bytes: int) -> Any:
        if isinstance(call.execution, CallExecution):
            reply = call.execution.reply

            def others() -> Any:
                answer = reply()
                before, last[:] = list(last), [answer]
                alike = before and before[0].reply == answer.reply
                return answer._replace(storage=before[0].storage) if alike else answer

            call.execution.reply = others
        return right(call, chunk_bytes)

    monkeypatch.setattr(stream, "answered", wrong)


def plan_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan answers calls that Execute refuses."""
    right = CallExecution.plan

    def wrong(self: Any, message: bytes) -> tuple[bytes, bytes, int]:
        try:
            return right(self, message)
        except ArgumentError:
            return b"", b"", 0

    monkeypatch.setattr(CallExecution, "plan", wrong)


def changed_plans(change: Callable[[pb.Reply, int], tuple[pb.Reply, int]]) -> Seed:
    """Plan says something else than Execute, by what it changes of reply and workspace."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        right = CallExecution.plan

        def wrong(self: Any, message: bytes) -> tuple[bytes, bytes, int]:
            answer, timings, workspace = right(self, message)
            reply, workspace = change(pb.Reply.FromString(answer), workspace)
            return reply.SerializeToString(), timings, workspace

        monkeypatch.setattr(CallExecution, "plan", wrong)

    return seed


def _other_shape(reply: pb.Reply, workspace: int) -> tuple[pb.Reply, int]:
    for output in reply.outputs:
        output.tensor.shape.append(1)
    return reply, workspace


def _some_workspace(reply: pb.Reply, workspace: int) -> tuple[pb.Reply, int]:
    return reply, workspace + 512


def plan_has_another_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan's errors have another status than those of Execute."""
    right = CallExecution.plan

    def wrong(self: Any, message: bytes) -> tuple[bytes, bytes, int]:
        try:
            return right(self, message)
        except ArgumentError as error:
            error.aclnn_status = 561002
            raise

    monkeypatch.setattr(CallExecution, "plan", wrong)


def unread_inputs_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that the operator does not need is read if it was sent."""
    right = evaluate.run

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any, **more: Any) -> Any:
        answers = right(call, storages, *rest, **more)
        unread = [p.name for p in call.operator.inputs if not p.read and p.name in storages]
        for name in unread:
            array = view(call.inputs[name], storages[name])
            for spec, answer in zip(call.outputs.values(), answers, strict=True):
                if array.shape == spec.shape and array.size:
                    view(spec, answer)[...] += np.nan_to_num(array).astype(spec.dtype.numpy)
        return answers

    monkeypatch.setattr(evaluate, "run", wrong)


def unsent_inputs_are_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an input was not sent, the last number of outputs is different."""
    right = evaluate.run

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any, **more: Any) -> Any:
        answers = right(call, storages, *rest, **more)
        unsent = call.inputs.keys() - storages.keys()
        return flipped(answers) if unsent else answers

    monkeypatch.setattr(evaluate, "run", wrong)


def handles_hold_what_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle of the same size as an earlier one is not filled again."""
    right = entries._Entry.take
    first: dict[int, bytes] = {}

    def wrong(self: Any, chunk: Any) -> None:
        data = first.setdefault(len(chunk.data), bytes(chunk.data))
        right(self, replace(chunk, data=memoryview(data)))

    monkeypatch.setattr(entries._Entry, "take", wrong)


def program_reads_first_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps with the same call read the storages of the first of them."""
    right = program.split_program

    def wrong(message: bytes) -> Any:
        steps = right(message)
        first: dict[bytes, Any] = {}
        return [s._replace(storage=first.setdefault(s.call, s.storage)) for s in steps]

    monkeypatch.setattr(program, "split_program", wrong)


def program_forgets_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that takes an output of another reads zeros."""
    right = program._own_steps

    def wrong(asked: Any) -> Any:
        return [
            step._replace(
                storages={
                    n: bytes(step.call.inputs[n].storage_bytes) if isinstance(p, StepOutput) else p
                    for n, p in step.storages.items()
                }
            )
            for step in right(asked)
        ]

    monkeypatch.setattr(program, "_own_steps", wrong)


def program_needs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of a program says that the program needs no memory."""
    right = program.ProgramExecution.plan

    def wrong(self: Any, message: bytes) -> Any:
        steps, timings, _ = right(self, message)
        return steps, timings, 0

    monkeypatch.setattr(program.ProgramExecution, "plan", wrong)


def digests_are_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every digest gives the bytes that were remembered first."""
    right = Digests.find
    first: dict[int, Any] = {}

    def wrong(self: Any, tenant: str, digest: bytes) -> Any:
        found = right(self, tenant, digest)
        return None if found is None else first.setdefault(len(found), bytes(found))

    monkeypatch.setattr(Digests, "find", wrong)


def changed_timings(**parts: int) -> Seed:
    """The times in replies are impossible."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        right = life.Execution._take_timings

        def wrong(self: Any) -> bytes:
            return encode_timings(decode_timings(right(self))._replace(**parts))

        monkeypatch.setattr(life.Execution, "_take_timings", wrong)

    return seed


def memory_written_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs in shared memory are written a number too far."""
    right = Placed._targets_of

    def wrong(self: Any, step: Any) -> Any:
        places = {
            name: RegionPart(p.id, p.offset + 4, p.length) if isinstance(p, RegionPart) else p
            for name, p in step.output_places.items()
        }
        return right(self, step._replace(output_places=places))

    monkeypatch.setattr(Placed, "_targets_of", wrong)


def memory_read_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs in shared memory are read from where its first tensor lies."""
    right = Placed._view

    def wrong(self: Any, call: Any, name: str, place: RegionPart) -> memoryview:
        return right(self, call, name, place._replace(offset=64))

    monkeypatch.setattr(Placed, "_view", wrong)


FAULTS = (
    fault("streamed answers differ in one bit", stream_flips_a_bit, STREAMED),
    fault("errors of streams lose their status", errors_of_streams_without_status,
          "stream chunks pipeline"),
    fault("errors of streams blame nobody", errors_of_streams_blame_nobody,
          "stream chunks pipeline"),
    fault("answers of a pipeline change places", answers_change_places,
          "pipeline asyncio-pipeline"),
    fault("Plan lets refused calls pass", plan_refuses_nothing, "plan"),
    fault("Plan says another shape", changed_plans(_other_shape), "plan"),
    fault("Plan says a workspace that is none", changed_plans(_some_workspace), "plan"),
    fault("Plan refuses with another status", plan_has_another_status, "plan"),
    fault("unread inputs are added where they are sent", unread_inputs_added, "execute",
          "aclnnKlDivBackward", alone=False),
    fault("inputs that were not sent are anything", unsent_inputs_are_anything, "execute stream",
          "aclnnKlDivBackward"),
    fault("handles hold what came first", handles_hold_what_came_first, "handle"),
    fault("a program reads the first inputs again", program_reads_first_inputs, "program"),
    fault("a program forgets its results", program_forgets_results, "program"),
    fault("digests are those of others", digests_are_of_others, "digest"),
    fault("a plan of a program needs no memory", program_needs_no_memory, "program-plan"),
    fault("parts of the time exceed all of it", changed_timings(queue_ns=10**12), "timings"),
    fault("nothing has run", changed_timings(run_ns=0), "timings"),
    fault("shared memory is written elsewhere", memory_written_elsewhere, "shared-memory"),
    fault("shared memory is read elsewhere", memory_read_elsewhere, "shared-memory"),
)  # fmt: skip
