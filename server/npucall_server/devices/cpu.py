"""The CPU reference: runs the operators' formulas, in the calling thread and in idle threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from npucall.compute import evaluate
from npucall.compute import pieces as in_pieces
from npucall.compute.helpers import Helpers
from npucall.compute.steps import HostStep
from npucall.compute.steps import run as run_steps
from npucall.declare.declaration import Operator
from npucall.declare.prepare import Prepared
from npucall.dtypes import DType
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.products import product_of
from npucall.programs import Program, most_held
from npucall_server.devices.base import (
    DeviceTurn,
    NoDeviceError,
    Outputs,
    Pieces,
    ResidentPart,
    Step,
)
from npucall_server.devices.host_memory import HostResident, as_asked, in_host_memory, memory_of
from npucall_server.settings.server import ServerSettings


def open_cpu(settings: ServerSettings, note: Callable[[str], None]) -> CpuDevice:
    """The device ``cpu``, with the variant that was asked for. Raises NoDeviceError."""
    del note
    product = product_of(settings.soc)
    has = CATALOGUE.variants(product)
    if settings.variant and settings.variant not in has:
        raise NoDeviceError(
            f"variant: expected {' or '.join(has) or 'none'}, as {product} has, found "
            f"{settings.variant}; the setting soc chooses the product"
        )
    return CpuDevice(settings.soc, settings.variant or DEFAULT_VARIANT)


class CpuDevice:
    """Follows the rules of the SoC ``soc``.

    A turn is a few blocks, so that small calls do not wait for a large one. ``lanes`` is how many
    blocks are computed at a time; the default is the number of cores that the process may use.
    ``default_variant`` is used if the product has it.
    """

    name = "cpu"
    catalogue = CATALOGUE
    runs_in_calling_thread = True

    def __init__(self, soc: str, default_variant: str, lanes: int | None = None) -> None:
        self.soc = soc
        self.product = product_of(soc)
        self.default_variant = CATALOGUE.default_variant(self.product, default_variant)
        self.lanes = lanes or _cores()
        self._helpers = Helpers(self.lanes - 1)

    def unavailable_because(self, operator: Operator[..., object]) -> str:
        """It runs every declared operator. The rules refuse those that the product lacks."""
        del operator
        return ""

    def plan(self, call: Prepared, turn: DeviceTurn) -> int:
        """No workspace."""
        del call, turn
        return 0

    def run(
        self, steps: Sequence[Step], turn: DeviceTurn, pieces: Pieces | None = None
    ) -> tuple[Outputs, None]:
        """Computes a few blocks a turn, in this thread and, while turns are free, in others.

        Several small steps that follow each other are computed in one turn. Results have the same
        bits, however they are computed.
        """
        call, storages, targets, discarded = steps[0]
        if pieces is not None:
            found = in_pieces.run(call, pieces, turn, self._helpers, pieces.computed)
            return [[*found]], None
        if len(steps) > 1:
            return self._run_program(steps, turn), None
        if not (targets or discarded or ResidentPart in map(type, storages.values())):
            given: Any = storages
            plain: list[Any] = evaluate.run(call, given, turn, helpers=self._helpers)
            return [plain], None
        given, memory = in_host_memory(storages), memory_of(targets)
        outputs = evaluate.run(call, given, turn, memory, self._helpers)
        return [as_asked(call, outputs, targets, discarded)], None

    def _run_program(self, steps: Sequence[Step], turn: DeviceTurn) -> Outputs:
        here = [
            HostStep(call, in_host_memory(storages), memory_of(targets), discarded)
            for call, storages, targets, discarded in steps
        ]
        answers = run_steps(here, turn, self._helpers)
        pairs = zip(steps, answers, strict=True)
        return [as_asked(step.call, found, step.targets) for step, found in pairs]

    def program_bytes(self, steps: Sequence[Step]) -> int:
        """The most bytes that the outputs take at a time."""
        made = [{n: spec.storage_bytes for n, spec in s.call.outputs.items()} for s in steps]
        pairs = zip(steps, made, strict=True)
        placed = sum(own.pop(name) for step, own in pairs for name in step.targets)
        passing = [step.discarded for step in steps]
        return placed + most_held([step.storages for step in steps], made, passing)

    def allocate(self, nbytes: int, dtype: DType | None = None) -> HostResident:
        """Host memory. It needs no dtype: the formulas check values. Raises OutOfMemoryError."""
        del dtype
        return HostResident(nbytes)

    @property
    def memory_for_handles(self) -> int:
        """0: handles are in host memory."""
        return 0

    def working_bytes(self, call: Prepared | Program) -> int:
        """The memory of the evaluation. Blocks do not count: each lane has one at a time."""
        return call.working_bytes

    def takes_pieces(self, call: Prepared) -> bool:
        """Elementwise calls on dense tensors."""
        return in_pieces.takes_pieces(call)

    def facts(self) -> None:
        """None: it is not hardware."""

    def watch(self, lost: Callable[[NpucallError], None]) -> None:
        """It cannot be lost."""
        del lost

    def close(self) -> None:
        """Ends the threads."""
        self._helpers.close()


def _cores() -> int:
    """The cores that the process may use, on Linux; 2 elsewhere, where that is not known."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
