"""State between calls, callers side by side, and the paths of a call through a server."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.compute import helpers, pieces, programs
from npucall.compute.layouts import Layout
from npucall.errors import InternalError, MessageError
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire import calls
from npucall_server import arrivals, handling
from npucall_server.devices import cpu, host_memory
from npucall_server.execution import call as call_module
from npucall_server.services import operators as service
from npucall_server.services.streams import call as stream_call
from npucall_server.services.streams import stream
from npucall_server.sessions import digests
from npucall_server.shared import regions

from .places import gapped_back
from .planted import SOCKET, both, kind, refusal, reply, run

state = kind("state and callers side by side")
served = kind("state and callers side by side", over=SOCKET)
path = kind("paths", over=SOCKET)


# --- State


def arrays(call: Any, answers: Any) -> Any:
    return [
        Layout.of_spec(spec).over(storage)
        for spec, storage in zip(call.outputs.values(), answers, strict=True)
        if spec.elements
    ]


def spoilt(condition: Any, wrong: Any) -> Any:
    """Outputs of calls of which ``condition(number, call)`` are spoilt; numbers begin with 1."""
    seen: Counter[str] = Counter()

    def change(right: Any, call: Any, storages: Any) -> Any:
        answers = right(call, storages)
        seen[call.operator.title] += 1
        if not call.done and condition(seen[call.operator.title], call):
            for array in arrays(call, answers):
                wrong(array)
        return answers

    return run(change)


def zeroed(array: Any) -> None:
    array[...] = 0


def last_wrong(array: Any) -> None:
    """The last element is another one than it was."""
    last = array[(-1,) * array.ndim]
    array[(-1,) * array.ndim] = array.dtype.type(0) if last != 0 else array.dtype.type(1)


def remembered() -> Any:
    """A call that is the same but for its bytes gets what the first one got."""
    kept: dict[Any, list[bytes]] = {}

    def change(right: Any, call: Any, storages: Any) -> Any:
        if call in kept:
            return [bytearray(each) for each in kept[call]]
        answers = right(call, storages)
        kept[call] = [bytes(each) for each in answers]
        return answers

    return run(change)


def prepared_by(key: Any) -> Any:
    """Calls are kept by a key that lacks something; ``None`` is kept by nothing."""

    def plant(patch: Any) -> None:
        kept: dict[Any, Any] = {}
        right = calls.PreparedCalls._prepare

        def prepare(self: Any, data: bytes) -> Any:
            prepared = right(self, data)
            found = kept.setdefault((id(self), key(prepared)), prepared)
            fits = found.stored == prepared.stored and found.stored_bytes == prepared.stored_bytes
            same = {n: s.storage_bytes for n, s in found.outputs.items()} == {
                n: s.storage_bytes for n, s in prepared.outputs.items()
            }
            return found if fits and same else prepared

        patch.setattr(calls.PreparedCalls, "_prepare", prepare)

    return plant


def without_attributes(prepared: Any) -> Any:
    tensors = {**prepared.inputs, **prepared.outputs}
    return (prepared.operator.title, repr(sorted(tensors.items(), key=str)))


def without_strides(prepared: Any) -> Any:
    tensors = {**prepared.inputs, **prepared.outputs}
    shapes = [(name, spec.dtype.name, spec.shape) for name, spec in tensors.items()]
    return (prepared.operator.title, repr(sorted(shapes)), repr(prepared.values))


def added_up() -> Any:
    """What a kernel adds up with is not made 0 where the same call comes twice in a row."""
    before: dict[str, Any] = {}

    def change(right: Any, call: Any, storages: Any) -> Any:
        answers = right(call, storages)
        if call.operator.over is not None and not call.done:
            old = before.get(call.operator.title)
            found = arrays(call, answers)
            before[call.operator.title] = (call, [array.copy() for array in found])
            if old is not None and old[0] is call:
                for array, more in zip(found, old[1], strict=True):
                    if array.dtype.kind in "fV":
                        array[...] = array + more
        return answers

    return run(change)


def stale_after(least: int) -> Any:
    """A call behind a large one has its last elements in common with that."""
    large: dict[str, Any] = {}

    def change(right: Any, call: Any, storages: Any) -> Any:
        answers = right(call, storages)
        for array in arrays(call, answers):
            if array.size >= least:
                large[array.dtype.str] = array.reshape(-1)[-4:].copy()
            elif (old := large.pop(array.dtype.str, None)) is not None and array.ndim:
                array[(-1,) * array.ndim] = old[-1]
        return answers

    return run(change)


def after_an_error() -> Any:
    """The call behind one that was refused is not computed."""
    failed = threading.Event()

    def note(error: Any) -> None:
        failed.set()

    def change(right: Any, call: Any, storages: Any) -> Any:
        answers = right(call, storages)
        if failed.is_set():
            failed.clear()
            for array in arrays(call, answers):
                zeroed(array)
        return answers

    return both(refusal(note), run(change))


def busy(least: int, wrong: Any) -> Any:
    """Outputs are spoilt while so many calls are in the server."""
    inside = [0]
    lock = threading.Lock()

    def change(right: Any, call: Any, storages: Any) -> Any:
        with lock:
            inside[0] += 1
        try:
            most = inside[0]
            answers = right(call, storages)
            time.sleep(0.0005)
            most = max(most, inside[0])
        finally:
            with lock:
                inside[0] -= 1
        if most >= least:
            for array in arrays(call, answers):
                wrong(array)
        return answers

    return run(change)


def mixed_up(same: Any) -> Any:
    """Who is answered while another is gets the other's outputs, if they are alike."""
    inside = [0]
    last: dict[Any, list[bytes]] = {}
    lock = threading.Lock()

    def change(right: Any, call: Any, storages: Any) -> Any:
        with lock:
            inside[0] += 1
        answers = right(call, storages)
        time.sleep(0.0005)
        key = same(call)
        with lock:
            others = inside[0] > 1
            inside[0] -= 1
            mine = [bytes(each) for each in answers]
            other, last[key] = last.get(key), mine
        if others and other is not None and [len(e) for e in other] == [len(e) for e in mine]:
            return [bytearray(each) for each in other]
        return answers

    return run(change)


def one_scratch(right: Any, call: Any, storages: Any) -> Any:
    """All callers' inputs pass through one buffer, without a lock."""
    for name, data in storages.items():
        if len(data) <= len(_SCRATCH):
            _SCRATCH[: len(data)] = bytes(data)
            time.sleep(0.0002)
            storages = {**storages, name: bytes(_SCRATCH[: len(data)])}
    return right(call, storages)


_SCRATCH = bytearray(1 << 16)


def in_any_order(right: Any, call: Any, storages: Any) -> Any:
    """Sums differ by a digit from call to call, as cores are ready in any order."""
    answers = right(call, storages)
    if secrets.randbelow(2):
        for array in arrays(call, answers):
            if array.dtype == np.float32 and array.size == 1 and np.isfinite(array).all():
                array[...] = np.nextafter(array, np.float32(np.inf))
    return answers


def others_bytes(right: Any, call: Any, storages: Any) -> Any:
    """Gaps of outputs hold what another caller sent."""
    answers = right(call, storages)
    for (name, spec), storage in zip(call.outputs.items(), answers, strict=True):
        if not spec.row_major and name not in storages and not call.done and _KEPT:
            array = Layout.of_spec(spec).over(storage)
            kept, place = array.copy(), np.frombuffer(storage, np.uint8)
            place[...] = np.resize(np.frombuffer(_KEPT[-1], np.uint8), place.size)
            array[...] = kept
    _KEPT[:] = [bytes(each) for each in storages.values() if len(each)][:1] or _KEPT
    return answers


_KEPT: list[bytes] = []


def helped_blocks_lost(patch: Any) -> None:
    """What other threads computed of a sum is a percent too large."""
    run_ = helpers.SharedBlocks.run

    def shared(self: Any, *given: Any) -> None:
        compute = self._compute

        def wrong(block: Any) -> Any:
            part = compute(block)
            if (
                threading.current_thread().name.startswith("npucall-helper")
                and part
                and part[0] is not None
            ):
                part[0] = part[0] * 1.01
            return part

        self._compute = wrong
        run_(self, *given)

    patch.setattr(helpers.SharedBlocks, "run", shared)


# --- Paths


def chunk_lost(first: int) -> Any:
    """Of storages that come in chunks what stands behind some bytes is not kept."""

    def plant(patch: Any) -> None:
        right = call_module.into

        def into(memories: Any) -> Any:
            for memory in memories:
                np.frombuffer(memory, np.uint8)[...] = 0
            copy = right(memories)
            return lambda chunk: copy(chunk) if chunk.offset < first else None

        patch.setattr(call_module, "into", into)
        patch.setattr(cpu.CpuDevice, "piecewise", lambda *_: None)

    return plant


def pieces_shifted(patch: Any) -> None:
    """All pieces but the first are computed from the element before."""
    right = pieces._arrays

    def found(work: Any, piece: Any) -> Any:
        made = right(work, piece)
        return [np.roll(each, 1) if piece.start and each.size > 1 else each for each in made]

    patch.setattr(pieces, "_arrays", found)


def numbers_once(patch: Any) -> None:
    """Of a single number that comes beside pieces the first piece knows, later ones take 1."""
    right = pieces._arrays

    def found(work: Any, piece: Any) -> Any:
        made = right(work, piece)
        return [np.ones_like(each) if piece.start and each.size == 1 else each for each in made]

    patch.setattr(pieces, "_arrays", found)


def too_early(patch: Any) -> None:
    """Outputs are sent before they are computed."""
    right = arrivals.Arrivals.computed

    def computed(self: Any, outputs: Any, elements: int) -> None:
        right(
            self,
            [bytes(len(each)) for each in outputs] if elements < self._elements else outputs,
            elements,
        )

    patch.setattr(arrivals.Arrivals, "computed", computed)


def answer_chunks(wrong: Any) -> Any:
    """Chunks of an answer behind the first are ``wrong(chunk)``."""

    def plant(patch: Any) -> None:
        right = stream_call.join_chunk
        patch.setattr(
            stream_call,
            "join_chunk",
            lambda call_id, chunk: right(call_id, wrong(chunk) if chunk.offset else chunk),
        )

    return plant


def answers_exchanged(patch: Any) -> None:
    """A stream answers with the outputs of the call before, if that was the same."""
    right = stream_call.CallExecution.reply
    last: dict[Any, Any] = {}

    def reply_of(self: Any) -> Any:
        found = right(self)
        old, last[self.asked] = last.get(self.asked), found
        if (
            old is not None
            and len(last)
            and all(isinstance(e, bytearray | memoryview) for e in old.storage)
        ):
            return found._replace(storage=old.storage)
        return found

    execution = stream_call.CallExecution
    method = execution.reply_message

    def unary(self: Any) -> Any:
        patch_off[0] = True
        try:
            return method(self)
        finally:
            patch_off[0] = False

    patch_off = [False]
    patch.setattr(execution, "reply", lambda self: right(self) if patch_off[0] else reply_of(self))
    patch.setattr(execution, "reply_message", unary)


def stream_error(wrong: Any) -> Any:
    def plant(patch: Any) -> None:
        right = stream.to_status
        patch.setattr(stream, "to_status", lambda error: right(wrong(error) or error))

    return plant


def bare(error: Any) -> Any:
    return MessageError(str(error))


def without_parameters(error: Any) -> None:
    error.parameters = ()


def without_status(error: Any) -> None:
    error.aclnn_status = None


def no_chunks(patch: Any) -> None:
    """Storages in chunks are promised, and fail."""

    def expect(self: Any, name: str) -> Any:
        raise InternalError("chunks: expected a kernel for them, found none")

    patch.setattr(call_module.CallExecution, "expect", expect)


def region_offset(patch: Any) -> None:
    """A part of shared memory is read from where the region starts."""
    right = regions.Regions.view
    patch.setattr(
        regions.Regions,
        "view",
        lambda self, region, *rest: right(
            self,
            region._replace(offset=0) if hasattr(region, "_replace") else replace(region, offset=0),
            *rest,
        ),
    )


def targets(kind_: Any, wrong: Any) -> Any:
    """Outputs that have a place of that kind are spoilt there."""

    def plant(patch: Any) -> None:
        right = cpu.CpuDevice.run

        def run_(self: Any, call: Any, storages: Any, turn: Any, targets: Any = {}) -> Any:  # noqa: B006
            ran = right(self, call, storages, turn, targets)
            for target in targets.values():
                memory = getattr(target, "memory", target)
                if isinstance(target, kind_) and len(memory):
                    wrong(np.frombuffer(memory, np.uint8))
            return ran

        patch.setattr(cpu.CpuDevice, "run", run_)

    return plant


def last_byte(place: Any) -> None:
    place[-1] ^= 0x40


def handle_parts(patch: Any) -> None:
    """A part of a handle is read from where the handle starts."""
    patch.setattr(
        host_memory.HostResident, "read", lambda self, offset, length: self.view(0, length)
    )
    patch.setattr(
        host_memory,
        "_viewed",
        lambda source: (
            source.memory.view(0, source.length)
            if type(source) is host_memory.ResidentPart
            else source
        ),
    )


def handle_bytes(patch: Any) -> None:
    """Uploads keep what comes in the first write alone."""
    right = host_memory.HostResident.write
    patch.setattr(
        host_memory.HostResident,
        "write",
        lambda self, offset, data: right(self, offset, bytes(len(data)) if offset else data),
    )


def handle_read(patch: Any) -> None:
    """What handles hold is read with a bit less."""
    right = host_memory.in_host_memory

    def found(storages: Any) -> Any:
        had = any(type(s) is host_memory.ResidentPart for s in storages.values())
        made = right(storages)
        if not had:
            return made
        return {
            n: _without_bit(s) if type(storages[n]) is host_memory.ResidentPart else s
            for n, s in made.items()
        }

    patch.setattr(cpu, "in_host_memory", found)


def _without_bit(storage: Any) -> bytes:
    data = bytearray(storage)
    if data:
        data[0] ^= 1
    return bytes(data)


def programs_wrong(patch: Any) -> None:
    """The last output of a program has its last byte changed."""
    right = programs.run

    def run_(*given: Any) -> Any:
        answers = right(*given)
        for storage in answers[-1]:
            if storage is not None and len(storage):
                memoryview(storage).cast("B")[-1] ^= 0x40
        return answers

    patch.setattr(programs, "run", run_)
    patch.setattr(cpu.programs, "run", run_)


def results_of_steps(patch: Any) -> None:
    """A step that reads another one's result reads zeros."""
    right = programs._Run._answer

    def answer(self: Any, number: int, outputs: Any) -> None:
        right(self, number, outputs)
        self._results = {k: bytearray(len(v)) for k, v in self._results.items()}

    patch.setattr(programs._Run, "_answer", answer)


def digest_of_another(patch: Any) -> None:
    right = digests.Digests.find

    def found(self: Any, *asked: Any) -> Any:
        data = right(self, *asked)
        return None if data is None else _without_bit(data)

    patch.setattr(digests.Digests, "find", found)


def cut_answers(patch: Any) -> None:
    """The last storage of a unary answer lacks its last element."""
    right = call_module.join_response

    def join(reply: bytes, timings: bytes, storages: Any) -> bytes:
        made = list(storages)
        if made and isinstance(made[-1], bytearray | memoryview) and len(made[-1]) > 4:
            made[-1] = memoryview(made[-1])[:-4]
        return right(reply, timings, made)

    patch.setattr(call_module, "join_response", join)


def get_lies(patch: Any) -> None:
    """One operator is described otherwise than all are listed."""
    right = service.OperatorService.get_operator

    def get(self: Any, *asked: Any) -> bytes:
        answer = pb.GetOperatorResponse.FromString(right(self, *asked))
        del answer.operator.parameters[-1:]
        answer.operator.ClearField("products")
        return answer.SerializeToString()

    patch.setattr(service.OperatorService, "get_operator", get)


def plan_checks_nothing(patch: Any) -> None:
    """Plan answers what Execute refuses."""
    right = service.OperatorService.plan

    def plan(self: Any, request: bytes, *rest: Any) -> bytes:
        try:
            return right(self, request, *rest)
        except Exception:  # noqa: BLE001  # whatever it is
            return pb.PlanResponse().SerializeToString()

    patch.setattr(service.OperatorService, "plan", plan)


def plan_blames(patch: Any) -> None:
    right = service.OperatorService.plan

    def plan(self: Any, request: bytes, *rest: Any) -> bytes:
        try:
            return right(self, request, *rest)
        except Exception as error:
            if hasattr(error, "parameters"):
                error.parameters = error.parameters[:1]  # type: ignore[attr-defined]
                error.aclnn_status = 561000  # type: ignore[attr-defined]
            raise

    patch.setattr(service.OperatorService, "plan", plan)


def trailer_gone(patch: Any) -> None:
    """Unary errors come as a gRPC status alone."""

    def abort(error: Any, context: Any) -> Any:
        context.abort(error.code, str(error))

    patch.setattr(handling, "_abort", abort)


def new_instance(message: Any, call: Any) -> None:
    message.server.instance = secrets.token_hex(6)


def small_only(patch: Any) -> None:
    """Whatever is above a megabyte is too large for the server."""
    from npucall_server import executor

    right = executor.Executor.check_size

    def check(self: Any, call: Any) -> None:
        right(self, call)
        if getattr(call, "bytes_in_flight", 0) > 1 << 20:
            raise MessageError("request: expected at most 1 MiB")

    patch.setattr(executor.Executor, "check_size", check)


def by_title(call: Any) -> Any:
    return call.operator.title


FAULTS = (
    state(
        "the first call of an operator is not computed", "Tanh", spoilt(lambda n, _: n == 1, zeroed)
    ),
    state(
        "every 37th call has a wrong last element",
        "Mul",
        spoilt(lambda n, _: n % 37 == 0, last_wrong),
    ),
    state(
        "the twentieth call of an operator is wrong", "Elu", spoilt(lambda n, _: n == 20, zeroed)
    ),
    state(
        "results drift from the 40th call on",
        "Softplus",
        spoilt(lambda n, _: n > 40, lambda a: np.copyto(a, a * a.dtype.type(1.01))),
    ),
    state("a call in a hundred is wrong", "Log", spoilt(lambda n, _: n % 101 == 100, zeroed)),
    state("the same call gets the first one's outputs", "Silu", remembered()),
    state(
        "calls are kept without their attributes",
        "LeakyRelu KlDivBackward",
        prepared_by(without_attributes),
    ),
    state("calls are kept without their strides", "Sub", prepared_by(without_strides)),
    state("sums go on where the last call ended", "ReduceSum PreluBackward", added_up()),
    state("a call behind a large one ends with its elements", "Add", stale_after(4096)),
    state("the call behind an error is not computed", "Gelu", after_an_error()),
    state("sums differ from call to call", "MseLoss", run(in_any_order)),
    state("gaps hold what others sent", "Hardtanh", both(gapped_back, run(others_bytes))),
    served("who is answered with others gets theirs", "Exp Sigmoid", mixed_up(by_title)),
    served("the same calls side by side are mixed up", "Matmul", mixed_up(lambda call: call)),
    served(
        "any outputs of one size are mixed up",
        "Add Tanh Softmax",
        mixed_up(lambda call: call.replied_bytes),
    ),
    served("with four callers the last element is wrong", "Div", busy(4, last_wrong)),
    served("with six callers results are 0", "LogSoftmax", busy(6, zeroed)),
    served("callers share a buffer for inputs", "Mul Gelu", run(one_scratch)),
    served("what helping threads add is a percent off", "MseLoss ReduceSum", helped_blocks_lost),
    served(
        "a hundredth of calls is wrong over a socket",
        "Cast",
        spoilt(lambda n, _: n % 97 == 96, last_wrong),
    ),
    served("a reply comes from another process each time", "Hardswish", reply(new_instance)),
    path("chunks behind a megabyte are not kept", "Softmax", chunk_lost(1 << 20)),
    path("chunks behind the first are not kept", "Matmul", chunk_lost(1)),
    path("pieces are computed one element too early", "Add", pieces_shifted),
    path("single numbers count for the first piece alone", "Mul", numbers_once),
    path("outputs are sent before they are computed", "Sigmoid", too_early),
    path(
        "chunks of answers are zeros behind the first",
        "Softmax",
        answer_chunks(lambda chunk: chunk._replace(data=bytes(len(chunk.data)))),
    ),
    path(
        "chunks of answers are exchanged",
        "LogSoftmax",
        answer_chunks(
            lambda chunk: chunk._replace(
                offset=chunk.offset, data=bytes(reversed(bytes(chunk.data)))
            )
        ),
    ),
    path("a stream answers with what was before", "Elu", answers_exchanged),
    path("errors of streams are plain", "Add", stream_error(bare)),
    path("errors of streams blame nobody", "KlDiv", stream_error(without_parameters)),
    path("errors of streams have no status", "Glu", stream_error(without_status)),
    path("chunks are promised and fail", "Tanh", no_chunks),
    path("parts of shared memory start with the region", "Mul", region_offset),
    path("outputs in shared memory end with another bit", "Silu", targets(memoryview, last_byte)),
    path(
        "outputs in handles end with another bit",
        "Gelu",
        targets(host_memory.HostResident, last_byte),
    ),
    path("parts of handles start with the handle", "Add", handle_parts),
    path("what handles hold is read with another bit", "Muls", handle_read),
    path("uploads keep their first part alone", "Softmax", handle_bytes),
    path("a program ends with another bit", "Exp", programs_wrong),
    path("steps read zeros from one another", "Log", results_of_steps),
    path("bytes of digests have another bit", "Sub", digest_of_another),
    path("unary answers lack their last element", "Threshold", cut_answers),
    path("an operator alone is described otherwise", "Prelu", get_lies),
    path("Plan answers what Execute refuses", "Div", plan_checks_nothing),
    path("errors of Plan are others", "Matmul", plan_blames),
    path("unary errors have no details", "NLLLoss", trailer_gone),
    path("more than a megabyte is refused", "Hardsigmoid", small_only),
)
