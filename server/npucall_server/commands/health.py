"""``npucall-server health``: asks a server for its health.

Container engines run it every ten seconds for each server, on busy hosts. So it imports only grpc
before it asks: no protobuf, and no settings if a target is given.
"""

from __future__ import annotations

import argparse
import sys

import grpc

from npucall_server.commands import command_line
from npucall_server.commands.command_line import Command

_DESCRIPTION = (
    "Exits with 0 if the server at TARGET (HOST:PORT or unix:PATH, without TLS; default: what "
    "NPUCALL_HEALTH_LISTEN, NPUCALL_LISTEN or the settings say) serves, with 1 if not."
)
_METHOD = "/grpc.health.v1.Health/Check"
_SECONDS = 5.0
_SERVING = "SERVING"
# HealthCheckResponse as bytes: field 1, the status. 0 is left out on the wire.
_ANSWERS = {b"": "UNKNOWN", b"\x08\x01": _SERVING, b"\x08\x02": "NOT_SERVING"}
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  # compared, not bound


def run(arguments: list[str]) -> int:
    """Asks the server at a target, or at the address in the settings. Answers 0 if it serves."""
    return command_line.run("health", Command(_DESCRIPTION, _add_options, _ask), arguments)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", metavar="TARGET", help="HOST:PORT or unix:PATH")


def _ask(given: argparse.Namespace) -> int:
    target = given.target or _own_address()
    with grpc.insecure_channel(target) as channel:
        check = channel.unary_unary(_METHOD, _as_it_is, _as_it_is)
        try:
            answer = check(b"", timeout=_SECONDS)
        except grpc.RpcError as error:
            sys.stderr.write(f"{target}: no answer ({error.code().name}: {error.details()})\n")
            return 1
    status = _ANSWERS.get(answer, f"unknown answer {answer[:20]!r}")
    sys.stdout.write(f"{target}: {status}\n")
    return 0 if status == _SERVING else 1


def _as_it_is(message: bytes) -> bytes:
    return message


def _own_address() -> str:
    """The address to ask: ``health_listen``, else the first address without TLS."""
    from npucall_server.settings.addresses import Security  # noqa: PLC0415  # not needed with a target
    from npucall_server.settings.server import read  # noqa: PLC0415

    settings = read([])
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
