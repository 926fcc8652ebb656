"""Where a function's operators run, by a number: graphs of torch hold numbers, and no clients."""

from __future__ import annotations

import itertools
import threading
import warnings
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from npucall.products import PRODUCTS, Product, product_of
from npucall_client.torch.plans import Planned
from npucall_client.torch.runs import InFloat64, InSession, OnClient, SessionRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from npucall_client.calls.options import Result
    from npucall_client.client import Client
    from npucall_client.sessions.session import Session
    from npucall_client.torch.declarations import Run

_MOST_ON_THE_WIRE = 0.9
_numbers = itertools.count(1)
_places: weakref.WeakValueDictionary[int, Place] = weakref.WeakValueDictionary()
_warned: weakref.WeakSet[Client] = weakref.WeakSet()
_lock = threading.Lock()
_held: dict[int, KeptArguments] = {}
"""What sessions hold for a backward, by the address of its ticket."""


class WireWarning(UserWarning):
    """A backward spends nearly all of its time on the wire."""


class KeptArguments:
    """What a session holds for a backward."""

    def __init__(self, arguments: dict[tuple[Any, ...], Any], saved: Sequence[Any]) -> None:
        self.arguments = arguments
        self.saved = saved


class Place:
    """A client, and a session of it."""

    def __init__(self, client: Client, session: Session | None) -> None:
        self.number = next(_numbers)
        self.session = session
        self.checked: set[tuple[Any, ...]] = set()
        """Calls whose backward would pass its checks."""
        self.client = client
        _places[self.number] = self

    def forward(self, arguments: Sequence[Any], *, keep: bool, results: bool) -> Run:
        """Where a forward runs. ``keep``: its arguments stay in the session; so do ``results``."""
        if self._is_exact(arguments):
            return self._exact
        if keep and self.session is not None:
            return SessionRun(self.client, arguments, self.session, results=results)
        return OnClient(self.client)

    def backward(self, arguments: Sequence[Any], held: KeptArguments | None) -> Run:
        """Where a backward runs."""
        if self._is_exact(arguments):
            return self._exact
        if held is None or self.session is None:
            return OnClient(self.client, self._note)
        return InSession(self.client, arguments, self.session, held.arguments, self._note)

    @cached_property
    def planned(self) -> Planned:
        """Runs that compute nothing, by the rules of the server's product."""
        return Planned(self._product, self._info.default_variant)

    @cached_property
    def is_local(self) -> bool:
        """Whether it computes in this process."""
        return bool(self._info.server.device == "local")

    def holds(self, arguments: Sequence[Any], *, keep: bool, by_torch: bool) -> bool:
        """Whether a forward leaves something in the session."""
        return keep and not by_torch and self.session is not None and not self._is_exact(arguments)

    def _is_exact(self, arguments: Sequence[Any]) -> bool:
        tensors = (each for each in arguments if isinstance(each, torch.Tensor))
        if not any(each.dtype is torch.float64 for each in tensors):
            return False
        if not self.is_local:
            raise TypeError(
                "input: expected float32, float16 or bfloat16, found float64; no operator takes "
                'it, but connect("local:") computes it for tests'
            )
        return True

    @cached_property
    def _exact(self) -> InFloat64:
        return InFloat64(self._info.default_variant)

    @cached_property
    def _info(self) -> Any:
        return self.client.server_info()

    @cached_property
    def _product(self) -> Product:
        # By the short name: "Ascend910B" as a name of a SoC is another product.
        named = (product for product in PRODUCTS if product.soc == self._info.product)
        return next(named, None) or product_of(self._info.server.soc)

    def _note(self, result: Result) -> None:
        """Warns, once for each client, of a backward that spends its time on the wire."""
        wire = result.total_ns - sum(result.timings)
        if self.is_local or wire <= _MOST_ON_THE_WIRE * result.total_ns:
            return
        with _lock:
            if self.client in _warned:
                return
            _warned.add(self.client)
        warnings.warn(
            f"this backward spent {wire / result.total_ns:.0%} of its {result.total_ns / 1e6:.1f} "
            "ms on sending and receiving; sessions avoid most of that (docs/torch.md)",
            WireWarning,
            stacklevel=2,
        )


def place_of(number: int) -> Place:
    """The place of this number. Raises LookupError if it is gone."""
    place = _places.get(number)
    if place is None:
        raise LookupError(
            f"the functional(...) with number {number} is gone; keep it as long as its outputs "
            "need a backward"
        )
    return place


def ticket(held: KeptArguments | None) -> Tensor:
    """A tensor that represents what a session holds; the session holds it while the tensor lives.

    All tickets have equal values; the address tells them apart. A copy of a ticket has no meaning.
    """
    memory = np.zeros(1, np.uint8)
    made = torch.from_numpy(memory)
    if held is not None:
        _held[made.data_ptr()] = held
        weakref.finalize(memory, _held.pop, made.data_ptr(), None).atexit = False
    return made


def held_for(given: Tensor) -> KeptArguments | None:
    """What is held for a ticket."""
    return _held.get(given.data_ptr())
