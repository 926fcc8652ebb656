"""The one device of the process: opened and closed in pairs of calls; and its facts."""

from __future__ import annotations

from ctypes import byref, c_char, c_int, c_int32, c_size_t, c_uint32, c_void_p
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from npucall.errors import NpucallError
from npucall_server.devices.base import DeviceFacts
from npucall_server.devices.cann import functions as c
from npucall_server.devices.cann.functions import AscendCL, NnOpBase
from npucall_server.devices.cann.library import open_library
from npucall_server.devices.cann.operators import OpApi
from npucall_server.devices.cann.statuses import HIDING, RUNTIME_ERROR, error_of
from npucall_server.devices.cleanup import Cleanup
from npucall_server.settings.npu import AscendPaths

RUNTIME = ("libascendcl.so", "libacl_rt.so")
BASE = ("libnnopbase.so",)


class Libraries(NamedTuple):
    """The functions of the two libraries that every operator needs."""

    acl: AscendCL
    base: NnOpBase
    paths: tuple[str, str]

    def failure(self, function: str, status: int) -> NpucallError:
        """The error of a function that failed in this thread, with CANN's text [src:recent-error].

        This takes the text out of CANN.
        """
        return _failure(self.acl, function, status)

    def operators(self, paths: AscendPaths) -> OpApi:
        """The libraries of operators of this host."""
        forget = partial(self.acl.aclrtGetLastError, c.ACL_RT_THREAD_LEVEL)
        return OpApi(paths, self.failure, forget)


def open_libraries(paths: AscendPaths) -> Libraries:
    """Raises LibraryError."""
    folders = [paths.home / "lib64"] if paths.home else []
    runtime = open_library(RUNTIME, folders)
    base = open_library(BASE, folders)

    def failure(function: str, status: int) -> NpucallError:
        return _failure(acl, function, status)

    acl = AscendCL([runtime], failure)
    return Libraries(acl, NnOpBase([base], failure), (runtime.path, base.path))


def device_count(libraries: Libraries) -> int:
    """How many devices this process may use; their numbers begin with 0. Raises NpucallError."""
    count = c_uint32()
    libraries.acl.aclrtGetDeviceCount(byref(count))
    return count.value


class DeviceContext:
    """Device ``number`` with its context, from aclInit to aclFinalize. Made in the main thread.

    If a C function fails, raises its error, and nothing stays open.
    """

    def __init__(self, libraries: Libraries, number: int, *, deterministic: bool) -> None:
        self.libraries = libraries
        self.number = number
        with Cleanup() as opening:
            self._initialise(opening)
            libraries.acl.aclrtSetDevice(number)
            opening.callback(libraries.acl.aclrtResetDevice, number)
            self.soc = self._soc_name()
            self._choose_modes(deterministic=deterministic)
            context = c_void_p()
            libraries.acl.aclrtGetCurrentContext(byref(context))
            self._context = context
            opening.callback(self.bind)
            self._open = opening.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, traceback)

    def close(self) -> None:
        """Gives the device back, in the main thread. Streams, events and memory must be gone."""
        self._open.close()

    def bind(self) -> None:
        """Gives the context to the calling thread. Without a context a thread can do nothing."""
        self.libraries.acl.aclrtSetCurrentContext(self._context)

    def free_memory(self) -> int:
        """Bytes of device memory that are free now. The calling thread must be bound."""
        free, total = c_size_t(), c_size_t()
        self.libraries.acl.aclrtGetMemInfo(c.ACL_HBM_MEM, byref(free), byref(total))
        return free.value

    def facts(self) -> DeviceFacts:
        """What the device and its software say about themselves now. Unknown facts are left out."""
        acl = self.libraries.acl
        if not _told(self.bind):
            return DeviceFacts(healthy=False)
        free, total = c_size_t(), c_size_t()
        status = c_int()
        usage = c.UtilizationInfo()
        memory = _told(acl.aclrtGetMemInfo, c.ACL_HBM_MEM, byref(free), byref(total))
        health = _told(acl.aclrtQueryDeviceStatus, self.number, byref(status))
        busy = _told(acl.aclrtGetDeviceUtilizationRate, self.number, byref(usage))
        return DeviceFacts(
            cann_version=self._package_version(c.ACL_PKG_NAME_CANN),
            driver_version=self._driver_version(),
            runtime_version=self._runtime_version(),
            memory_total_bytes=total.value if memory else 0,
            memory_free_bytes=free.value if memory else 0,
            cube_percent=_percent(usage.cubeUtilization) if busy else None,
            vector_percent=_percent(usage.vectorUtilization) if busy else None,
            aicpu_percent=_percent(usage.aicpuUtilization) if busy else None,
            healthy=status.value == c.ACL_RT_DEVICE_STATUS_NORMAL if health else None,
        )

    def _initialise(self, opening: Cleanup) -> None:
        """Initialises CANN, which another part of the process may have done before.

        Then CANN answers a status that is not a failure. Newer versions count this call too, so we
        have to finalise as well. In older versions only the first part finalises: the other part of
        the process may use CANN after us.
        """
        acl, is_first = self.libraries.acl, True
        try:
            acl.aclInit(None)
        except NpucallError as error:
            if error.details.get("device_status") != str(c.ACL_ERROR_REPEAT_INITIALIZE):
                raise
            is_first = False
        if acl.aclFinalizeReference is not None:
            opening.callback(acl.aclFinalizeReference, None)
        elif is_first:
            opening.callback(acl.aclFinalize)

    def _soc_name(self) -> str:
        name: bytes | None = self.libraries.acl.aclrtGetSocName()
        if name is None:
            raise self.libraries.failure("aclrtGetSocName", c.ACL_ERROR_INTERNAL_ERROR)
        return name.decode(errors="replace")

    def _choose_modes(self, *, deterministic: bool) -> None:
        acl = self.libraries.acl
        # Infinities and NaN as in IEEE 754. Products without this choice have no other mode.
        _told(acl.aclrtSetDeviceSatMode, c.ACL_RT_OVERFLOW_MODE_INFNAN)
        if deterministic:
            acl.aclrtSetSysParamOpt(c.ACL_OPT_DETERMINISTIC, 1)
            acl.aclrtCtxSetSysParamOpt(c.ACL_OPT_DETERMINISTIC, 1)

    def _package_version(self, package: int) -> str:
        version = c.CannPackageVersion()
        told = _told(self.libraries.acl.aclsysGetCANNVersion, package, byref(version))
        return version.version.decode(errors="replace") if told else ""

    def _driver_version(self) -> str:
        get = self.libraries.acl.aclsysGetVersionStr
        if get is not None:
            text = (c_char * 128)()
            if _told(get, b"driver", text) and text.value:
                return text.value.decode(errors="replace")
        return self._package_version(c.ACL_PKG_NAME_DRIVER)

    def _runtime_version(self) -> str:
        parts = (c_int32(), c_int32(), c_int32())
        told = _told(self.libraries.acl.aclrtGetVersion, *map(byref, parts))
        return ".".join(str(part.value) for part in parts) if told else ""


def _failure(acl: AscendCL, function: str, status: int) -> NpucallError:
    """Reads what CANN knows about it in the calling thread. CANN keeps a text until the next read.

    The last error is read first, since reading the text may overwrite it. Only for phases of
    operators the runtime's error belongs to this failure, since it is cleared before they begin.
    """
    hidden = acl.aclrtGetLastError(c.ACL_RT_THREAD_LEVEL)
    text: bytes | None = acl.aclGetRecentErrMsg()
    hides = function.startswith("aclnn") and (status in HIDING or status == RUNTIME_ERROR)
    return error_of(
        function, status, (text or b"").decode(errors="replace"), hidden if hides else 0
    )


def _told(function: object, *arguments: object) -> bool:
    """Calls a function that only gives information; whether it succeeded."""
    try:
        function(*arguments)  # type: ignore[operator]
    except NpucallError:
        return False
    return True


def _percent(value: int) -> int | None:
    """A percentage; None for -1: the unit is missing or gives no number."""
    return value if value >= 0 else None
