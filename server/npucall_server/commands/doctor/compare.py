"""Compares the results of a device with those of the CPU reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute import evaluate
from npucall.memory import PATTERN
from npucall_server.devices.unwritten import begun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.dtypes import AnyArray, DType
    from npucall.tensors import Buffer

_ROUNDINGS, _OTHERS = 4, 1e-5
"""Allowed difference, relative to the largest number: so many roundings of a short float; of others
this. The conformance suite judges the precision; this only finds what is completely wrong."""
_SHOWN = 4


def difference(
    call: Prepared, storages: Mapping[str, Buffer], given: Sequence[Buffer], roundings: int = 1
) -> str:
    """What is wrong with the outputs, in words; empty if they agree with the reference.

    ``roundings``: how many calls led to the outputs, each on the result of the one before.
    """
    expected = evaluate.run(call, storages)
    for (name, spec), found, right in zip(call.outputs.items(), given, expected, strict=True):
        one, other = (np.frombuffer(each, spec.dtype.numpy) for each in (found, right))
        wrong = np.flatnonzero(~_near(one, other, spec.dtype, roundings))
        if wrong.size:
            first = wrong[:_SHOWN]
            return (
                f"{name}: {wrong.size} of {one.size} numbers are wrong: expected "
                f"{_listed(other[first])}, found {_listed(one[first])}"
            )
    return ""


def is_untouched(call: Prepared, storages: Mapping[str, Buffer], given: Sequence[Buffer]) -> bool:
    """Whether no output changed in the launch: it still has sent bytes, zeros, or the pattern."""
    before = begun(call, storages)
    return all(
        bytes(found) == bytes(before.get(name, bytes([_left(call, name)]) * len(found)))
        for name, found in zip(call.outputs, given, strict=True)
    )


def _left(call: Prepared, name: str) -> int:
    """The byte that fills an output before a launch if no storage is sent for the output."""
    return 0 if name in call.unwritten else PATTERN


def _near(found: AnyArray, expected: AnyArray, dtype: DType, roundings: int) -> Any:
    if dtype.kind not in ("float", "complex"):
        return found == expected
    wide = np.complex128 if dtype.kind == "complex" else np.float64
    one, other = found.astype(wide), expected.astype(wide)
    finite = other[np.isfinite(other)]
    size = float(np.abs(finite).max(initial=0.0))
    tolerance = roundings * (_ROUNDINGS * 2.0**-dtype.fraction if dtype.is_short else _OTHERS)
    with np.errstate(invalid="ignore"):
        return np.isclose(one, other, rtol=0, atol=tolerance * size, equal_nan=True)


def _listed(numbers: AnyArray) -> str:
    return ", ".join(str(n) if isinstance(n, int) else f"{n:.6g}" for n in numbers.tolist())
