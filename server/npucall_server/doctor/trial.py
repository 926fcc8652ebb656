"""A small operator, planned and run on the device, and compared with the CPU reference."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from npucall.compute import evaluate
from npucall.declare.call import Call
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT
from npucall.errors import NpucallError
from npucall.products import product_of
from npucall.tensors import TensorSpec
from npucall_server.devices.cann.lane import Lane, LaneLimits
from npucall_server.devices.cann.planner import Planner
from npucall_server.doctor.failure import failed
from npucall_server.doctor.finding import Finding, Section, fault, ok, warning

if TYPE_CHECKING:
    from npucall.tensors import Buffer
    from npucall_server.devices.cann.host import HostCatalogue
    from npucall_server.devices.cann.operators import OpApi
    from npucall_server.devices.cann.runtime import DeviceContext

_CANDIDATES = ("aclnnKlDivBackward", "aclnnL1LossBackward", "aclnnMseLossBackward")
"""The first of these that the host has is tried."""
_INPUTS = ("grad_output", "self", "target")
_SHAPE = (2, 3)
_LIMITS = LaneLimits(30.0, 1 << 20, 1 << 30, 1, busy_wait=False)
_TOLERANCE = 1e-5
"""Of float32, relative to the largest number."""


def try_operator(
    context: DeviceContext, operators: OpApi, catalogue: HostCatalogue
) -> Generator[Section | Finding, None, bool]:
    """Its first phase, then two runs; answers whether the device can still be given back.

    Raises NpucallError where no stream can be made, or given back.
    """
    yield Section("trial", "creating a stream")
    call = _small_call(context.soc, catalogue)
    if call is None:
        yield warning(
            f"none of {', '.join(_CANDIDATES)} is here for this product: nothing was run",
            "run what is here: `npucall operators`, `npucall run`, `npucall conform`",
        )
        return True
    notes: list[str] = []
    lane = Lane(context, operators, _LIMITS, notes.append)
    try:
        yield from _plan_and_run(lane, Planner(context, operators), call)
    except NpucallError as error:
        yield failed(error)
    yield from (warning(note, "calls run, but take an unknown time") for note in notes)
    if lane.broken is not None:
        return False
    yield Section("trial", "destroying the stream")
    lane.close()
    return True


def _plan_and_run(lane: Lane, planner: Planner, call: Prepared) -> Iterator[Section | Finding]:
    name = call.operator.title
    yield Section("trial", f"phase one of {name}, which loads its kernel")
    yield ok(f"phase one of {name} wants {planner.plan(call)} bytes of workspace")
    for number in (1, 2):  # CANN answers the second first phase from its cache
        yield Section("trial", f"run {number} of {name}")
        yield _run(lane, call, number)


def _small_call(soc: str, catalogue: HostCatalogue) -> Prepared | None:
    for name in _CANDIDATES:
        try:
            operator = catalogue.find(name)
            specs = {tensor: TensorSpec(FLOAT, _SHAPE, name=tensor) for tensor in _INPUTS}
            return prepare(Call(operator, specs, _INPUTS), product_of(soc), catalogue)
        except NpucallError:  # not on this host, or not on this product
            continue
    return None


def _run(lane: Lane, call: Prepared, number: int) -> Finding:
    storages = _storages(number)
    ran = lane.run(call, storages, lambda: None)
    (found,) = (np.frombuffer(output, np.float32) for output in ran.outputs)  # type: ignore[arg-type]  # nothing is resident
    (expected,) = (np.frombuffer(o, np.float32) for o in evaluate.run(call, storages))
    said = f"run {number} of {call.operator.title} on the device"
    if not np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
        return fault(
            f"{said}: expected {expected}, found {found}",
            "wrong numbers: do not use this device. Run `npucall conform` for the extent of it, "
            "and report it with the versions above",
        )
    phases = ran.phases
    took = f", {phases.run_ns / 1000:.0f} µs on its clock" if phases and phases.run_ns else ""
    return ok(f"{said} gives the numbers of the CPU reference{took}")


def _storages(number: int) -> dict[str, Buffer]:
    """Other numbers for each run."""
    random = np.random.default_rng(number)
    return {name: random.random(_SHAPE, np.float32).tobytes() for name in _INPUTS}
