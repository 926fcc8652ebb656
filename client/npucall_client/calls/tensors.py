"""Tensors whose bytes a server holds, or will hold, and what a call needs to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from npucall.errors import NpucallError
from npucall.places import HandlePart, StepOutput
from npucall.tensors import Buffer, Shape

Tensor: TypeAlias = "tuple[np.dtype[Any], Shape, Shape | None, Shape | None]"
"""Dtype, shape, strides and shape of the storage, as ``arrays.Sent`` begins."""


class Home(Protocol):
    """The session that holds the bytes."""

    @property
    def id(self) -> str:
        """The id by which its server knows it; it changes when the session is opened again."""

    async def ready(self, timeout: float, held: Sequence[HeldTensor] = ()) -> int:
        """Checks that it is open; opens it again if it was lost. Returns how often it was opened.

        Raises the error that ended it.
        """

    async def mend(self, error: NpucallError, opened: int, timeout: float) -> bool:
        """Whether a call that failed with this error may be sent again once it is ready."""


class HeldTensor:
    """A tensor that a session holds."""

    __slots__ = ()

    home: Home
    tensor: Tensor
    from_torch: bool
    """Whether it, or what it was computed from, came as a tensor of torch."""

    def place(self, within: object) -> Buffer | HandlePart | StepOutput:
        """Where its bytes are for a call; ``within``: the program that the call is a step of.

        Raises HandleEmptyError, HandleReleasedError and HandleLostError.
        """
        raise NotImplementedError


class Empty(NamedTuple):
    """An output of this shape and dtype, in new memory.

    Use it in ``outputs`` for operators that only a C header declares, and to choose an output's
    dtype. In ``plan`` it may replace any tensor.
    """

    shape: Shape
    dtype: Any
    """Any value that ``numpy.dtype`` takes."""
