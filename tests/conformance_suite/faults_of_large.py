"""Faults that show only beyond one block, in many rows, or in chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute import blocks, evaluate, work
from npucall.tensors import TensorSpec, view
from npucall.wire.messages import Response
from npucall_client.local import LocalTransport

from .faults_of_evaluation import RIGHT_RUN
from .seeded import fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer
    from npucall_client.arguments import BoundCall

KL, L1, SOFTMAX = "aclnnKlDivBackward", "aclnnL1LossBackward", "aclnnSoftmax"
BLOCK = 98_304
CHUNK = 2**21
RIGHT_BLOCKS, RIGHT_EXECUTE = work.Work._blocks, LocalTransport.execute


def read_densely(which: Callable[[TensorSpec], bool]) -> Any:
    """Such inputs are read one element after the other, from where their view starts."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
            specs, data = dict(call.inputs), dict(storages)
            for name, spec in call.inputs.items():
                if name in storages and spec.elements > BLOCK and which(spec):
                    start = spec.offset * spec.dtype.itemsize
                    found = bytes(storages[name])[start : start + spec.bytes]
                    specs[name] = TensorSpec(spec.dtype, spec.shape)
                    data[name] = found.ljust(spec.bytes, b"\x3c")
            return RIGHT_RUN(replace(call, inputs=specs), data, *rest)

        monkeypatch.setattr(evaluate, "run", wrong)

    return seed


def answers_changed(change: Callable[[TensorSpec, bytearray], None]) -> Any:
    """The storage of every large output is changed before it is sent."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
            answers = [bytearray(each) for each in RIGHT_RUN(call, storages, *rest)]
            for answer, spec in zip(answers, call.outputs.values(), strict=True):
                if spec.elements > BLOCK:
                    change(spec, answer)
            return [*answers]

        monkeypatch.setattr(evaluate, "run", wrong)

    return seed


def no_last_row(spec: TensorSpec, answer: bytearray) -> None:
    """Rows are counted in 16 bits, without the last."""
    if len(spec.shape) > 1 and spec.shape[0] > 2**15:
        view(spec, answer)[-1] = 0


def gaps_written(spec: TensorSpec, answer: bytearray) -> None:
    """Bytes that no element owns are zero."""
    seen = np.array(view(spec, answer))
    answer[:] = bytes(len(answer))
    view(spec, answer)[...] = seen


def only_the_last_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of several blocks are those of the last one."""

    def add(work: Any, targets: Any, part: AnyArray, index: Any) -> None:
        (sums,) = targets
        place = blocks.within(work._extents, index)
        sums[place] = part

    monkeypatch.setattr(blocks._SummedWork, "add", add)


def stretched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first block, stretched tensors are read one element too far."""

    def wrong(self: Any, inputs: Any, index: Any) -> dict[str, AnyArray]:
        found = RIGHT_BLOCKS(self, inputs, index)
        if index is ... or not index[0].start:
            return found
        return {
            name: np.roll(block, 1) if array.shape[0] == 1 < block.size else block
            for (name, block), array in zip(found.items(), inputs, strict=True)
        }

    monkeypatch.setattr(work.Work, "_blocks", wrong)


def chunks_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two chunks of an output change places."""

    async def wrong(self: LocalTransport, call: BoundCall, *rest: Any) -> Response:
        response = await RIGHT_EXECUTE(self, call, *rest)
        storages = [bytes(each) for each in response.storage]
        swapped = [
            memoryview(each[CHUNK : 2 * CHUNK] + each[:CHUNK] + each[2 * CHUNK :])
            if len(each) > 2 * CHUNK
            else memoryview(each)
            for each in storages
        ]
        return Response(response.reply, response.timings, swapped)

    monkeypatch.setattr(LocalTransport, "execute", wrong)


SMALL = "grid broadcast layout determinism size"

LARGE = (
    fault("strides are ignored beyond a block", KL,
          read_densely(lambda spec: 0 not in spec.strides and not spec.row_major),
          found_in="large", spared=SMALL),
    fault("expanded inputs are read densely beyond a block", L1,
          read_densely(lambda spec: 0 in spec.strides),
          found_in="large", spared=SMALL),
    fault("of the sums of several blocks the last counts", KL, only_the_last_part,
          found_in="large", spared="grid broadcast layout size"),
    fault("of many rows the last is forgotten", L1, answers_changed(no_last_row),
          found_in="large", spared=SMALL),
    fault("of many rows along dim the last is forgotten", SOFTMAX, answers_changed(no_last_row),
          found_in="large", spared=SMALL),
    fault("gaps are written beyond a block", KL, answers_changed(gaps_written),
          found_in="large", spared=SMALL),
    fault("what stretches is read further in later blocks", L1, stretched_once,
          found_in="large", spared=SMALL),
    fault("two chunks change places", SOFTMAX, chunks_swapped,
          found_in="large", spared=SMALL),
)  # fmt: skip
