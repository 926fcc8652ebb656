"""Where elements lie: tails of vectors, strides, gaps, broadcasting, what is large."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from npucall.compute import rows
from npucall.compute.layouts import Layout
from npucall.declare import prepare
from npucall.tensors import row_major

from .planted import kind, outputs, run

planted = kind("tails, layouts, large tensors")
UNIT = 32
"""Bytes that a vector unit moves at a time."""


def flat(array: Any) -> Any:
    return array.reshape(-1) if array.flags.c_contiguous else None


def tail(lanes: int, least: int, wrong: Any) -> Any:
    """Elements behind the last whole vector of a dense output that has some are ``wrong``."""

    def change(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
        for array in found.values():
            elements = flat(array)
            if elements is not None and elements.size > least and elements.size % lanes:
                part = elements[elements.size // lanes * lanes :]
                part[...] = wrong(part)

    return outputs(change)


def from_element(first: int, wrong: Any) -> Any:
    """All from an element on is ``wrong(elements)``, of dense outputs."""

    def change(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
        for array in found.values():
            elements = flat(array)
            if elements is not None and elements.size > first:
                elements[first:] = wrong(elements)[: elements.size - first]

    return outputs(change)


def specs(wrong: Any, of: str = "inputs") -> Any:
    """Computes with other layouts of inputs or outputs: ``wrong(spec)``, or None to leave it."""

    def change(right: Any, call: Any, storages: Any) -> Any:
        if call.done:
            return right(call, storages)
        found = {name: wrong(spec) or spec for name, spec in getattr(call, of).items()}
        return right(replace(call, **{of: found}), storages)

    return run(change)


def moved(spec: Any, **fields: Any) -> Any:
    """The spec with other fields, if that is inside its storage."""
    try:
        return replace(spec, **{"storage_shape": spec.storage_shape, **fields, "name": "x"})
    except Exception:  # noqa: BLE001  # it is not
        return None


def aligned_offset(spec: Any) -> Any:
    lanes = UNIT // spec.dtype.itemsize
    return moved(spec, offset=spec.offset - spec.offset % lanes) if spec.offset % lanes else None


def dense_if(condition: Any) -> Any:
    def wrong(spec: Any) -> Any:
        return moved(spec, strides=row_major(spec.shape)) if condition(spec) else None

    return wrong


def is_strided(spec: Any) -> bool:
    return spec.strides != row_major(spec.shape)


def large(spec: Any, elements: int = 98_304) -> bool:
    return prod(spec.shape) > elements


def stride_of_8_bits(spec: Any) -> Any:
    """Strides of rows are counted in 8 bits of 32 bytes."""
    if len(spec.shape) < 2 or not is_strided(spec):
        return None
    unit = UNIT // spec.dtype.itemsize
    steps = list(spec.strides)
    if steps[0] <= 255 * unit:
        return None
    steps[0] = 255 * unit
    return moved(spec, strides=tuple(steps))


def last_two_exchanged(spec: Any) -> Any:
    if len(spec.shape) < 3 or not is_strided(spec) or spec.shape[-1] != spec.shape[-2]:
        return None
    return moved(spec, strides=(*spec.strides[:-2], spec.strides[-1], spec.strides[-2]))


def first_axis_of_five(spec: Any) -> Any:
    """Of five axes and more the first is taken for row-major."""
    if len(spec.shape) < 5 or not is_strided(spec):
        return None
    return moved(spec, strides=(row_major(spec.shape)[0], *spec.strides[1:]))


def gap_behind(right: Any, call: Any, storages: Any) -> Any:
    """Writing ends at a whole unit of 32 bytes: also behind an output's last element."""
    answers = right(call, storages)
    for (_, spec), storage in zip(call.outputs.items(), answers, strict=True):
        if spec.row_major or call.done:
            continue
        used = Layout.of_spec(spec)
        end = (
            used.offset
            + sum((n - 1) * s for n, s in zip(spec.shape, spec.byte_strides, strict=True))
            + spec.dtype.itemsize
        )
        rest = np.frombuffer(storage, np.uint8)[end : -(-end // UNIT) * UNIT]
        rest[...] = 0
    return answers


def gaps_of(wrong: Any) -> Any:
    """The gaps of outputs are ``wrong(bytes)``."""

    def change(right: Any, call: Any, storages: Any) -> Any:
        answers = right(call, storages)
        for (name, spec), storage in zip(call.outputs.items(), answers, strict=True):
            if spec.row_major or call.done:
                continue
            array = Layout.of_spec(spec).over(storage)
            kept, place = array.copy(), np.frombuffer(storage, np.uint8)
            place[...] = wrong(place, name in storages)
            array[...] = kept
        return answers

    return run(change)


def gapped_back(patch: Any) -> None:
    """An output with gaps comes back as it was described, though its storage was not sent."""

    def found(draft: Any, lists: Any, call: Any) -> Any:
        made = _RIGHT_OUTPUTS(draft, lists, call)
        return {name: draft.tensor(name) or spec for name, spec in made.items()}

    patch.setattr(prepare, "_outputs", found)


_RIGHT_OUTPUTS = prepare._outputs


def read_on(right: Any, call: Any, storages: Any) -> Any:
    """Large inputs with strides of 0 are read one element after the other, beyond their end too."""
    inputs, given = dict(call.inputs), dict(storages)
    for name, spec in call.inputs.items():
        if 0 in spec.strides and large(spec) and name in storages:
            inputs[name] = spec.dense()
            given[name] = np.resize(np.frombuffer(storages[name], np.uint8), spec.bytes).tobytes()
    return right(replace(call, inputs=inputs), given)


def repeated(limit: int) -> Any:
    """Of an input that is broadcast along the first axis so many rows are made."""

    def change(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
        for array in found.values():
            small = any(i.ndim < array.ndim or i.shape[:1] == (1,) for i in inputs.values())
            if array.ndim > 1 and array.shape[0] > limit and small:
                array[limit:] = 0

    return outputs(change)


def column_of_first(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    """A column that is broadcast is read once a block."""
    for array in found.values():
        columns = [
            i
            for i in inputs.values()
            if i.ndim == array.ndim > 1 and i.shape[-1] == 1 < array.shape[-1]
        ]
        if columns and array.size > 98_304:
            array[array.shape[0] // 2 :] = array[: array.shape[0] - array.shape[0] // 2]


def ranks(rank: int, wrong: Any) -> Any:
    def change(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
        for array in found.values():
            if array.ndim == rank and array.size:
                wrong(array)

    return outputs(change)


def doubled(array: Any) -> None:
    array[...] = array + array


def rotated(array: Any) -> None:
    array[...] = np.roll(array.copy(), 1, 0)


def pieces_without_last(patch: Any) -> None:
    """The maximum of a long row is not that of its last piece."""
    right = rows.LongRowsWork._of_rows

    def of_rows(self: Any, reduce: Any, parts: Any) -> Any:
        return right(self, reduce, parts[..., :-1] if reduce is np.sum else parts)

    patch.setattr(rows.LongRowsWork, "_of_rows", of_rows)


def many_rows(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    for array in found.values():
        if array.ndim > 1 and array.shape[0] > 4096 and array.dtype.kind == "f":
            array[4096] = 0


def first_of_stretched(call: Any, inputs: dict[str, Any], found: dict[str, Any]) -> None:
    """A sum along stretched axes of more than a block lacks what is beyond."""
    space = call.facts.shapes.get("common", ())
    for array in found.values():
        if prod(space) > 98_304 and array.size < prod(space):
            array[...] = array * array.dtype.type(98_304 / prod(space))


def is_float(array: Any) -> bool:
    return array.dtype.kind in "fV"


FAULTS = (
    planted("the last elements behind 8 are 0", "Add", tail(8, 8, lambda part: 0)),
    planted("the last elements behind 64 are 0", "Hardtanh", tail(64, 64, lambda part: 0)),
    planted(
        "the last elements behind 256 are doubled",
        "MseLossBackward",
        tail(256, 256, lambda part: part + part),
    ),
    planted("the last elements behind 4096 are 0", "Sub", tail(4096, 4096, lambda part: 0)),
    planted("the last elements behind 16384 are 0", "Cast", tail(16384, 16384, lambda part: 0)),
    planted(
        "a short vector is not computed",
        "Exp",
        outputs(lambda call, inputs, found: [a.fill(0) for a in found.values() if 0 < a.size < 8]),
    ),
    planted(
        "what is beyond 98304 elements is 0",
        "LeakyRelu",
        from_element(98_304, np.zeros_like),
    ),
    planted("indices have 16 bits", "Elu", from_element(1 << 16, lambda e: e[:].copy())),
    planted("indices have 20 bits", "Mul", from_element(1 << 20, lambda e: e[:].copy())),
    planted(
        "what is beyond a million is 0",
        "L1LossBackward",
        from_element(1_000_000, np.zeros_like),
    ),
    planted(
        "what is beyond 4 MiB is not written",
        "ThresholdBackward",
        from_element(1 << 20, np.zeros_like),
    ),
    planted("offsets are rounded down to 32 bytes", "Mul", specs(aligned_offset)),
    planted(
        "offsets of outputs are rounded down to 32 bytes", "Silu", specs(aligned_offset, "outputs")
    ),
    planted("five axes are taken for row-major first", "TanhBackward", specs(first_axis_of_five)),
    planted(
        "strides of large inputs do not count",
        "Add",
        specs(dense_if(lambda s: is_strided(s) and large(s))),
    ),
    planted(
        "strides of large outputs do not count",
        "Sigmoid",
        specs(dense_if(lambda s: is_strided(s) and large(s)), "outputs"),
    ),
    planted("expanded inputs are read on if large", "SmoothL1Loss", run(read_on)),
    planted("strides of rows have 8 bits", "Hardswish", specs(stride_of_8_bits)),
    planted(
        "the last two axes of square tensors are exchanged", "Mul Add", specs(last_two_exchanged)
    ),
    planted("what is behind an output is written up to 32 bytes", "Gelu", run(gap_behind)),
    planted("gaps become zeros", "SoftmaxBackward", gaps_of(lambda place, sent: 0)),
    planted("outputs that are not sent keep their gaps", "KlDivBackward", gapped_back),
    planted(
        "gaps of large outputs are written",
        "Log",
        gaps_of(lambda place, sent: 0 if place.size > 400_000 else place),
    ),
    planted(
        "gaps come back with another bit",
        "PreluBackward",
        gaps_of(lambda place, sent: place ^ 1 if sent else place),
    ),
    planted("255 rows are broadcast at the most", "Add", repeated(255)),
    planted("64 rows are broadcast at the most", "SoftMarginLossBackward", repeated(64)),
    planted("a broadcast column is read once a block", "SigmoidBackward", outputs(column_of_first)),
    planted("rank 0 is doubled", "Tanh", ranks(0, doubled)),
    planted("rank 1 is doubled", "Glu", ranks(1, doubled)),
    planted("rank 7 is rotated", "BinaryCrossEntropyBackward", ranks(7, rotated)),
    planted("rank 8 is rotated", "Silu", ranks(8, rotated)),
    planted("the last piece of a long row is not added", "Softmax", pieces_without_last),
    planted("row 4096 is not computed", "LogSoftmaxBackward", outputs(many_rows)),
    planted(
        "a sum along stretched axes ends with its block",
        "KlDivBackward",
        outputs(first_of_stretched),
    ),
    planted(
        "a large loss lacks what is beyond a million",
        "MseLoss",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a * a.dtype.type(0.97))
                for a in found.values()
                if a.size == 1 and max((i.size for i in inputs.values()), default=0) > 1_000_000
            ]
        ),
    ),
    planted(
        "a loss lacks what is beyond 98304",
        "BinaryCrossEntropy",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a * a.dtype.type(0.97))
                for a in found.values()
                if a.size == 1 and max((i.size for i in inputs.values()), default=0) > 98_304
            ]
        ),
    ),
    planted(
        "BF16 beyond a block is rounded to 6 digits",
        "Softplus",
        outputs(
            lambda call, inputs, found: [
                np.copyto(
                    flat(a)[98_304:], (flat(a)[98_304:].view(np.uint16) & 0xFFFE).view(a.dtype)
                )
                for a in found.values()
                if a.dtype.itemsize == 2
                and a.dtype.kind == "V"
                and flat(a) is not None
                and a.size > 98_304
            ]
        ),
    ),
    planted(
        "a large product lacks its last column",
        "Matmul",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a[..., -1], 0)
                for a in found.values()
                if a.ndim == 2 and a.shape[-1] > 256
            ]
        ),
    ),
    planted(
        "a long inner extent is cut at 1024",
        "Matmul",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, a * a.dtype.type(0.9))
                for a in found.values()
                if inputs["self"].shape[-1] > 1024
            ]
        ),
    ),
    planted(
        "long rows of classes are shifted",
        "NLLLossBackward",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, np.roll(a.copy(), 1, -1))
                for a in found.values()
                if a.ndim == 2 and a.shape[-1] > 2048
            ]
        ),
    ),
    planted(
        "many classes are not smoothed",
        "CrossEntropyLoss",
        outputs(
            lambda call, inputs, found: [
                np.copyto(found["loss_out"], found["loss_out"] * found["loss_out"].dtype.type(0.99))
                for _ in (0,)
                if inputs["input"].shape[-1] > 1000
            ]
        ),
    ),
    planted(
        "transposed rows of softmax are those of the last axis",
        "Softmax",
        outputs(
            lambda call, inputs, found: [
                np.copyto(a, np.roll(a.copy(), 1, 0))
                for a in found.values()
                if a.ndim == 2 and call.attributes["dim"] in (0, -2) and a.shape[0] > 512
            ]
        ),
    ),
)
