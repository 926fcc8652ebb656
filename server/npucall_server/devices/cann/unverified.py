"""What this device takes for true of CANN and no simulator can prove: it needs an NPU.

Written from headers, documents and public sources. Whoever has a host checks one claim after the
other; docs/ascend.md is made of this list. Grouped: process, streams and time, memory, descriptors
and phases, operators, handles. Whoever checks one writes down what was seen, then ``make docs``.
"""

from __future__ import annotations

from npucall_server.devices.cann.claims import Claim, Stake

UNVERIFIED = (
    # --- The process ------------------------------------------------------------------------------
    Claim(
        "library-names",
        "Libraries are found by their bare names",
        "`dlopen` with RTLD_LAZY, by the loader's path, finds the toolkit's libraries and, through "
        "them, the driver's; the stubs in devlib are not taken.",
        "torch_npu opens them so [src:library-opening]. If not, the server does not start, and "
        "the doctor names each path that was tried.",
        Stake.START, 0.98,
        ("devices/cann/library.py: open_library", "devices/cann/runtime.py: open_libraries"),
        "`npucall-server doctor`: the section libraries names the files that were loaded.",
    ),
    Claim(
        "library-order",
        "Operators come from the library that CANN would take",
        "The order of custom packages, of libopapi_*.so and of the older libraries, and the check "
        "of owners, are those of torch_npu; both phases are taken from one library.",
        "Read in torch_npu's source [src:library-search]. If not, a custom package's operator is "
        "not the one that PyTorch on the same host runs.",
        Stake.LATER, 0.95,
        ("devices/cann/operators.py: OpApi",),
        "Install a custom package that has aclnnKlDivTargetBackward too: doctor must say variant "
        "community, and `npucall conform --operator KlDivTargetBackward` pass.",
    ),
    Claim(
        "main-thread",
        "aclInit in the main thread, the device's context in all others",
        "Lanes bind the context of aclrtSetDevice with aclrtSetCurrentContext. Each aclInit, also "
        "one that answers 100002, is undone by one aclFinalizeReference.",
        "CANN's guide recommends this for threads [src:contexts], and its runtime counts so "
        "[src:set-device]. If not, the first call answers 107002, or the end is not clean.",
        Stake.START, 0.98,
        ("devices/cann/runtime.py: DeviceContext",),
        "Doctor's last line says that the device was given back; a server with 8 lanes serves, and "
        "ends with 0 on SIGTERM.",
    ),
    Claim(
        "exit-clean",
        "A process that ends by os._exit leaves the device clean",
        "After a failure that sticks nothing is given back: the driver frees what the process had, "
        "and the next process finds the device well.",
        "Killed training jobs rely on it. If not, the next server does not start until the device "
        "is reset.",
        Stake.LATER, 0.9,
        ("devices/base.py: BrokenDeviceError", "devices/watchdog.py: Watchdog"),
        "`kill -9` a server in the middle of a large call, ten times; each time the next one "
        "serves within seconds, and `npu-smi info` shows no memory left behind.",
    ),
    Claim(
        "device-numbers",
        "The device's number means this device everywhere",
        "Bare metal: cann:N is /dev/davinciN; a container numbers anew from 0, and the systemd "
        "unit counts as bare metal, since it makes no mount namespace. Memory, state and "
        "utilization are asked for with that number, or for the thread's context.",
        "CANN's documents say so. If not, the facts of another device are told, or another one "
        "works.",
        Stake.LATER, 0.9,
        ("devices/cann/device.py: CannDevice", "devices/cann/runtime.py: facts"),
        "Load one device with a long call and compare `npu-smi info` with `npucall info`, for "
        "another device than the first: bare metal, unit and container.",
    ),
    # --- Streams and time -------------------------------------------------------------------------
    Claim(
        "infnan",
        "INFNAN is set before the streams, or refused without harm",
        "aclrtSetDeviceSatMode right after aclrtSetDevice holds for streams made later; products "
        "without the choice answer a status that changes nothing.",
        "torch_npu does so on the products that have the choice [src:infinities]. If not, an "
        "overflow gives the largest number in place of infinity.",
        Stake.LATER, 0.95,
        ("devices/cann/runtime.py: aclrtSetDeviceSatMode",),
        "The doctor lets KlDivBackward in FLOAT16 overflow: infinity, not 65504.",
    ),
    Claim(
        "sleeping-wait",
        "FAST_LAUNCH without FAST_SYNC sleeps while it waits",
        "Stream flag 1 alone: the waiting thread takes no core; --busy-wait adds flag 2.",
        "torch_npu sets both flags. If not, each waiting lane takes a core, or waits longer.",
        Stake.LATER, 0.9,
        ("devices/cann/lane.py: _create_stream",),
        "`top` while a long call runs, without and with --busy-wait; latency of small calls in "
        "both.",
    ),
    Claim(
        "continue-mode",
        "In CONTINUE mode a synchronise that succeeds means that nothing is under way",
        "A call that fails between its copies and its kernel is synchronised too, and the lane "
        "goes on if that succeeds; an error of a kernel is answered once.",
        "Read in the runtime's source [src:sticky-errors]; torch_npu uses STOP mode, so few have "
        "tried it. If not, a call behind a failed one fails too.",
        Stake.LATER, 0.9,
        ("devices/cann/lane.py: _settled",),
        "Let calls fail for want of memory for their workspace, with good ones between: right "
        "numbers, and no other failure.",
    ),
    Claim(
        "sync-timeout",
        "A synchronise that times out answers 507046 and leaves the work running",
        "The watchdog and device_timeout build on it; the process ends, since the buffers are in "
        "use.",
        "Documented. If not, the watchdog ends the process a second later.",
        Stake.LATER, 0.95,
        ("devices/cann/lane.py: aclrtSynchronizeStreamWithTimeout",),
        "Serve with --device-timeout 0.05 and run a call of seconds: DEVICE_LOST, exit code 70.",
    ),
    Claim(
        "events-again",
        "Events made by aclrtCreateEventExWithFlag can be recorded again and again",
        "Events of a lane are recorded anew by each call, without reset: with TIME_LINE for times, "
        "with CAPTURE_STREAM_PROGRESS for pieces of pinned memory.",
        "Documented, and torch_npu prefers these events. If not, times are 0 with a note in the "
        "log, and large calls wait for their stream.",
        Stake.FAST, 0.96,
        ("devices/cann/events.py: StreamEvents", "devices/cann/copies.py: Copies"),
        "`run_ns` of 1,000 equal calls against msprof; the log has no note that nothing is timed.",
    ),
    # --- Memory -----------------------------------------------------------------------------------
    Claim(
        "pinned-memory",
        "Pinned memory of aclrtMallocHost can be viewed and copied while the host goes on",
        "aclrtMemcpyAsync from and to it returns at once; NumPy writes to it through its address.",
        "Documented, and torch_npu does so. If not, calls are slower, or the doctor's copies show "
        "wrong numbers.",
        Stake.FAST, 0.97,
        ("devices/cann/memory.py: PinnedBuffer", "devices/cann/transfer.py: copy_in"),
        "A timeline of msprof: copy and phase one of a large call overlap.",
    ),
    Claim(
        "piece-padding",
        "Pieces of 512 bytes are enough room between tensors",
        "Each length is rounded up to 32, then 32 are added: kernels touch no more behind a "
        "tensor.",
        "torch_npu's allocator leaves as much [src:padding]. If not, outputs that lie beside "
        "inputs are wrong.",
        Stake.LATER, 0.98,
        ("devices/cann/memory.py: piece_bytes",),
        "`npucall conform` in full: outputs lie beside inputs, so what overreaches shows.",
    ),
    Claim(
        "workspace-reuse",
        "A larger workspace than needed is taken, and may be reused at once on its stream",
        "One growing buffer a lane; its size is told as phase one wanted it.",
        "torch_npu does so [src:stream-order]. If not, numbers are wrong where calls follow each "
        "other closely.",
        Stake.FAST, 0.98,
        ("devices/cann/scratch.py: _workspace",),
        "Alternate calls with a large and a small workspace, such as CtcLossBackward and "
        "KlDivBackward, and compare the numbers.",
    ),
    Claim(
        "zero-kernel",
        "aclnnInplaceZero fills memory with zeros, whatever was there",
        "What passes from one caller to another, and what is new, is filled by that kernel, as "
        "FLOAT, in lengths that are powers of two. Where no library has it, or it has no kernel, "
        "aclrtMemsetAsync does it.",
        "Documented from 8.0 on, for all products but Atlas 200I/500 A2; PyTorch's zero_ is this "
        "operator. If not, a kernel that does not write all of its output shows what another "
        "caller left.",
        Stake.LATER, 0.98,
        ("devices/cann/clearing.py: Clearing",),
        "The doctor fills memory with a pattern, then a part of it with zeros, and reads it back.",
    ),
    Claim(
        "out-of-memory",
        "Memory that ran out answers 207001 and harms nothing",
        "The lanes then give back what they keep, and the call is tried once more.",
        "torch_npu builds on it. If not, a call that is too large ends the process.",
        Stake.LATER, 0.95,
        ("devices/lanes.py: _empty_pools",),
        "Fill the device with another process; DEVICE_MEMORY for a large call, success for small "
        "ones after it.",
    ),
    # --- Descriptors and the two phases -----------------------------------------------------------
    Claim(
        "unrun-executor",
        "A first phase alone harms nothing outside of its thread",
        "Plan gives phase one addresses that nobody owns, destroys the executor, and forgives "
        "where that is refused. Its thread runs nothing, since old versions may answer a run after "
        "it from an entry that launches nothing, and is replaced after 1,000 first phases, which "
        "leave such entries. A lane that had to leave one is closed, and opened in a new thread.",
        "Phase one keeps addresses and reads none; its cache is the thread's, and opbase has the "
        "guard against such entries from 8.5.0 on. If not, Plan fails, or the process grows with "
        "plans.",
        Stake.LATER, 0.9,
        ("devices/cann/planner.py: Planner", "devices/cann/launch.py: Launcher"),
        "The doctor plans and runs in turn on one thread and says whether this CANN has the guard. "
        "Plan 2,000 different calls, then 10,000 more: the process has not grown by these.",
    ),
    Claim(
        "consumed-executor",
        "Phase two consumes its executor whatever it answers",
        "It is never used or destroyed after phase two, failed or not.",
        "Documented for success, read in the source for failure [src:executor-once]. If not, "
        "failed calls leak.",
        Stake.LATER, 0.95,
        ("devices/cann/launch.py: launch",),
        "10,000 calls that phase two refuses, if one is found, and as many again: the process does "
        "not grow by the second ones. The first fill the cache with entries that answer nothing.",
    ),
    Claim(
        "kept-descriptors",
        "Descriptors serve many calls",
        "A lane keeps aclTensor and the other descriptors of a call and gives them to phase one "
        "again, once the stream has passed the call before.",
        "The documents show it for executors that repeat. If not, the second equal call is wrong "
        "or refused, as the doctor sees.",
        Stake.FAST, 0.95,
        ("devices/cann/descriptors.py: KeptDescriptors",),
        "One call 10,000 times with other numbers; each result right, against --kept-calls 0 too.",
    ),
    Claim(
        "moved-descriptors",
        "A descriptor can be told that its tensor has moved",
        "`aclSetRawTensorAddr` before phase one, for a tensor alone or in a list: phase one takes "
        "the new address, also where CANN's cache answers it.",
        "Documented, for all products; no header of a wheel declares it, so its prototype is that "
        "of the documents. If not, numbers are those of the memory before.",
        Stake.FAST, 0.95,
        ("devices/cann/descriptors.py: Descriptors",),
        "Run a program of two equal calls on different data: both answers are right.",
    ),
    Claim(
        "phase-one-cache",
        "CANN keeps first phases per thread, without addresses",
        "A lane's thread lives as long as the server, so that the second equal call skips most of "
        "phase one; a hit takes the addresses of the call at hand. ACLNN_CACHE_LIMIT and "
        "DISABLE_L2_CACHE count if Python sets them before the libraries are opened.",
        "Read in the source [src:phase-one-cache]. If not, calls are slower; wrong addresses "
        "would show in the doctor's second run.",
        Stake.FAST, 0.97,
        ("devices/lane_thread.py: LaneThread", "npu_settings.py: tell_cann"),
        "`plan_ns` of the second equal call is a fraction of the first's, but not with "
        "--phase-one-cache 0; the numbers are right after other calls have moved the memory.",
    ),
    Claim(
        "views",
        "Views, rank 0 and empty tensors are described as they are",
        "Strides and offset count elements; the storage shape is the one that the call names. A "
        "tensor of rank 0 has no dimensions, one without elements no address; phase two is called "
        "for both. Some documents ask for rank 1 at least.",
        "torch_npu describes views so [src:layouts]. If not, such calls are refused, and others "
        "are served.",
        Stake.LATER, 0.9,
        ("devices/cann/descriptors.py: aclCreateTensor",),
        "`npucall conform TARGET --block layout --block rank --block empty`.",
    ),
    Claim(
        "deterministic",
        "Deterministic means the option of the process and of the context",
        "Both are set to 1 before the first phase one.",
        "Phase one reads the option of the process. If not, equal calls may differ in last bits.",
        Stake.LATER, 0.95,
        ("devices/cann/runtime.py: aclrtCtxSetSysParamOpt",),
        "Equal calls with --deterministic give equal bits, run by run, where sums are large.",
    ),
    # --- Operators --------------------------------------------------------------------------------
    Claim(
        "status-fates",
        "Statuses are sorted as the failures deserve",
        "What sticks to context or device was read from the runtime's sources; after the statuses "
        "called broken the process ends, after others the device goes on.",
        "Unknown statuses of failed work count as broken. If not, a process ends that need not, or "
        "calls fail until somebody ends it.",
        Stake.LATER, 0.8,
        ("devices/cann/status_table.py: STATUSES",),
        "For each status that appears: does a call after it work, and does a new process?",
    ),
    Claim(
        "rules",
        "Rules, formulas and roundings are the device's",
        "They come from documents and public sources of the operators.",
        "The gradients of KL divergence and L1 loss are in two sources each. If not, the "
        "conformance suite says where.",
        Stake.LATER, 0.5,
        ("devices/cann/host.py: HostCatalogue",),
        "`npucall conform TARGET --html report.html`, on each product.",
    ),
    Claim(
        "header-roles",
        "Outputs of operators from headers are those that are guessed",
        "By const, names and order, compared with the documents of more than a thousand operators "
        "[src:output-roles].",
        "If not, an output comes back as it was sent, and the caller can state the role.",
        Stake.LATER, 0.9,
        ("devices/cann/header_roles.py: roles_of",),
        "Before use: `npucall-server headers DIR` and the operator's document.",
    ),
    # --- Handles and programs ---------------------------------------------------------------------
    Claim(
        "stream-order",
        "The order of a stream is enough between what is queued on it",
        "A kernel sees what kernels, copies and fills before it on the same stream wrote, and "
        "those behind it do not begin before it ends; so steps share one workspace, and memory is "
        "used again behind its last reader.",
        "Documented, and all of PyTorch on NPUs builds on it. If not, numbers are wrong.",
        Stake.START, 0.99,
        ("devices/cann/program.py: Program", "devices/cann/lane.py: Lane",
         "devices/cann/clearing.py: Clearing"),
        "A program of 256 steps, each on what the one before gave, has the bits of 256 calls; a "
        "hundred times.",
    ),
    Claim(
        "handle-copies",
        "aclrtMemcpy copies for handles beside streams that work",
        "It waits for no stream. Nobody uses a handle while it is written, and its writer's stream "
        "has been waited for when it is read; any thread that is bound to the context may copy.",
        "Documented. If not, uploads wait for calls of others.",
        Stake.LATER, 0.95,
        ("devices/cann/resident.py: HandleMemory",),
        "Upload 1 GiB in a loop while eight callers run small calls: all answers are right, and "
        "the calls take no more than twice as long.",
    ),
)  # fmt: skip
