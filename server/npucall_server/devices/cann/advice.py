"""What an administrator can do about a status of CANN. The doctor and the documentation use it.

It covers the statuses that a badly set up host gives. What a caller can do is in the error itself.
"""

from __future__ import annotations

from npucall.statuses import Fate
from npucall_server.devices.cann.statuses import status_of

_KERNELS = (
    "install the operator package of this SoC and of the toolkit's version: "
    "Ascend-cann-kernels-CHIP up to CANN 8.3, Ascend-cann-CHIP-ops from 8.5 on; in a "
    "container take an image for the chip (910b for Atlas A2, a3 for Atlas A3)"
)
_DRIVER = (
    "look at `npu-smi info` on the host: if it fails too, the driver or the device is at fault "
    "(`dmesg`, firmware); if it works, compare the device nodes and the mounts of this process "
    "with docs/ascend.md"
)
_OLD_DRIVER = (
    "the driver may be older than the toolkit: compare `npu-smi info` with the versions that "
    "CANN's release notes name, and update the driver or take an older toolkit; else this product "
    "lacks the feature"
)
_NEW_PROCESS = "start the server again; systemd and Docker do so after exit code 70"
_KERNEL_FAILED = (
    "a kernel failed on the device: if one call does it each time, report that call; "
    f"{_NEW_PROCESS}"
)
_MEMORY = (
    "another process may hold the device's memory (`npu-smi info` lists processes): end it, or "
    "lower kept_device_memory and lanes of the servers on this device"
)
_HARDWARE = (
    "memory of the device is damaged: `npu-smi info -t ecc -i <card>`; take the device out of "
    "service until it has been reset or replaced"
)

ADVICE: dict[int, str] = {
    100039: "the loader took the stub libraries, which are only for linking: remove devlib from "
    "LD_LIBRARY_PATH",
    107001: "take a device that this process sees: a container, and ASCEND_RT_VISIBLE_DEVICES, "
    "number their devices from 0",
    107002: "a bug of npucall: report it with the log",
    107003: "a bug of npucall: report it with the log",
    107022: f"another program aborted the work of the device; {_NEW_PROCESS}",
    148049: "source the toolkit's set_env.sh before the server starts: ASCEND_OPP_PATH names no "
    "operators",
    161001: "the installed version needs an argument that npucall believes to be optional: compare "
    "the operator's header (`npucall-server headers`) and report it",
    161002: "the installed version has other rules than npucall: read the text after the status, "
    "run `npucall conform`, and report it",
    200001: _OLD_DRIVER,
    200006: _OLD_DRIVER,
    207000: _OLD_DRIVER,
    207001: _MEMORY,
    207004: _DRIVER,
    207005: "streams or other resources of the device ran out: end other processes on it, or lower "
    "lanes",
    207006: "let the user of this process use the device nodes: group HwHiAiUser, or ASCEND_GID in "
    "docker-compose.yml",
    207008: "streams of the device ran out: end other processes on it, or lower lanes",
    207018: _MEMORY,
    500000: f"CANN found no device: {_DRIVER}",
    500004: _DRIVER,
    507008: "the toolkit is not for this chip: install the toolkit, or take the image, for this "
    "chip",
    507010: f"the device no longer answers: {_DRIVER}",
    507014: "a kernel ran longer than CANN allows: unless the call is huge, look for hardware "
    "faults in `dmesg`, and for other processes on the device (`npu-smi info`)",
    507015: _KERNEL_FAILED,
    507018: f"the device's own processors failed: the AI CPU packages have to be of the toolkit's "
    f"version; {_NEW_PROCESS}",
    507033: f"CANN could not set up the device: another container may hold it; {_DRIVER}",
    507035: _KERNEL_FAILED,
    507046: "work did not end within device_timeout: raise it for large calls; if small calls do "
    f"it too, {_DRIVER}",
    507047: "a copy did not end within device_timeout: raise it for large calls; if small calls do "
    f"it too, {_DRIVER}",
    507053: _HARDWARE,
    507054: _HARDWARE,
    507899: _DRIVER,
    561000: "an operator failed and gave no reason: see the text after the status, and CANN's log "
    "(ASCEND_PROCESS_LOG_PATH, by default ~/ascend/log)",
    561002: "the operator found no way to divide the work: use a toolkit and an operator package "
    "of one version; if they are, report the call",
    561003: f"no kernel for this SoC and dtype: {_KERNELS}",
    561107: "source the toolkit's set_env.sh before the server starts: ASCEND_OPP_PATH is not set",
    561112: f"the kernel package is not installed: {_KERNELS}",
}
"""What to do, by status. For other statuses ``advice`` answers by their class."""

OF_FATE: dict[Fate, str] = {
    Fate.ARGUMENT: "the call is at fault: the message names the parameter",
    Fate.UNAVAILABLE: "this host lacks something that the operator needs: use a toolkit, an "
    "operator package and a driver that belong together",
    Fate.MEMORY: "make room: send smaller calls, or end other processes on the device",
    Fate.CALL: "see the text after the status, and CANN's log (ASCEND_PROCESS_LOG_PATH, by "
    "default ~/ascend/log)",
    Fate.BROKEN: f"{_NEW_PROCESS}; if it comes back: {_DRIVER}",
}


def advice(status: int) -> str:
    """What to do about a status."""
    return ADVICE.get(status) or OF_FATE[status_of(status).fate]
