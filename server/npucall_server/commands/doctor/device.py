"""Examines the device, from its libraries to an operator that runs, step by step as the server.

It runs in a process of its own, since a badly installed library may crash or never return.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from npucall.errors import ArgumentError, NpucallError
from npucall.operators import CATALOGUE
from npucall.products import taken_for
from npucall_server.commands.doctor.failure import failed
from npucall_server.commands.doctor.finding import (
    Facts,
    Finding,
    Message,
    Section,
    Verdict,
    fault,
    ok,
    warning,
)
from npucall_server.commands.doctor.libraries import check_libraries, check_opening
from npucall_server.commands.doctor.trial import try_device
from npucall_server.commands.doctor.versions import check_versions
from npucall_server.devices.cann.host import COMMUNITY, HostCatalogue
from npucall_server.devices.cann.library import LibraryError
from npucall_server.devices.cann.operators import OpApi
from npucall_server.devices.cann.runtime import DeviceContext, device_count, open_libraries

if TYPE_CHECKING:
    from npucall_server.devices.base import DeviceFacts
    from npucall_server.settings.npu import AscendPaths

_GIB = 1 << 30
_LITTLE = 2 * _GIB
"""Fewer free bytes than this give a warning: two lanes keep as much."""


def examine(number: int, paths: AscendPaths) -> Iterator[Message]:
    """Examines device ``number``. Stops if the next step needs something that failed."""
    yield Section("libraries", "loading CANN's libraries")
    try:
        libraries = open_libraries(paths)
    except LibraryError as error:
        yield check_opening(str(error))
        return
    yield from check_libraries(libraries, paths)
    try:
        yield Section("device", "counting the devices (aclrtGetDeviceCount)")
        counted = check_count(device_count(libraries), number)
        yield counted
        if counted.verdict is Verdict.FAULT:
            return
        yield Section("device", f"opening device {number} (aclInit, aclrtSetDevice)")
        context = DeviceContext(libraries, number, deterministic=False)
        yield from _examine_open(context, paths)
    except NpucallError as error:
        yield failed(error)


def _examine_open(context: DeviceContext, paths: AscendPaths) -> Iterator[Message]:
    yield Section("device", "asking the device for its state")
    facts = context.facts()
    yield _told(context.soc, facts)
    yield ok(f"{context.soc}, device {context.number}, is open")
    yield check_health(facts)
    yield check_product(context.soc)
    yield check_memory(facts)
    yield Section("versions", "")
    yield from check_versions(facts)
    yield Section("operators", "looking for operators in the libraries")
    operators = context.libraries.operators(paths)
    catalogue = HostCatalogue(operators, paths)
    yield from check_operators(catalogue, operators)
    well = yield from _try(context, operators, catalogue)
    if well:
        yield Section("device", "giving the device back (aclrtResetDevice, aclFinalize)")
        context.close()
        yield ok("the device was given back", "main-thread")


def _told(soc: str, facts: DeviceFacts) -> Facts:
    free, total = (f"{n / _GIB:.1f}" for n in (facts.memory_free_bytes, facts.memory_total_bytes))
    told = {
        "SoC": soc,
        "device memory": f"{free} of {total} GiB free",
        "CANN": facts.cann_version,
        "runtime": facts.runtime_version,
        "driver": facts.driver_version,
    }
    return Facts(tuple((name, value or "does not tell") for name, value in told.items()))


def _try(
    context: DeviceContext, operators: OpApi, catalogue: HostCatalogue
) -> Generator[Message, None, bool]:
    try:
        product = taken_for(context.soc).product
    except ArgumentError:  # already reported as a fault
        return True
    return (yield from try_device(context, operators, catalogue, product))


def check_count(count: int, number: int) -> Finding:
    """Whether there is a device with this number."""
    if number < count:
        return ok(f"this process sees {count} device{'s' * (count != 1)}")
    return fault(
        f"there is no cann:{number}: this process sees {count} device{'s' * (count != 1)}, "
        "numbered from 0",
        "use a smaller number; give the container more devices (--device); look at "
        "ASCEND_RT_VISIBLE_DEVICES above, and at `npu-smi info` on the host",
    )


def check_health(facts: DeviceFacts) -> Finding:
    """What the device says about its state."""
    if facts.healthy is None:
        return warning(
            "the device does not report its state", "check `npu-smi info -t health -i <card>`"
        )
    if facts.healthy:
        return ok("the device reports that it is healthy")
    return fault(
        "the device reports that it is not healthy",
        "check `npu-smi info -t health -i <card>` and `dmesg` on the host; reset the device, or "
        "take it out of service",
    )


def check_product(soc: str) -> Finding:
    """Whether npucall has rules for the SoC."""
    try:
        taken = taken_for(soc)
    except ArgumentError as error:
        return fault(str(error), "a newer npucall may know it; else report the name")
    if taken.guess:
        return warning(taken.guess, "a newer npucall may know it")
    return ok(f"{soc} is {taken.product.name}")


def check_memory(facts: DeviceFacts) -> Finding:
    """How much memory is left for calls."""
    if not facts.memory_total_bytes:
        return warning(
            "the device does not report its memory", "calls that are too large fail with 207001"
        )
    free, total = (n / _GIB for n in (facts.memory_free_bytes, facts.memory_total_bytes))
    said = f"{free:.1f} of {total:.1f} GiB of device memory are free"
    if facts.memory_free_bytes >= min(_LITTLE, facts.memory_total_bytes // 2):
        return ok(said)
    return warning(
        said,
        "another process has the rest: `npu-smi info` lists processes. Give the device to one "
        "server process only, or lower kept_device_memory and lanes",
    )


def check_operators(catalogue: HostCatalogue, operators: OpApi) -> Iterator[Finding]:
    """Which of the declared operators this host has, and which libraries were skipped."""
    names = {operator.name for operator in CATALOGUE}
    there = {name for name in names if operators.find(name) is not None}
    missing = ", ".join(sorted(names - there))
    if there:
        said = f"{len(there)} of {len(names)} declared operators are in the libraries"
        yield ok(f"{said}; not there: {missing}" if missing else said)
    else:
        yield fault(
            "the libraries have none of the declared operators (libopapi.so, libopapi_*.so)",
            "install the operator package of the toolkit's version; ASCEND_HOME_PATH/lib64 has its "
            "libraries, and LD_LIBRARY_PATH must contain it",
        )
    others = sum(1 for operator in catalogue if operator.name not in names)
    yield ok(f"the server serves {others} more operators by their headers")
    if catalogue.variant:
        order = ("library-order",) if catalogue.variant == COMMUNITY else ()
        yield ok(f"operators with several variants have the variant {catalogue.variant}", *order)
    yield from (warning(note, _OWNER) for note in operators.notes)


_OWNER = (
    "CANN and npucall load a custom library only if its owner is the user that runs them, or root: "
    "`chown` the file, or run as its owner. If a library cannot be opened, install the one "
    "that the message names"
)
