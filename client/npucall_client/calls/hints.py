"""Turns a server's texts into Python's: hints in errors, and warnings."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING

from npucall.declare.call import tensors_of
from npucall.dtypes import DOUBLE, FLOAT
from npucall.errors import DTypeError, NpucallError
from npucall.operators import CATALOGUE
from npucall.products import product_of
from npucall.wire.calls import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npucall_client.calls.arguments import BoundCall

_PACKAGE = __name__.partition(".")[0]
_OF_NUMPY = "NumPy makes float64 unless it is told otherwise; give ", ".astype(numpy.float32)"
_OF_TORCH = "give ", ".float()"


class CallWarning(UserWarning):
    """A valid call of which its caller should know something; ``Result.warnings`` has the same."""


def warn(messages: Iterable[str]) -> None:
    """Warns at the line that made the call: the nearest one that is not of this package."""
    for message in messages:
        warnings.warn(message, CallWarning, stacklevel=1 + _depth())


def _depth() -> int:
    """How many functions of this package lie between its caller and the user's."""
    depth, frame = 0, sys._getframe(1)  # noqa: SLF001  # what there is for this
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        depth, frame = depth + 1, frame.f_back
    return depth


def add_hint(error: Exception, call: BoundCall) -> None:
    """Adds to the error of a call what its caller can do in Python, if that is known."""
    if not isinstance(error, DTypeError):
        return
    with suppress(NpucallError):  # nothing more is known than the error says
        if names := _float64(error, call):
            advice, conversion = _OF_TORCH if call.from_torch else _OF_NUMPY
            hint = advice + " and ".join(name + conversion for name in names)
            if not str(error).endswith(hint):
                error.args = (f"{error}; {hint}",)


def _float64(error: DTypeError, call: BoundCall) -> list[str]:
    """The float64 arguments that are to blame, if the operator takes float32 but not float64."""
    asked = decode(call.call, CATALOGUE, error.details.get("variant", ""))
    operator = asked.operator
    taken = operator.dtypes_on(product_of(error.details.get("soc", "")))
    if FLOAT not in taken or DOUBLE in taken:
        return []
    given = {
        place: spec.dtype
        for parameter in operator.inputs
        if operator.sample.dtypes.get(parameter.name, FLOAT) is FLOAT  # labels have others
        for place, spec in tensors_of(parameter.name, asked.arguments.get(parameter.name))
    }
    return [name for name in error.parameters if given.get(name) is DOUBLE]
