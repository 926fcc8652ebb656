"""``npucall-server``, or ``npucall-server serve``: serves until SIGTERM. Also ``settings``."""

from __future__ import annotations

import gc
import signal
from typing import NoReturn

from pydantic import ByteSize

from npucall import memory
from npucall.errors import NpucallError
from npucall_server.commands import command_line
from npucall_server.commands.command_line import SERVER
from npucall_server.devices import NoDeviceError, open_device
from npucall_server.devices.base import Device
from npucall_server.exits import ExitCode
from npucall_server.serving import device_lock, process
from npucall_server.serving.app import Server, build
from npucall_server.serving.binding import BindError
from npucall_server.settings.limits import largest_limit, memory_for
from npucall_server.settings.listener import quiet_grpc
from npucall_server.settings.server import ServerSettings, read
from npucall_server.telemetry.log import Log


def main(arguments: list[str]) -> NoReturn:
    """Runs the command with these arguments, and exits."""
    quiet_grpc()
    command_line.main_of(SERVER, read, serve, arguments)


def serve(settings: ServerSettings) -> ExitCode:
    """Serves until SIGTERM or SIGINT, then drains."""
    if settings.poison:
        memory.poison()
    if fault := fault_of_memory(settings):
        return _fail(ExitCode.SETTINGS, fault)
    log = process.open_log(settings)
    try:
        device = _take_device(settings, log)
    except NoDeviceError as error:
        return _fail(ExitCode.NO_DEVICE, str(error))
    except device_lock.LockError as error:
        return _fail(error.code, str(error))
    except Exception:  # noqa: BLE001  # the log says what it was
        return process.bug(log)
    try:
        code = _serve_on(device, settings, log)
    except BindError as error:
        code = _fail(error.code, str(error))
    except Exception:  # noqa: BLE001  # as above
        code = process.bug(log)
    if code is not ExitCode.DRAIN_TIMEOUT:  # after a drain timeout calls still run
        _close(device, log)
    log.flush()
    return code


def fault_of_memory(settings: ServerSettings) -> str:
    """What is wrong with a memory_limit that the server cannot keep; empty if nothing is.

    The default is never wrong.
    """
    memory, limit = memory_for(settings.servers_per_host), settings.memory_limit
    most = ByteSize(largest_limit(memory))
    if settings.overcommit or limit <= most or "memory_limit" not in settings.model_fields_set:
        return ""
    has = ByteSize(memory).human_readable(separator=" ")
    return (
        f"memory_limit: expected at most {most.human_readable(separator=' ')} ({int(most)}), since "
        f"the process may take 1.5 times as much and 256 MiB, and its control group or its part of "
        f"the machine has {has}; found {limit.human_readable(separator=' ')}; lower it "
        "(NPUCALL_MEMORY_LIMIT), or set overcommit (--overcommit) to take it all the same"
    )


def _take_device(settings: ServerSettings, log: Log) -> Device:
    """Opens the device. If the settings name a lock, this process takes it first."""

    def note(message: str) -> None:
        log.event("note", message=message)
        log.flush()

    if settings.device_lock is not None:
        device_lock.take(settings.device_lock, settings.device_lock_wait, note)
    return open_device(settings, note)


def _serve_on(device: Device, settings: ServerSettings, log: Log) -> ExitCode:
    if settings.keep_memory:
        memory.keep(settings.keep_memory)
    server = Server(build(settings, device, log))
    signals = process.stop_signals()
    gc.freeze()  # objects made so far stay: no collection during a call looks at them
    gc.enable()
    try:
        server.start()
    except OSError as error:
        return _fail(ExitCode.SETTINGS, f"ready_file: {error}")
    while signals.recv(1)[0] == signal.SIGHUP:
        server.reload()
    return ExitCode.DRAINED if server.drain() else ExitCode.DRAIN_TIMEOUT


def _close(device: Device, log: Log) -> None:
    try:
        device.close()
    except NpucallError as error:  # all calls are answered; the process ends anyway
        log.event("warning", message=f"the device was not given back: {error}")


def _fail(code: ExitCode, message: str) -> ExitCode:
    return command_line.fail(SERVER, code, message)
