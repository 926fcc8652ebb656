"""Where one answer to a call differs from another: not a bit may, except in a NaN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.errors import NpucallError
from npucall.tensors import TensorSpec
from npucall.wire.replies import Reply
from npucall_conformance.cases.arrangements import gaps, view
from npucall_conformance.judging.check import described
from npucall_conformance.wire import AnswerOrError

_OF_THE_WAY = ("request_id", "step", "method")
"""Details of errors that name the path."""
_LONG = 200
"""Characters that fit two lines."""


def differences(expected: AnswerOrError, found: AnswerOrError) -> list[str]:
    """Where an answer, or an error, differs from another."""
    if isinstance(expected, NpucallError) and isinstance(found, NpucallError):
        return of_errors(expected, found)
    if isinstance(expected, NpucallError) or isinstance(found, NpucallError):
        return [f"expected {described(expected)}, found {described(found)}"]
    if (expected.reply, expected.storages) == (found.reply, found.storages):
        return []
    storages = (
        _of_storages(name, spec, expected.storages[name], found.storages[name])
        for name, spec in expected.outputs.items()
    )
    return of_replies(expected.reply, found.reply) or list(filter(None, storages))


def of_errors(expected: NpucallError, found: NpucallError) -> list[str]:
    """Where an error differs from another; its text and details if nothing else."""
    names = ("code", "reason", "aclnn_status", "parameters")
    first, second = (
        {
            "message": str(each),
            "details": {n: text for n, text in each.details.items() if n not in _OF_THE_WAY},
        }
        for each in (expected, found)
    )
    return _unequal(
        {name: getattr(expected, name) for name in names},
        {name: getattr(found, name) for name in names},
    ) or _unequal(first, second)


def of_replies(expected: Reply, found: Reply) -> list[str]:
    """Where a reply differs from another."""
    if expected.server.device == "local":  # each client is one
        server = replace(expected.server, instance=found.server.instance)
        expected = replace(expected, server=server)
    names = ("variant", "kernel_dtype", "stored", "warnings", "server")
    first, second = (
        {**{n: getattr(each, n) for n in names}, "outputs": list(each.outputs.items())}
        for each in (expected, found)
    )
    return _unequal(first, second)


def _unequal(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    return [
        f"expected {name} {wanted!s:.{_LONG}}, found {found[name]!s:.{_LONG}}"
        for name, wanted in expected.items()
        if wanted != found[name]
    ]


def _of_storages(name: str, spec: TensorSpec, expected: bytes, found: bytes) -> str:
    """The difference in words; empty if all bits are the same. Any NaN is the same as another."""
    if expected == found:
        return ""
    if len(expected) != len(found):
        return f"{name}: expected {len(expected)} bytes, found {len(found)}"
    if (gaps(spec, expected) != gaps(spec, found)).any():
        return f"{name}: expected the same bytes between the elements, found others"
    one, other = (np.array(view(spec, each)) for each in (expected, found))
    bits = [
        each.view(np.uint8).reshape(*spec.shape, -1)
        for each in (np.atleast_1d(one), np.atleast_1d(other))
    ]
    differs = (bits[0] != bits[1]).any(axis=-1) & ~((one != one) & (other != other))  # noqa: PLR0124  # NaN alone
    if not differs.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(differs)[0])
    return (
        f"{name}: expected the same bits, found {np.count_nonzero(differs)} of {spec.elements} "
        f"elements with others, first {list(first)}: {one[first]} and {other[first]}"
    )
