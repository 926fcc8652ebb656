"""What this device takes for true of CANN and no simulator can prove: it needs an NPU.

Written from headers, documents and public sources. Whoever has a host checks one claim after the
other; docs/ascend.md is made of this list.
"""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """One thing that is taken for true."""

    key: str
    """By which the doctor's findings name it."""
    title: str
    """In a few words."""
    assumed: str
    """Why it is thought to be so, and what the code makes of it."""
    where: tuple[str, ...]
    """Where it matters: ``file: name``, the file in ``npucall_server``."""
    check: str
    """How to see on a host whether it is so."""
    seen: str = ""
    """What was seen: date, SoC, versions of CANN and driver, and the result; empty: nobody has."""


UNVERIFIED = (
    # --- The process ------------------------------------------------------------------------------
    Claim(
        "library-names",
        "Libraries are found by their bare names",
        "`dlopen` without RTLD_GLOBAL, by the loader's path, finds the toolkit's libraries and, "
        "through them, the driver's; the stubs in devlib are not taken.",
        ("devices/cann/library.py: open_library", "devices/cann/runtime.py: open_libraries"),
        "`npucall-server doctor`: the section libraries names the files that were loaded.",
    ),
    Claim(
        "library-order",
        "Operators come from the library that CANN would take",
        "The order of custom packages, of libopapi_*.so and of the older libraries, and the check "
        "of owners, are those of torch_npu's sources; both phases are taken from one library.",
        ("devices/cann/operators.py: OpApi",),
        "Install a custom package that has aclnnKlDivTargetBackward too: doctor must say variant "
        "community, and `npucall conform --operator KlDivTargetBackward` pass.",
    ),
    Claim(
        "cache-limit",
        "ACLNN_CACHE_LIMIT counts if Python sets it before the libraries are opened",
        "setenv of the own process is what getenv of a library opened later sees.",
        ("npu_settings.py: tell_cann",),
        "Serve with --phase-one-cache 1 and alternate two calls: `plan_ns` of the log stays that "
        "of a first call.",
    ),
    Claim(
        "main-thread",
        "aclInit in the main thread, the device's context in all others",
        "Lanes bind the context of aclrtSetDevice with aclrtSetCurrentContext; aclInit that "
        "answers 100002 was somebody else's, who finalises; aclFinalizeReference undoes one "
        "aclInit.",
        ("devices/cann/runtime.py: DeviceContext",),
        "Doctor's last line says that the device was given back; a server with 8 lanes serves, and "
        "ends with 0 on SIGTERM.",
    ),
    Claim(
        "exit-clean",
        "A process that ends by os._exit leaves the device clean",
        "After a failure that sticks nothing is given back: the driver frees what the process had, "
        "and the next process finds the device well.",
        ("devices/base.py: BrokenDeviceError", "devices/watchdog.py: Watchdog"),
        "`kill -9` a server in the middle of a large call, ten times; each time the next one "
        "serves within seconds, and `npu-smi info` shows no memory left behind.",
    ),
    Claim(
        "device-numbers",
        "The device's numbers are those of this process",
        "Bare metal: cann:N is /dev/davinciN; a container numbers anew from 0, and the systemd "
        "unit counts as bare metal, since it makes no mount namespace.",
        ("devices/cann/device.py: CannDevice",),
        "Load one device with a long call and look at `npu-smi info` which one is busy: bare "
        "metal, unit and container.",
    ),
    Claim(
        "soc-names",
        "aclrtGetSocName answers the names that products.py has",
        "The patterns of SoC names were read from CANN's sources.",
        ("devices/cann/device.py: product_of",),
        "Doctor names the product of the SoC.",
    ),
    Claim(
        "own-facts",
        "What the device says of itself is of this device",
        "Memory, state and utilization are asked for with the number, or for the thread's context.",
        ("devices/cann/runtime.py: facts",),
        "`npucall info` against `npu-smi info`, for another device than the first.",
    ),
    # --- Streams and time -------------------------------------------------------------------------
    Claim(
        "infnan",
        "INFNAN is set before the streams, or refused without harm",
        "aclrtSetDeviceSatMode right after aclrtSetDevice holds for streams made later; products "
        "without the choice answer a status that changes nothing.",
        ("devices/cann/runtime.py: aclrtSetDeviceSatMode",),
        "KlDivBackward in FLOAT16 with target 60000, grad_output 2 and reduction 0 gives "
        "-infinity, not -65504.",
    ),
    Claim(
        "sleeping-wait",
        "FAST_LAUNCH without FAST_SYNC sleeps while it waits",
        "Stream flag 1 alone: the waiting thread takes no core; --busy-wait adds flag 2.",
        ("devices/cann/lane.py: _create_stream",),
        "`top` while a long call runs, without and with --busy-wait; latency of small calls in "
        "both.",
    ),
    Claim(
        "continue-mode",
        "In CONTINUE mode a synchronise that succeeds means that nothing is under way",
        "A call that fails between its copies and its kernel is synchronised too, and the lane "
        "goes on if that succeeds; an error of a kernel is answered once.",
        ("devices/cann/lane.py: _settled",),
        "Let calls fail for want of memory for their workspace, with good ones between: right "
        "numbers, and no other failure.",
    ),
    Claim(
        "sync-timeout",
        "A synchronise that times out answers 507046 and leaves the work running",
        "The watchdog and device_timeout build on it; the process ends, since the buffers are in "
        "use.",
        ("devices/cann/lane.py: aclrtSynchronizeStreamWithTimeout",),
        "Serve with --device-timeout 0.05 and run a call of seconds: DEVICE_LOST, exit code 70.",
    ),
    Claim(
        "events-again",
        "Events made by aclrtCreateEventExWithFlag(TIME_LINE) can be recorded again and again",
        "Five events of a lane are recorded anew by each call, without reset; the differences are "
        "the times of copies and kernel.",
        ("devices/cann/events.py: StreamEvents",),
        "`run_ns` of 1,000 equal calls against msprof; the log has no note that nothing is timed.",
    ),
    # --- Memory -----------------------------------------------------------------------------------
    Claim(
        "pinned-memory",
        "Pinned memory of aclrtMallocHost can be viewed and copied while the host goes on",
        "aclrtMemcpyAsync from and to it returns at once; NumPy writes to it through its address.",
        ("devices/cann/memory.py: PinnedBuffer", "devices/cann/transfer.py: copy_in"),
        "A timeline of msprof: copy and phase one of a large call overlap.",
    ),
    Claim(
        "pageable-memory",
        "Copies from and to ordinary memory end before they return",
        "Calls above staging_limit take received bytes, which may be read-only pages, and fresh "
        "arrays; both live until the stream has passed in any case.",
        ("devices/cann/transfer.py: copy_to_device", "devices/cann/transfer.py: copy_to_host"),
        "`npucall conform` against a server with --staging-limit 0.",
    ),
    Claim(
        "piece-padding",
        "Pieces of 512 bytes are enough room between tensors",
        "Each length is rounded up to 32, then 32 are added: kernels touch no more behind a "
        "tensor.",
        ("devices/cann/memory.py: piece_bytes",),
        "`npucall conform` in full: outputs lie beside inputs, so what overreaches shows.",
    ),
    Claim(
        "workspace-reuse",
        "A larger workspace than needed is taken, and may be reused at once on its stream",
        "One growing buffer a lane; its size is told as phase one wanted it.",
        ("devices/cann/lane.py: _workspace",),
        "Alternate calls with a large and a small workspace, such as CtcLossBackward and "
        "KlDivBackward, and compare the numbers.",
    ),
    Claim(
        "out-of-memory",
        "Memory that ran out answers 207001 and harms nothing",
        "The lanes then give back what they keep, and the call is tried once more.",
        ("devices/lanes.py: _empty_pools",),
        "Fill the device with another process; DEVICE_MEMORY for a large call, success for small "
        "ones after it.",
    ),
    Claim(
        "memset-order",
        "aclrtMemsetAsync and copies of one stream keep their order",
        "Outputs that a call may not write are filled with zeros before the inputs are copied.",
        ("devices/cann/transfer.py: stage",),
        "A call with an empty input gives zeros after one that filled the memory.",
    ),
    # --- Descriptors and the two phases -----------------------------------------------------------
    Claim(
        "plan-addresses",
        "Phase one does not read addresses",
        "Plan gives every tensor one address that nobody owns, aligned and not null.",
        ("devices/cann/lane.py: _PLACEHOLDER",),
        "`Client.plan` of every operator answers a workspace.",
    ),
    Claim(
        "unrun-executor",
        "An executor that never ran may be destroyed",
        "aclDestroyAclOpExecutor, documented for repeatable executors, frees any that phase two "
        "has not consumed, and does not spoil the cache of first phases.",
        ("devices/cann/launch.py: launch", "devices/cann/launch.py: workspace_of"),
        "10,000 times Plan of one call: the process does not grow; a run after it is right.",
    ),
    Claim(
        "consumed-executor",
        "Phase two consumes its executor whatever it answers",
        "It is never used or destroyed after phase two, failed or not.",
        ("devices/cann/launch.py: launch",),
        "10,000 calls that phase two refuses, if one is found: the process does not grow.",
    ),
    Claim(
        "kept-descriptors",
        "Descriptors serve many calls",
        "A lane keeps aclTensor and the other descriptors of a call and gives them to phase one "
        "again, once the stream has passed the call before.",
        ("devices/cann/descriptors.py: KeptDescriptors",),
        "One call 10,000 times with other numbers; each result right, against --kept-calls 1 too.",
    ),
    Claim(
        "phase-one-cache",
        "CANN keeps first phases per thread, without addresses",
        "A lane's thread lives as long as the server, so that the second equal call skips most of "
        "phase one; a hit takes the addresses of the call at hand.",
        ("devices/lane_thread.py: LaneThread",),
        "`plan_ns` of the second equal call is a fraction of the first's; the numbers are right "
        "after other calls have moved the memory.",
    ),
    Claim(
        "rank-0-empty",
        "Rank 0 and empty tensors are taken as they are",
        "A descriptor with no dimensions, and a null address where there are no elements; phase "
        "two is called in both cases. Some documents ask for rank 1 at least.",
        ("devices/cann/descriptors.py: aclCreateTensor",),
        "`npucall conform TARGET --block rank --block empty`.",
    ),
    Claim(
        "views",
        "Views are described by strides, offset and storage shape",
        "Strides and offset count elements; the storage shape is the one that the call names.",
        ("devices/cann/descriptors.py: aclCreateTensor",),
        "`npucall conform TARGET --block layout`.",
    ),
    Claim(
        "deterministic",
        "Deterministic means the option of the process and of the context",
        "Both are set to 1 before the first phase one.",
        ("devices/cann/runtime.py: aclrtCtxSetSysParamOpt",),
        "Equal calls with --deterministic give equal bits, run by run, where sums are large.",
    ),
    # --- Operators --------------------------------------------------------------------------------
    Claim(
        "status-fates",
        "Statuses are sorted as the failures deserve",
        "What sticks to context or device was read from the runtime's sources; after the statuses "
        "called broken the process ends, after others the device goes on.",
        ("devices/cann/status_table.py: STATUSES",),
        "For each status that appears: does a call after it work, and does a new process?",
    ),
    Claim(
        "rules",
        "Rules, formulas and roundings are the device's",
        "They come from documents and public sources of the operators.",
        ("devices/cann/host.py: HostCatalogue",),
        "`npucall conform TARGET --html report.html`, on each product.",
    ),
    Claim(
        "header-roles",
        "Outputs of operators from headers are those that are guessed",
        "By const, names and order, right for 99 of 100 operators of CANN 8.1 by their documents.",
        ("devices/cann/header_roles.py: roles_of",),
        "Before use: `npucall-server headers DIR` and the operator's document.",
    ),
    # --- Handles and programs ---------------------------------------------------------------------
    Claim(
        "moved-descriptors",
        "A descriptor can be told that its tensor has moved",
        "`aclSetRawTensorAddr` before phase one, for a tensor alone or in a list: phase one takes "
        "the new address, also where CANN's cache answers it. No public header of a wheel declares "
        "the function.",
        ("devices/cann/descriptors.py: Descriptors",),
        "Run a program of two equal calls on different data: both answers are right.",
    ),
    Claim(
        "stream-order",
        "The order of a stream is enough between the steps of a program",
        "A kernel sees what kernels, copies and memsets before it on the same stream wrote, and "
        "those behind it do not begin before it ends; so steps share one workspace, and memory is "
        "used again behind its last reader.",
        ("devices/cann/program.py: Program", "devices/cann/lane.py: Lane"),
        "A program of 256 steps, each on what the one before gave, has the bits of 256 calls; a "
        "hundred times.",
    ),
    Claim(
        "handle-copies",
        "aclrtMemcpy copies for handles beside streams that work",
        "It waits for no stream. Nobody uses a handle while it is written, and its writer's stream "
        "has been waited for when it is read; any thread that is bound to the context may copy.",
        ("devices/cann/resident.py: HandleMemory",),
        "Upload 1 GiB in a loop while eight callers run small calls: all answers are right, and "
        "the calls take no more than twice as long.",
    ),
)
"""Grouped: process, streams and time, memory, descriptors and phases, operators, handles. Whoever
checks one writes down what was seen, then ``make docs``."""
