"""The command ``npucall-server certificates``: for a lab that has no certificate authority."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from npucall.texts import missing_extra
from npucall_server.commands import command_line
from npucall_server.commands.command_line import Command

try:
    from npucall_server.commands.authority import Authority, Issued
except ImportError:
    sys.exit(missing_extra("npucall-server certificates", "npucall-server", "auth"))


_DAYS = 365
_LEAST_DAYS, _MOST_DAYS = 1, 3650
_AUTHORITY = "ca"
_DESCRIPTION = (
    "Makes certificates for a lab without an authority of its own. It writes to DIR: a private "
    "authority (ca.pem, ca.key), unless there is one; a certificate of the server, named after "
    "the first --host and valid for all of them; and one for each --client. Certificates are "
    "NAME.pem, keys are NAME.key, which only their owner can read. The command overwrites no "
    "file. Everybody who has ca.key can let in anybody: keep it off the servers."
)


class _Pair(NamedTuple):
    """A certificate and its key, which are written to files."""

    name: str
    issued: Issued


def run(arguments: Sequence[str]) -> int:
    """Runs the command. Answers its exit code."""
    return command_line.run("certificates", Command(_DESCRIPTION, _add_options, _make), arguments)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder to write to")
    parser.add_argument(
        "--host",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="name or IP address of the server",
    )
    parser.add_argument(
        "--client",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="a caller: a name or a URI",
    )
    parser.add_argument(
        "--announces",
        action="store_true",
        help="make a certificate with which the server can also announce itself to directories",
    )
    parser.add_argument(
        "--days", type=int, default=_DAYS, help=f"for which certificates hold, {_DAYS}"
    )


def _make(given: argparse.Namespace) -> int:
    pairs = _made(given)
    _write(given.folder, pairs)
    command_line.show(_said(given, pairs))
    return 0


def _made(given: argparse.Namespace) -> list[_Pair]:
    """The certificates and keys to write. Raises ValueError and OSError."""
    folder, hosts, clients, days = given.folder, given.host, given.client, given.days
    if not hosts and not clients:
        raise ValueError("certificates: expected --host NAME or --client NAME, found neither")
    if not _LEAST_DAYS <= days <= _MOST_DAYS:
        raise ValueError(f"days: expected {_LEAST_DAYS} to {_MOST_DAYS}, found {days}")
    if given.announces and not hosts:
        raise ValueError("announces: expected --host NAME with it, found none")
    certificate, key = _files(folder, _AUTHORITY)
    if certificate.exists() or key.exists():
        try:
            authority = Authority.of(Issued(certificate.read_bytes(), key.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(
                f"certificates: expected an authority and its key in {certificate} and {key}, "
                f"found: {error}"
            ) from error
        pairs = []
    else:
        authority = Authority.new()
        pairs = [_Pair(_AUTHORITY, authority.issued)]
    if hosts:
        issued = authority.server(hosts, days, announces=given.announces)
        pairs.append(_Pair(_file_name(hosts[0]), issued))
    pairs += [_Pair(_file_name(name), authority.client(name, days)) for name in clients]
    return pairs


def _write(folder: Path, pairs: list[_Pair]) -> None:
    """Writes all files, or raises FileExistsError before it writes any."""
    files: dict[Path, bytes] = {}
    for pair in pairs:
        certificate, key = _files(folder, pair.name)
        for path in (certificate, key):
            if path.exists() or path in files:
                raise FileExistsError(f"certificates: expected no file at {path}, found one")
        files |= {certificate: pair.issued.certificate, key: pair.issued.key}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, content in files.items():
        mode = 0o600 if path.suffix == ".key" else 0o644
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)


def _said(given: argparse.Namespace, pairs: list[_Pair]) -> str:
    """The text that says what was written, and which settings to give."""
    folder, hosts, clients = given.folder, given.host, given.client
    authority = folder / f"{_AUTHORITY}.pem"
    lines = [f"wrote {path}" for pair in pairs for path in _files(folder, pair.name)]
    if hosts:
        certificate, key = _files(folder, _file_name(hosts[0]))
        lines += [
            "",
            f"The server, reached as {', '.join(hosts)}, in its server.toml:",
            '  listen = "tls:0.0.0.0:50051"',
            f'  tls_certificate = "{certificate}"',
            f'  tls_key = "{key}"',
        ]
        if clients:
            lines.append(f'  tls_client_ca = "{authority}"')
        if given.announces:
            lines += ['  announce = "DIRECTORY"', f'  announce_ca = "{authority}"']
        lines += ["", "Its clients, beside a token:", f"  export NPUCALL_CA={authority}"]
    for name in clients:
        certificate, key = _files(folder, _file_name(name))
        lines += [
            "",
            f"The client {name}:",
            f"  export NPUCALL_CA={authority} NPUCALL_CERTIFICATE={certificate} NPUCALL_KEY={key}",
        ]
    return "\n".join(lines) + "\n"


def _files(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.pem", folder / f"{name}.key"


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "_"
