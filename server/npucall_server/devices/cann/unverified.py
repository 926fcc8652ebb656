"""What this device assumes about CANN. Only an NPU can prove it; a simulator cannot.

The claims come from headers, documents and public sources. If you have a host, check one claim
after the other, write what you saw into ``seen``, and run ``make docs``, which makes docs/ascend.md
from this list. The groups: process, streams and time, memory, descriptors and phases, operators,
handles.
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
        "torch_npu opens them in the same way [src:library-opening]. If this is wrong, the "
        "server does not start, and the doctor names each path that it tried.",
        Stake.START, 0.98,
        ("devices/cann/library.py: open_library", "devices/cann/runtime.py: open_libraries"),
        "`npucall-server doctor`: the section libraries names the files that it loaded.",
    ),
    Claim(
        "library-order",
        "Operators come from the library that CANN would take",
        "The order of custom packages, of libopapi_*.so and of the older libraries, and the "
        "check of owners, are those of torch_npu; the server takes both phases from one library.",
        "Read in torch_npu's source [src:library-search]. If this is wrong, the server may use "
        "another operator than PyTorch on the same host, if there is a custom package.",
        Stake.LATER, 0.95,
        ("devices/cann/operators.py: OpApi",),
        "Install a custom package that has aclnnKlDivTargetBackward too: doctor must say variant "
        "community, and `npucall conform --operator KlDivTargetBackward` pass.",
    ),
    Claim(
        "main-thread",
        "aclInit in the main thread, the device's context in all others",
        "Lanes bind the context of aclrtSetDevice with aclrtSetCurrentContext. For each aclInit, "
        "also one that answers 100002, the server calls aclFinalizeReference once.",
        "CANN's guide recommends this for threads [src:contexts], and its runtime counts in this "
        "way [src:set-device]. If this is wrong, the first call answers 107002, or the process "
        "does not end cleanly.",
        Stake.START, 0.98,
        ("devices/cann/runtime.py: DeviceContext",),
        "The last line of the doctor says that it gave the device back; a server with 8 lanes "
        "serves, and ends with exit code 0 on SIGTERM.",
    ),
    Claim(
        "exit-clean",
        "A process that ends by os._exit leaves the device clean",
        "After a failure that sticks to the device, the server gives nothing back: the driver "
        "frees what the process had, and the next process finds the device healthy.",
        "Killed training jobs rely on it. If this is wrong, the next server does not start until "
        "somebody resets the device.",
        Stake.LATER, 0.9,
        ("devices/base.py: BrokenDeviceError", "devices/watchdog.py: Watchdog"),
        "`kill -9` a server in the middle of a large call, ten times; each time the next one "
        "serves within seconds, and `npu-smi info` shows no memory left behind.",
    ),
    Claim(
        "device-numbers",
        "The device's number means this device everywhere",
        "On bare metal, cann:N is /dev/davinciN. A container numbers its devices from 0 again. "
        "The systemd unit counts as bare metal, since it makes no mount namespace. The server "
        "asks for memory, state and utilization with that number, or for the context of the "
        "thread.",
        "CANN's documents say so. If this is wrong, the server shows the facts of another "
        "device, or uses another device.",
        Stake.LATER, 0.9,
        ("devices/cann/device.py: CannDevice", "devices/cann/runtime.py: facts"),
        "Put a long call on a device that is not the first, and compare `npu-smi info` with "
        "`npucall info`: on bare metal, in the unit and in a container.",
    ),
    # --- Streams and time -------------------------------------------------------------------------
    Claim(
        "infnan",
        "INFNAN is set before the streams, or refused without harm",
        "aclrtSetDeviceSatMode right after aclrtSetDevice holds for all streams made later. "
        "Products without the choice answer a status that changes nothing.",
        "torch_npu does so on the products that have the choice [src:infinities]. If this is "
        "wrong, an overflow gives the largest number instead of infinity.",
        Stake.LATER, 0.95,
        ("devices/cann/runtime.py: aclrtSetDeviceSatMode",),
        "The doctor makes KlDivBackward overflow in FLOAT16: the result must be infinity, not "
        "65504.",
    ),
    Claim(
        "sleeping-wait",
        "FAST_LAUNCH without FAST_SYNC sleeps while it waits",
        "With stream flag 1 alone, a waiting thread does not use a core; --busy-wait adds flag 2.",
        "torch_npu sets both flags. If this is wrong, each waiting lane uses a core, or waits "
        "longer.",
        Stake.LATER, 0.9,
        ("devices/cann/lane.py: _create_stream",),
        "Watch `top` during a long call, without and with --busy-wait; compare the latency of "
        "small calls.",
    ),
    Claim(
        "continue-mode",
        "In CONTINUE mode, after a synchronise that succeeds nothing runs any more",
        "If a call fails between its copies and its kernel, the lane synchronises its stream, "
        "and goes on if that succeeds. An error of a kernel is reported once.",
        "Read in the runtime's source [src:sticky-errors]; torch_npu uses STOP mode, so few "
        "people have tried it. If this is wrong, the call after a failed one fails too.",
        Stake.LATER, 0.9,
        ("devices/cann/lane.py: _settled",),
        "Make calls fail because there is no memory for their workspace, with good calls between "
        "them: right numbers, and no other failure.",
    ),
    Claim(
        "sync-timeout",
        "A synchronise that times out answers 507046 and leaves the work running",
        "The watchdog and device_timeout rely on it; the process then ends, because the device "
        "still uses the buffers.",
        "Documented. If this is wrong, the watchdog ends the process a second later.",
        Stake.LATER, 0.95,
        ("devices/cann/lane.py: aclrtSynchronizeStreamWithTimeout",),
        "Serve with --device-timeout 0.05 and run a call of seconds: DEVICE_LOST, exit code 70.",
    ),
    Claim(
        "events-again",
        "Events made by aclrtCreateEventExWithFlag can be recorded again and again",
        "Each call records the events of its lane again, without reset: with TIME_LINE for "
        "times, with CAPTURE_STREAM_PROGRESS for pieces of pinned memory.",
        "Documented, and torch_npu prefers these events [src:events]. If this is wrong, times "
        "are 0 with a note in the log, and large calls wait for their stream.",
        Stake.FAST, 0.96,
        ("devices/cann/stopwatch.py: Stopwatch", "devices/cann/copies.py: Copies"),
        "Compare `run_ns` of 1,000 equal calls with msprof; the log has no note that nothing is "
        "timed.",
    ),
    # --- Memory -----------------------------------------------------------------------------------
    Claim(
        "pinned-memory",
        "Pinned memory of aclrtMallocHost can be viewed and copied while the host goes on",
        "aclrtMemcpyAsync from and to this memory returns at once; NumPy writes to it through "
        "its address.",
        "Documented, and torch_npu does so [src:pinned-copies]. If this is wrong, calls are "
        "slower, or the doctor's copies show wrong numbers.",
        Stake.FAST, 0.97,
        ("devices/cann/device_memory.py: PinnedBuffer", "devices/cann/transfer.py: send"),
        "Look at a timeline of msprof: copy and phase one of a large call overlap.",
    ),
    Claim(
        "piece-padding",
        "Pieces of 512 bytes are enough room between tensors",
        "Each length is rounded up to 32, then 32 are added: kernels touch no bytes further "
        "after a tensor.",
        "torch_npu's allocator leaves as much room [src:padding]. If this is wrong, outputs next "
        "to inputs have wrong numbers.",
        Stake.LATER, 0.98,
        ("devices/cann/device_memory.py: piece_bytes",),
        "Run `npucall conform` in full: outputs lie next to inputs, so a kernel that writes too "
        "far shows.",
    ),
    Claim(
        "workspace-reuse",
        "A larger workspace than needed is taken, and may be reused at once on its stream",
        "Each lane has one growing buffer; the server passes the size that phase one asked for.",
        "torch_npu does so [src:stream-order]. If this is wrong, numbers are wrong when calls "
        "follow each other closely.",
        Stake.FAST, 0.98,
        ("devices/cann/scratch.py: _workspace",),
        "Alternate calls with a large and a small workspace, such as CtcLossBackward and "
        "KlDivBackward, and compare the numbers.",
    ),
    Claim(
        "zero-kernel",
        "aclnnInplaceZero fills memory with zeros, whatever was there",
        "The server uses that kernel to fill new memory and memory that passes from one caller "
        "to another, as FLOAT, in lengths that are powers of two. If no library has it, or it "
        "has no kernel, the server uses aclrtMemsetAsync.",
        "Documented from 8.0 on, for all products except Atlas 200I/500 A2; zero_ of PyTorch is "
        "this operator. If this is wrong, a kernel that does not write all of its output shows "
        "the bytes of another caller.",
        Stake.LATER, 0.98,
        ("devices/cann/clearing.py: Clearing",),
        "The doctor fills memory with a pattern, then fills a part of it with zeros, and reads "
        "it back.",
    ),
    Claim(
        "out-of-memory",
        "Memory that ran out answers 207001 and harms nothing",
        "The lanes then free the memory that they keep, and the server tries the call once more.",
        "torch_npu relies on it. If this is wrong, a call that is too large ends the process.",
        Stake.LATER, 0.95,
        ("devices/lane_pool.py: _empty_pools",),
        "Fill the device from another process: a large call gets DEVICE_MEMORY, and small calls "
        "after it succeed.",
    ),
    # --- Descriptors and the two phases -----------------------------------------------------------
    Claim(
        "unrun-executor",
        "A first phase alone harms nothing outside of its thread",
        "Plan passes addresses that belong to nothing to phase one, destroys the executor, and "
        "accepts it if that is refused. Its thread runs nothing, because old versions may answer "
        "a later run from a cache entry that launches nothing. The server replaces the thread "
        "after 1,000 first phases, since they leave such entries. If a lane had to leave one, "
        "the server closes it and opens it in a new thread.",
        "Phase one keeps addresses and does not read them; its cache belongs to the thread, and "
        "opbase has a guard against such entries from 8.5.0 on. If this is wrong, Plan fails, or "
        "the process grows with each plan.",
        Stake.LATER, 0.9,
        ("devices/cann/planner.py: Planner", "devices/cann/launch.py: Launcher"),
        "The doctor plans and runs in turn on one thread, and says whether this CANN has the "
        "guard. Plan 2,000 different calls, then 10,000 more: the process has not grown during "
        "the 10,000.",
    ),
    Claim(
        "consumed-executor",
        "Phase two consumes its executor whatever it answers",
        "The server never uses or destroys an executor after phase two, whether it failed or not.",
        "Documented for success, read in the source for failure [src:executor-once]. If this is "
        "wrong, failed calls leak memory.",
        Stake.LATER, 0.95,
        ("devices/cann/launch.py: launch",),
        "If you find a call that phase two refuses, make it 10,000 times, and 10,000 times "
        "again: the process does not grow the second time. The first time fills the cache with "
        "entries that answer nothing.",
    ),
    Claim(
        "kept-descriptors",
        "Descriptors serve many calls",
        "A lane keeps aclTensor and the other descriptors of a call, and passes them to phase "
        "one again when the stream has passed the earlier call.",
        "The documents show this for repeatable executors. If this is wrong, the second equal "
        "call is wrong or refused, and the doctor sees it.",
        Stake.FAST, 0.95,
        ("devices/cann/descriptors.py: KeptDescriptors",),
        "Make one call 10,000 times with different numbers: each result is right; also with "
        "--kept-calls 0.",
    ),
    Claim(
        "moved-descriptors",
        "A descriptor can be told that its tensor has moved",
        "The server calls `aclSetRawTensorAddr` before phase one, for single tensors and for "
        "members of lists. Phase one uses the new address, also if CANN's cache answers it.",
        "Documented, for all products. No header of a wheel declares the function, so we have "
        "its prototype from the documents. If this is wrong, numbers come from the old memory.",
        Stake.FAST, 0.95,
        ("devices/cann/descriptors.py: Descriptors",),
        "Run a program of two equal calls on different data: both answers are right.",
    ),
    Claim(
        "phase-one-cache",
        "CANN keeps first phases per thread, without addresses",
        "The thread of a lane lives as long as the server, so the second equal call skips most "
        "of phase one. A hit uses the addresses of the new call. ACLNN_CACHE_LIMIT and "
        "DISABLE_L2_CACHE work if Python sets them before it opens the libraries.",
        "Read in the source [src:phase-one-cache]. If this is wrong, calls are slower; wrong "
        "addresses would show in the doctor's second run.",
        Stake.FAST, 0.97,
        ("devices/lane_thread.py: LaneThread", "settings/npu.py: tell_cann"),
        "`plan_ns` of the second equal call is a fraction of the first one, but not with "
        "--phase-one-cache 0; numbers are right after other calls have moved the memory.",
    ),
    Claim(
        "views",
        "Views, rank 0 and empty tensors are described as they are",
        "Strides and offset count elements; the storage shape is the one in the call. A tensor "
        "of rank 0 has no dimensions, and an empty one has no address; the server calls phase "
        "two for both. Some documents require rank 1 or more.",
        "torch_npu describes views so [src:layouts]. If this is wrong, the device refuses such "
        "calls, and serves others.",
        Stake.LATER, 0.9,
        ("devices/cann/descriptors.py: aclCreateTensor",),
        "`npucall conform TARGET --block layout --block rank --block empty`.",
    ),
    Claim(
        "deterministic",
        "Deterministic means the option of the process and of the context",
        "The server sets both to 1 before the first phase one.",
        "Phase one reads the option of the process. If this is wrong, equal calls may differ in "
        "their last bits.",
        Stake.LATER, 0.95,
        ("devices/cann/runtime.py: aclrtCtxSetSysParamOpt",),
        "With --deterministic, equal calls with large sums give equal bits, run after run.",
    ),
    # --- Operators --------------------------------------------------------------------------------
    Claim(
        "status-fates",
        "Each status has the right consequence",
        "We read in the runtime's sources which errors stick to the context or the device. After "
        "a status that counts as broken the process ends; after others the device goes on.",
        "Unknown statuses of failed work count as broken. If this is wrong, a process ends "
        "without need, or calls fail until somebody ends it.",
        Stake.LATER, 0.8,
        ("devices/cann/statuses.py: STATUSES",),
        "For each status that appears: does the next call work, and does a new process?",
    ),
    Claim(
        "rules",
        "Rules, formulas and roundings are the device's",
        "They come from documents and public sources of the operators.",
        "The gradients of KL divergence and L1 loss are in two sources each. If this is wrong, "
        "the conformance suite says where.",
        Stake.LATER, 0.5,
        ("devices/cann/host.py: HostCatalogue",),
        "`npucall conform TARGET --html report.html`, on each product.",
    ),
    Claim(
        "header-roles",
        "Outputs of operators from headers are guessed correctly",
        "We guess them from const, names and order, and compared the guesses with the documents "
        "of more than a thousand operators [src:output-roles].",
        "If this is wrong, an output comes back unchanged, and the caller can state the role.",
        Stake.LATER, 0.9,
        ("devices/cann/header_roles.py: roles_of",),
        "Before you use such an operator, compare `npucall-server headers DIR` with the "
        "operator's document.",
    ),
    # --- Handles and programs ---------------------------------------------------------------------
    Claim(
        "stream-order",
        "Work on one stream needs nothing but the order of the stream",
        "A kernel sees what earlier kernels, copies and fills on the same stream wrote, and "
        "later ones do not begin before it ends. So steps share one workspace, and memory is "
        "used again after its last reader.",
        "Documented, and PyTorch on NPUs relies on it [src:stream-order]. If this is wrong, "
        "numbers are wrong.",
        Stake.START, 0.99,
        ("devices/cann/program.py: Program", "devices/cann/lane.py: Lane",
         "devices/cann/clearing.py: Clearing"),
        "A program of 256 steps, each of which uses the result of the step before, has the same "
        "bits as 256 single calls; a hundred times.",
    ),
    Claim(
        "handle-copies",
        "aclrtMemcpy copies for handles while streams work",
        "It waits for no stream. No call uses a handle while it is written, and the writer's "
        "stream is synchronised before it is read. Any thread that is bound to the context may "
        "copy.",
        "Documented. If this is wrong, uploads wait for calls of others.",
        Stake.LATER, 0.95,
        ("devices/cann/resident.py: HandleMemory",),
        "Upload 1 GiB in a loop while eight callers run small calls: all answers are right, and "
        "the calls take no more than twice as long.",
    ),
)  # fmt: skip
