"""Examines the device, from its libraries to an operator that runs, step by step as the server.

It runs in a process of its own, since a badly installed library may crash or never return.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from npucall.errors import ArgumentError, NpucallError
from npucall.operators import CATALOGUE
from npucall.products import taken_for
from npucall.texts import size
from npucall_server.commands.doctor.finding import (
    Finding,
    Message,
    Section,
    failed,
    fault,
    ok,
    warning,
)  # fmt: skip
from npucall_server.commands.doctor.trial import try_device
from npucall_server.devices.base import DeviceFacts
from npucall_server.devices.cann.host import COMMUNITY, HostCatalogue
from npucall_server.devices.cann.library import LibraryError, NewStatusFunction
from npucall_server.devices.cann.operators import OpApi
from npucall_server.devices.cann.runtime import (
    BASE,
    RUNTIME,
    DeviceContext,
    Libraries,
    device_count,
    open_libraries,
)  # fmt: skip
from npucall_server.settings.npu import AscendPaths

_LITTLE = 2 << 30
"""Fewer free bytes than this give a warning: two lanes keep as much."""
_OURS = re.compile(r"(?:^|\s)(/\S*/lib(?:ascendcl|acl_rt|nnopbase)\.so\S*)$", re.MULTILINE)
_LACKING = re.compile(r": (lib(?:ascend_hal|drv|mmpa|dcmi)\S*): cannot open shared object file")
_OLDEST_RUNTIME = (1, 13)
"""The interface of CANN 8.1."""
_OLDEST_DRIVER = (((8, 5), (25, 0)), ((8, 2), (24, 1)))
"""Pairs, newest first: from this CANN on, this is the oldest driver in the vendor's tables."""
_INSTALL = "install CANN 8.1 or newer"
_OWNER = (
    "CANN and npucall load a custom library only if its owner is the user that runs them, or root: "
    "`chown` the file, or run as its owner. If a library cannot be opened, install the one "
    "that the message names"
)


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
        count = device_count(libraries)
        seen = f"this process sees {count} device{'s' * (count != 1)}"
        if number >= count:
            yield fault(
                f"there is no cann:{number}: {seen}, numbered from 0",
                "use a smaller number; give the container more devices (--device); look at "
                "ASCEND_RT_VISIBLE_DEVICES above, and at `npu-smi info` on the host",
            )
            return
        yield ok(seen)
        yield Section("device", f"opening device {number} (aclInit, aclrtSetDevice)")
        context = DeviceContext(libraries, number, deterministic=False)
        yield from _examine_open(context, paths)
    except NpucallError as error:
        yield failed(error)


def _examine_open(context: DeviceContext, paths: AscendPaths) -> Iterator[Message]:
    yield Section("device", "asking the device for its state")
    facts = context.facts()
    yield ok(f"{context.soc}, device {context.number}, is open")
    yield from check_state(context.soc, facts)
    yield Section("versions")
    yield from check_versions(facts)
    yield Section("operators", "looking for operators in the libraries")
    operators = context.libraries.operators(paths)
    catalogue = HostCatalogue(operators, paths)
    yield from _check_operators(catalogue, operators)
    try:
        product = taken_for(context.soc).product
    except ArgumentError:  # already reported as a fault
        well = True
    else:
        well = yield from try_device(context, operators, catalogue, product)
    if well:
        yield Section("device", "giving the device back (aclrtResetDevice, aclFinalize)")
        context.close()
        yield ok("the device was given back", "main-thread")


# --- Libraries ------------------------------------------------------------------------------------


def check_libraries(
    libraries: Libraries, paths: AscendPaths, maps: Path = Path("/proc/self/maps")
) -> Iterator[Finding]:
    """The files that were loaded for the names, and the functions that this version lacks."""
    lib64 = paths.home / "lib64" if paths.home else None
    own = {(lib64 / name).resolve() for name in (*RUNTIME, *BASE)} if lib64 else set()
    for file in sorted(set(_OURS.findall(maps.read_text()))):
        if lib64 is None or Path(file).resolve() in own:
            yield ok(f"loaded {file}", "library-names")
        else:
            todo = "another toolkit comes first in LD_LIBRARY_PATH: source only one set_env.sh"
            said = f"loaded {file}, which is not the library in {lib64}"
            yield warning(said, todo, "library-names")
    new = [
        name
        for functions in (libraries.acl, libraries.base)
        for name, declared in functions.declared().items()
        if isinstance(declared, NewStatusFunction) and getattr(functions, name) is None
    ]
    lacking = f", but for {', '.join(new)}, which this version does not have yet" if new else ""
    yield ok(f"every function is there{lacking}")


def check_opening(message: str) -> Finding:
    """What a LibraryError means, from the loader's message for each path that was tried."""
    *lines, last = message.splitlines()
    found, todo = "\n".join(lines), last[0].lower() + last[1:]
    if not lines:
        found, todo = last, f"{_INSTALL}, and source its set_env.sh before the server starts"
    if driver := sorted(set(_LACKING.findall(message))):
        todo = (
            f"{', '.join(driver)} belongs to the driver: see the section driver, and add its "
            "lib64, lib64/common and lib64/driver to LD_LIBRARY_PATH before the server starts"
        )
    return fault(found, todo, "library-names")


# --- What the device says -------------------------------------------------------------------------


def check_state(soc: str, facts: DeviceFacts) -> Iterator[Message]:
    """What the device says about itself, and whether it is healthy, known, and free for calls."""
    free, total = facts.memory_free_bytes, facts.memory_total_bytes
    memory = f"{size(free)} of {size(total)}"
    told = {
        "SoC": soc,
        "device memory": f"{memory} free",
        "CANN": facts.cann_version,
        "runtime": facts.runtime_version,
        "driver": facts.driver_version,
    }
    yield {name: value or "does not tell" for name, value in told.items()}
    look = "check `npu-smi info -t health -i <card>`"
    if facts.healthy:
        yield ok("the device reports that it is healthy")
    elif facts.healthy is None:
        yield warning("the device does not report its state", look)
    else:
        todo = f"{look} and `dmesg` on the host; reset the device, or take it out of service"
        yield fault("the device reports that it is not healthy", todo)
    try:
        taken = taken_for(soc)
    except ArgumentError as error:
        yield fault(str(error), "a newer npucall may know it; else report the name")
    else:
        newer = "a newer npucall may know it"
        yield warning(taken.guess, newer) if taken.guess else ok(f"{soc} is {taken.product.name}")
    said = f"{memory} of device memory are free"
    if not total:
        todo = "calls that are too large fail with 207001"
        yield warning("the device does not report its memory", todo)
    elif free >= min(_LITTLE, total // 2):
        yield ok(said)
    else:
        yield warning(
            said,
            "another process has the rest: `npu-smi info` lists processes. Give the device to one "
            "server process only, or lower kept_device_memory and lanes",
        )


def check_versions(facts: DeviceFacts) -> Iterator[Finding]:
    """The versions of toolkit, runtime and driver, and whether they fit together."""
    said = f"CANN {facts.cann_version or 'of unknown version'}"
    runtime = f"{said}, runtime interface {facts.runtime_version}"
    if not facts.runtime_version:
        said = f"{said}; the runtime does not report its version"
        yield warning(said, "npucall expects CANN 8.1 or newer")
    elif _numbers(facts.runtime_version) < _OLDEST_RUNTIME:
        yield warning(f"{runtime}: older than every version that npucall supports", _INSTALL)
    else:
        yield ok(runtime)
    cann, driver = _numbers(facts.cann_version), facts.driver_version
    oldest = next((needed for toolkit, needed in _OLDEST_DRIVER if cann >= toolkit), ())
    if not driver:
        yield warning(
            "the driver does not report its version",
            "check `npu-smi info` on the host; in a container mount the driver's version.info. A "
            "driver older than the toolkit answers 207000 to functions that it does not know",
        )
    elif _numbers(driver) < oldest:
        yield warning(
            f"CANN {facts.cann_version} needs driver {'.'.join(map(str, oldest))} or newer, and "
            f"this one is {driver}: functions that it does not know answer 207000",
            "update the driver, or use an older toolkit; the release notes of CANN name the pairs",
        )
    else:
        yield ok(f"driver {driver}")


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers: (8, 1) of ``8.1.RC1``; empty if it does not begin with two."""
    found = re.match(r"\D?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else ()


def _check_operators(catalogue: HostCatalogue, operators: OpApi) -> Iterator[Finding]:
    """Which of the declared operators this host has, and which libraries were skipped."""
    names = {operator.name for operator in CATALOGUE}
    missing = sorted(name for name in names if operators.find(name) is None)
    said = f"{len(names) - len(missing)} of {len(names)} declared operators are in the libraries"
    if len(missing) < len(names):
        yield ok(f"{said}; not there: {', '.join(missing)}" if missing else said)
    else:
        yield fault(
            "the libraries have none of the declared operators (libopapi.so, libopapi_*.so)",
            "install the operator package of the toolkit's version; ASCEND_HOME_PATH/lib64 has its "
            "libraries, and LD_LIBRARY_PATH must contain it",
        )
    others = sum(operator.name not in names for operator in catalogue)
    yield ok(f"the server serves {others} more operators by their headers")
    if catalogue.variant:
        order = ("library-order",) if catalogue.variant == COMMUNITY else ()
        yield ok(f"operators with several variants have the variant {catalogue.variant}", *order)
    yield from (warning(note, _OWNER) for note in operators.notes)
