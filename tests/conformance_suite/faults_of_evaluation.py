"""Faults in the code that evaluates every operator: strides, gaps, sums, blocks, rounding."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute import blocks, evaluate, work
from npucall.compute.rows import LongRowsWork
from npucall.declare.cuts import cut
from npucall.dtypes import BF16, FLOAT
from npucall.tensors import TensorSpec, view

from .seeded import fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import AnyArray
    from npucall.tensors import Buffer, Shape

KL, L1 = "aclnnKlDivBackward", "aclnnL1LossBackward"
BUILTIN = "aclnnKlDivTargetBackward.builtin"
RIGHT_RUN, RIGHT_CUT = evaluate.run, cut
RIGHT_OF_ROWS = LongRowsWork._of_rows


def input_strides_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are read one element after the other, from where their view starts."""

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        read = {name: spec for name, spec in call.inputs.items() if name in storages}
        dense = {
            name: bytes(storages[name])[spec.offset * spec.dtype.itemsize :].ljust(
                spec.bytes, b"\xa5"
            )[: spec.bytes]
            for name, spec in read.items()
        }
        specs = {name: TensorSpec(spec.dtype, spec.shape) for name, spec in call.inputs.items()}
        return RIGHT_RUN(replace(call, inputs=specs), {**storages, **dense}, *rest)

    monkeypatch.setattr(evaluate, "run", wrong)


def input_offset_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are read from where their storage starts."""

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        moved = {
            name: b"\xa5" * (spec.offset * spec.dtype.itemsize) + bytes(storages[name])
            for name, spec in call.inputs.items()
            if name in storages
        }
        short = {name: data[: len(storages[name])] for name, data in moved.items()}
        return RIGHT_RUN(call, {**storages, **short}, *rest)

    monkeypatch.setattr(evaluate, "run", wrong)


def output_gaps_zeroed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output's storage is new, instead of a copy of the storage that was sent."""

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        inputs = {name: storages[name] for name in call.inputs if name in storages}
        return RIGHT_RUN(call, inputs, *rest)

    monkeypatch.setattr(evaluate, "run", wrong)


def output_written_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are written one element after the other."""

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        answers: list[Buffer] = []
        for answer, spec in zip(
            RIGHT_RUN(call, storages, *rest), call.outputs.values(), strict=True
        ):
            data = np.ascontiguousarray(view(spec, answer)).tobytes()
            answers.append(data + bytes(answer)[len(data) :])
        return answers

    monkeypatch.setattr(evaluate, "run", wrong)


def empty_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the checks end a call, its outputs are not filled."""

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        answers = RIGHT_RUN(call, storages, *rest)
        return [bytearray(b"\x5a" * len(a)) for a in answers] if call.done else answers

    monkeypatch.setattr(evaluate, "run", wrong)


def last_bits_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bit of a FLOAT changes in every second call, within any tolerance."""
    calls = count()

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        answers = RIGHT_RUN(call, storages, *rest)
        (spec,) = call.outputs.values()
        first = bytearray(answers[0])
        if next(calls) % 2 and spec.elements and spec.dtype is FLOAT:
            first[0] ^= 1
        return [first, *answers[1:]]

    monkeypatch.setattr(evaluate, "run", wrong)


def last_block_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are several blocks, the last is not computed."""

    def wrong(shape: Shape, limit: int) -> Iterator[tuple[slice, ...]]:
        pieces = list(RIGHT_CUT(shape, limit))
        yield from pieces[:-1] or pieces

    monkeypatch.setattr(work, "cut", wrong)


def sum_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Along axes that were stretched the first element is taken instead of the sum."""

    def compute(work: Any, inputs: Any, targets: Any, facts: Any, index: Any) -> Any:
        (result,) = work._results(facts, work._blocks(inputs, index))
        stretched = np.broadcast_to(result, np.empty(work.space)[index].shape)
        first = (slice(1) if axis in work._axes else slice(None) for axis in range(stretched.ndim))
        return stretched[tuple(first)]

    monkeypatch.setattr(blocks._SummedWork, "_compute", compute)


def through_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """BF16 results are first rounded to FLOAT16, which has more digits and less range."""

    def wrong(call: Prepared, storages: Mapping[str, Buffer], *rest: Any) -> list[Buffer]:
        answers = RIGHT_RUN(call, storages, *rest)
        for answer, spec in zip(answers, call.outputs.values(), strict=True):
            if spec.dtype is BF16 and spec.elements:
                seen = view(spec, answer)
                with np.errstate(all="ignore"):
                    seen[...] = seen.astype(np.float16).astype(BF16.numpy)
        return answers

    monkeypatch.setattr(evaluate, "run", wrong)


def pieces_of_rows_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a long row is the largest sum of a piece, not the sum of all."""

    def wrong(self: LongRowsWork, _: object, parts: AnyArray) -> AnyArray:
        return RIGHT_OF_ROWS(self, np.max, parts)

    monkeypatch.setattr(LongRowsWork, "_of_rows", wrong)


EVALUATION = (
    fault("strides of an input are ignored", KL, input_strides_ignored,
          found_in="layout", spared="grid broadcast edge"),
    fault("the offset of an input is ignored", KL, input_offset_ignored,
          found_in="layout", spared="grid broadcast edge"),
    fault("gaps of an output are written", L1, output_gaps_zeroed,
          found_in="layout", spared="grid broadcast edge"),
    fault("strides of an output are ignored", L1, output_written_dense,
          found_in="layout", spared="grid broadcast edge"),
    fault("what is empty is not zeroed", BUILTIN, empty_left_alone,
          found_in="empty", spared="grid broadcast"),
    fault("every second answer differs in its last bit", KL, last_bits_that_change,
          found_in="determinism", spared="grid broadcast"),
    fault("the last block is forgotten", L1, last_block_forgotten,
          found_in="large", spared="grid broadcast layout size"),
    fault("the sum over stretched axes is forgotten", KL, sum_forgotten,
          found_in="broadcast", spared="grid layout edge"),
    fault("BF16 passes through FLOAT16", KL, through_float16,
          found_in="edge", spared="invalid"),
    fault("the sum of a long row is that of one piece", "aclnnSoftmax", pieces_of_rows_apart,
          found_in="large determinism", spared="grid layout edge size"),
)  # fmt: skip
