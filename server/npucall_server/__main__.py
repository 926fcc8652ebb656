"""The command ``npucall-server``: serves until SIGTERM, or asks a server for its health."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from npucall import buffers, memory
from npucall.errors import NpucallError
from npucall_server import device_lock, health_command, process
from npucall_server.app import Server, build
from npucall_server.binding import BindError
from npucall_server.devices import NoDeviceError, open_device
from npucall_server.exits import ExitCode
from npucall_server.front_settings import quiet_grpc
from npucall_server.settings import ServerSettings, read

if TYPE_CHECKING:
    from npucall_server.devices.base import Device
    from npucall_server.log import Log


def main() -> NoReturn:
    """Runs the command of ``sys.argv`` and exits with a code of ``ExitCode``."""
    command, *arguments = sys.argv[1:] or ["serve"]
    if command == "health":
        sys.exit(health_command.run(arguments))
    if command == "--version":
        process.say_version("npucall-server")
    if command in ("token", "tenants"):
        from npucall_server import access_commands  # noqa: PLC0415  # not needed to serve

        commands = {"token": access_commands.run_token, "tenants": access_commands.run_tenants}
        sys.exit(commands[command](arguments))
    # Imported here: they import CANN or cryptography, which not every server needs.
    if command == "doctor":
        from npucall_server import doctor  # noqa: PLC0415

        sys.exit(doctor.run(arguments))
    if command == "headers":
        from npucall_server import headers_command  # noqa: PLC0415

        sys.exit(headers_command.run(arguments))
    if command == "certificates":
        from npucall_server import certificates_command  # noqa: PLC0415

        sys.exit(certificates_command.run(arguments))
    code = serve(arguments if command == "serve" else sys.argv[1:])
    process.flush_or_discard()
    if code is ExitCode.DRAIN_TIMEOUT:
        os._exit(code)  # Python would wait for the threads of calls that were cut; some never end
    sys.exit(code)


def serve(arguments: list[str]) -> ExitCode:
    """Serves until SIGTERM or SIGINT, then drains."""
    quiet_grpc()
    settings = _read_settings(arguments)
    if settings.print_settings:
        sys.stdout.write(settings.as_toml())
        return ExitCode.DRAINED
    if settings.poison:
        buffers.poison()
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


def _read_settings(arguments: list[str]) -> ServerSettings:
    """Reads the settings. If they are wrong, says so and exits."""
    try:
        return read(arguments)
    except ValueError as error:
        sys.exit(_fail(ExitCode.SETTINGS, str(error)))


def _fail(code: ExitCode, message: str) -> ExitCode:
    return process.fail("npucall-server", code, message)


if __name__ == "__main__":
    main()
