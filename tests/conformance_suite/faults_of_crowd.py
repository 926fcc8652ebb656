"""Faults between calls: callers see each other's data, or data that earlier calls left."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from npucall.compute import evaluate
from npucall.wire.messages import Response
from npucall_client.local import LocalTransport

from .faults_of_evaluation import RIGHT_RUN
from .faults_of_large import RIGHT_EXECUTE
from .seeded import fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall_client.arguments import BoundCall

ADD, KL, MATMUL = "aclnnAdd", "aclnnKlDivBackward", "aclnnMatmul"


def flipped(answers: list[Buffer]) -> list[Buffer]:
    """The first output with the lowest bit of its first byte changed."""
    first = bytearray(answers[0])
    if first:
        first[0] ^= 1
    return [first, *answers[1:]]


def let_others_run() -> None:
    time.sleep(0)  # releases the interpreter's lock


def one_answer_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller may get the bytes of another answer of the same size, if both come at once."""
    latest: list[Any] = [()]

    async def wrong(self: LocalTransport, call: BoundCall, *rest: Any) -> Response:
        response = await RIGHT_EXECUTE(self, call, *rest)
        latest[0] = response.storage
        let_others_run()
        found = latest[0]
        same = list(map(len, found)) == list(map(len, response.storage))
        return Response(response.reply, response.timings, found) if same else response

    monkeypatch.setattr(LocalTransport, "execute", wrong)


def one_memory_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of all calls are copied into the same memory before they are used."""
    memory: dict[tuple[str, int], Buffer] = {}

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        memory.update({(name, len(data)): data for name, data in storages.items()})
        let_others_run()
        mixed = {name: memory[name, len(data)] for name, data in storages.items()}
        return RIGHT_RUN(call, mixed, *rest)

    monkeypatch.setattr(evaluate, "run", wrong)


def twentieth_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twentieth run of the same prepared call differs in its last bit."""
    runs: Counter[int] = Counter()
    kept = []

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        kept.append(call)
        runs[id(call)] += 1
        answers = RIGHT_RUN(call, storages, *rest)
        return flipped(answers) if runs[id(call)] % 20 == 0 else answers

    monkeypatch.setattr(evaluate, "run", wrong)


def kept_by_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are kept, and found again by everything in a call except its data."""
    kept: dict[bytes, Response] = {}

    async def wrong(self: LocalTransport, call: BoundCall, *rest: Any) -> Response:
        if call.call not in kept:
            kept[call.call] = await RIGHT_EXECUTE(self, call, *rest)
        return kept[call.call]

    monkeypatch.setattr(LocalTransport, "execute", wrong)


CROWD = (
    fault("callers get each other's answers", ADD, one_answer_for_all,
          found_in="crowd", spared="grid broadcast layout determinism"),
    fault("callers compute with each other's inputs", KL, one_memory_for_all,
          found_in="crowd", spared="grid broadcast layout determinism"),
    fault("the twentieth run of a call is another one", KL, twentieth_of_a_call,
          found_in="crowd", spared="grid broadcast layout determinism"),
    fault("answers are kept by shape", MATMUL, kept_by_shape,
          found_in="crowd", spared="invalid determinism"),
)  # fmt: skip
