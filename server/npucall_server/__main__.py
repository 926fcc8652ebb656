"""The command ``npucall-server``: serves until SIGTERM, or asks a server for its health."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from npucall import buffers, memory
from npucall.errors import NpucallError
from npucall_server import process
from npucall_server.addresses import Security
from npucall_server.app import Server
from npucall_server.binding import BindError
from npucall_server.devices import NoDeviceError, open_device
from npucall_server.exits import ExitCode
from npucall_server.front_settings import quiet_grpc
from npucall_server.settings import ServerSettings, read

if TYPE_CHECKING:
    from npucall_server.devices.base import Device
    from npucall_server.log import Log

_HEALTH_SECONDS = 5.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  # compared, not bound


def main() -> NoReturn:
    """Runs the command of ``sys.argv`` and exits with a code of ``ExitCode``."""
    command, *arguments = sys.argv[1:] or ["serve"]
    if command == "health":
        sys.exit(check_health(arguments))
    if command in ("token", "tenants"):
        from npucall_server import access_commands  # noqa: PLC0415  # for who manages, not for who serves

        commands = {"token": access_commands.run_token, "tenants": access_commands.run_tenants}
        sys.exit(commands[command](arguments))
    # Imported here: they know CANN, or cryptography, which not every server needs.
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
        device = open_device(settings, lambda message: log.event("note", message=message))
    except NoDeviceError as error:
        return _fail(ExitCode.NO_DEVICE, str(error))
    except Exception:  # noqa: BLE001  # whatever it is, the log has it
        return process.bug(log)
    try:
        code = _serve_on(device, settings, log)
    except BindError as error:
        code = _fail(error.code, str(error))
    except Exception:  # noqa: BLE001  # likewise
        code = process.bug(log)
    if code is not ExitCode.DRAIN_TIMEOUT:  # with it calls are under way
        _close(device, log)
    log.flush()
    return code


def _serve_on(device: Device, settings: ServerSettings, log: Log) -> ExitCode:
    if settings.keep_memory:
        memory.keep(settings.keep_memory)
    server = Server(settings, device, log)
    signals = process.stop_signals()
    gc.freeze()  # what there is by now stays: no collection during a call has to look at it
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
    except NpucallError as error:  # every call has been answered; the process ends anyway
        log.event("warning", message=f"the device was not given back: {error}")


def check_health(arguments: list[str]) -> int:
    """Asks the server at a target (default: as the settings say); 0 if it serves."""
    if arguments and arguments[0] in ("-h", "--help"):
        sys.stdout.write(
            "usage: npucall-server health [TARGET]\n\nExits with 0 if the server at TARGET "
            "(HOST:PORT or unix:PATH, without TLS; default: what NPUCALL_HEALTH_LISTEN, "
            "NPUCALL_LISTEN or the settings say) serves, with 1 if not.\n"
        )
        return 0
    target = arguments[0] if arguments else _own_address()
    with grpc.insecure_channel(target) as channel:
        try:
            request = health_pb2.HealthCheckRequest()
            response = health_pb2_grpc.HealthStub(channel).Check(request, timeout=_HEALTH_SECONDS)
        except grpc.RpcError as error:
            sys.stderr.write(f"{target}: no answer ({error.code().name}: {error.details()})\n")
            return 1
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
    sys.stdout.write(f"{target}: {name}\n")
    return 0 if response.status == health_pb2.HealthCheckResponse.SERVING else 1


def _read_settings(arguments: list[str]) -> ServerSettings:
    """The settings; where they are wrong it says so and exits."""
    try:
        return read(arguments)
    except ValueError as error:
        sys.exit(_fail(ExitCode.SETTINGS, str(error)))


def _own_address() -> str:
    """Where health is asked: ``health_listen``, else the first address without TLS."""
    settings = _read_settings([])
    plain = [each.where for each in settings.listens if each.security is Security.PLAIN]
    where = settings.health_listen or next(iter(plain), "")
    if not where:
        sys.stderr.write(
            f"health: expected an address without TLS, found {settings.listen}; set "
            "health_listen (NPUCALL_HEALTH_LISTEN), which answers for health alone\n"
        )
        sys.exit(1)
    host, _, port = where.rpartition(":")
    return f"{_ANY_ADDRESS.get(host, host)}:{port}"


def _fail(code: ExitCode, message: str) -> ExitCode:
    return process.fail("npucall-server", code, message)


if __name__ == "__main__":
    main()
