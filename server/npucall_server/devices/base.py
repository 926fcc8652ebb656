"""What a device has to implement. Nothing outside ``devices`` knows which device it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.evaluate import Turn
    from npucall.operators.prepare import Prepared
    from npucall.products import Product
    from npucall.tensors import Buffer


class Device(Protocol):
    """Runs prepared calls, as many at a time as it has lanes."""

    @property
    def name(self) -> str:
        """``cpu`` or ``cann:0``."""

    @property
    def soc(self) -> str:
        """The SoC whose rules hold, for example ``Ascend910B1``."""

    @property
    def product(self) -> Product:
        """Its product."""

    @property
    def lanes(self) -> int:
        """How many turns there are at a time."""

    def plan(self, call: Prepared) -> int:
        """Bytes of workspace that the call needs."""

    def run(self, call: Prepared, storages: Mapping[str, Buffer], turn: Turn) -> list[Buffer]:
        """Computes the call; answers one storage for each output.

        Occupies the device only while it holds a turn: ``with turn(): ...``.
        """
