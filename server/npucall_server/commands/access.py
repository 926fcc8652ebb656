"""The commands ``npucall-server token`` and ``npucall-server tenants``."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from npucall_server.access import belonging, tokens
from npucall_server.exits import ExitCode
from npucall_server.settings.server import read
from npucall_server.settings.tenants import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npucall_server.settings.server import ServerSettings
    from npucall_server.settings.tenants import Tenant

_DAY = 86_400
_SOON_DAYS, _MOST_DAYS = 14, 3650


class _FaultError(Exception):
    """A command cannot do its work. The text says why."""


def run_token(arguments: Sequence[str]) -> int:
    """Runs ``npucall-server token``; answers its exit code."""
    parser = argparse.ArgumentParser(
        "npucall-server token", description="Makes and lists the tokens of callers."
    )
    commands = parser.add_subparsers(required=True, metavar="new | list")
    new = commands.add_parser(
        "new", help="make a token, show it once, and add its hash to the file"
    )
    new.set_defaults(command=_new)
    new.add_argument("--tenant", required=True, help="the tenant of the caller")
    new.add_argument("--name", required=True, help="the caller's name within the tenant")
    new.add_argument("--days", type=float, default=90, help="days until it expires (default: 90)")
    new.add_argument(
        "--out", type=Path, help="write the token to this new file, for its owner alone (mode 0600)"
    )
    roles = [role.name.lower() for role in Role]
    new.add_argument(
        "--role", choices=roles, help="what it allows (default: the role that the tenant gives)"
    )
    listing = commands.add_parser(
        "list", help="list the tokens: whose they are and when they expire"
    )
    listing.set_defaults(command=_list)
    for each in new, listing:
        each.add_argument(
            "--file", type=Path, help="the file of hashes (default: token_hashes of the settings)"
        )
        each.add_argument("--config", type=Path, help="the settings file (default: NPUCALL_CONFIG)")
    return _run(parser.parse_args(arguments))


def run_tenants(arguments: Sequence[str]) -> int:
    """Runs ``npucall-server tenants``; answers its exit code."""
    parser = argparse.ArgumentParser(
        "npucall-server tenants", description="Checks the tenants of a server."
    )
    commands = parser.add_subparsers(required=True, metavar="check")
    check = commands.add_parser("check", help="check a settings file and show its tenants")
    check.set_defaults(command=_check)
    check.add_argument("config", type=Path, metavar="FILE", help="the settings file")
    return _run(parser.parse_args(arguments))


def _run(given: argparse.Namespace) -> int:
    try:
        given.command(given)
    except (_FaultError, OSError) as error:
        sys.stderr.write(f"npucall-server: {error}\n")
        return ExitCode.SETTINGS
    return ExitCode.DRAINED


def _settings(config: Path | None) -> ServerSettings:
    arguments = [] if config is None else ["--config", str(config)]
    try:
        return read(arguments)
    except ValueError as error:
        raise _FaultError(str(error)) from error


# --- token ----------------------------------------------------------------------------------------


def _new(given: argparse.Namespace) -> None:
    path, tenants = _token_file(given)
    if not 0 < given.days <= _MOST_DAYS:
        raise _FaultError(
            f"--days: expected more than 0 and at most {_MOST_DAYS}, found {given.days}"
        )
    role = None if given.role is None else Role.named(given.role)
    try:
        text, token = tokens.new(given.tenant, given.name, role, given.days * _DAY)
    except ValueError as error:
        raise _FaultError(str(error)) from error
    _hand_out(given.out, text, partial(tokens.append, path, token))
    where = "this shows it only once" if given.out is None else f"it is in {given.out} alone"
    _say(f"token of {token.tenant}/{token.name}, valid until {token.end}; {where}")
    _say(f"the last line of {path} is its hash: delete that line to revoke the token")
    if tenants and token.tenant not in tenants:
        _say(
            f"warning: the settings have no tenant {token.tenant}; servers refuse the token until "
            "they have"
        )


def _hand_out(out: Path | None, text: str, record: Callable[[], None]) -> None:
    """Records the hash of a token, and shows the token or writes it to a new file."""
    if out is None:
        record()
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        return
    try:
        out.touch(0o600, exist_ok=False)
    except FileExistsError as error:
        raise _FaultError(f"--out: expected a new file, found that {out} exists") from error
    record()
    out.write_text(f"{text}\n", encoding="ascii")


def _list(given: argparse.Namespace) -> None:
    path, tenants = _token_file(given)
    found, faults = tokens.read(path.read_bytes())
    rows = [
        (each.tenant, each.name, _role_of(each, tenants), each.end, _state(each, tenants))
        for each in sorted(found.values(), key=lambda each: (each.tenant, each.name, each.expires))
    ]
    sys.stdout.write(_table([("TENANT", "NAME", "ROLE", "ENDS", ""), *rows]))
    for fault in faults:
        _say(f"warning: {path}: {fault}")


def _token_file(given: argparse.Namespace) -> tuple[Path, dict[str, Tenant]]:
    """The file of tokens, and the tenants if the settings are known."""
    if given.file is not None and given.config is None:
        return given.file, {}
    settings = _settings(given.config)
    path = given.file or settings.token_hashes
    if path is None:
        raise _FaultError(
            "token_hashes: expected a file, found none; set token_hashes, or give --file"
        )
    return path, settings.tenants


def _role_of(token: tokens.Token, tenants: dict[str, Tenant]) -> str:
    if token.role is not None:
        return token.role.name.lower()
    tenant = tenants.get(token.tenant)
    return tenant.role_of(token.name).name.lower() if tenant else "of the tenant"


def _state(token: tokens.Token, tenants: dict[str, Tenant]) -> str:
    if token.expires <= time.time():
        return "ended"
    if tenants and token.tenant not in tenants:
        return "no such tenant"
    return "ends soon" if token.expires - time.time() < _SOON_DAYS * _DAY else ""


# --- tenants --------------------------------------------------------------------------------------


def _check(given: argparse.Namespace) -> None:
    settings = _settings(given.config)
    if not settings.tenants:
        raise _FaultError(f"tenants: expected tables [tenants.NAME] in {given.config}, found none")
    heads = ("TENANT", "CLASS", "WEIGHT", "ROLE", "LIMITS", "CALLERS")
    rows = [_row(name, tenant) for name, tenant in settings.tenants.items()]
    sys.stdout.write(_table([heads, *rows]))
    for warning in _warnings(settings):
        _say(f"warning: {warning}")


def _row(name: str, tenant: Tenant) -> tuple[str, ...]:
    roles = [_names(tenant, role) for role in ("bench", "admins") if getattr(tenant, role)]
    return (
        name,
        tenant.scheduling_class,
        str(tenant.weight),
        "; ".join([tenant.role, *roles]),
        ", ".join(_limits(tenant)) or "none",
        ", ".join(_callers(tenant)) or "of tokens alone",
    )


def _names(tenant: Tenant, role: str) -> str:
    return f"{role}: {', '.join(getattr(tenant, role))}"


def _limits(tenant: Tenant) -> Iterator[str]:
    if tenant.calls is not None:
        yield f"{tenant.calls} calls"
    if tenant.memory is not None:
        yield f"memory {tenant.memory.human_readable()}"
    if tenant.streams is not None:
        yield f"{tenant.streams} streams"
    if tenant.shared_memory is not None:
        yield f"shared memory {tenant.shared_memory.human_readable()}"
    if tenant.device_seconds_per_hour is not None:
        yield f"{tenant.device_seconds_per_hour:g} device-seconds an hour"


def _callers(tenant: Tenant) -> Iterator[str]:
    for kind in "users", "certificates", "claims", "hosts":
        if values := getattr(tenant, kind):
            yield f"{kind} {' '.join(map(str, values))}"


def _warnings(settings: ServerSettings) -> Iterator[str]:
    tenants = settings.tenants
    for name, tenant in tenants.items():
        if tenant.users and settings.shared_memory is None:
            yield f"tenants.{name}.users: has no effect, since shared_memory is not set"
        if tenant.certificates and settings.tls_client_ca is None:
            yield f"tenants.{name}.certificates: has no effect, since tls_client_ca is not set"
        if tenant.claims and settings.oidc_issuer is None:
            yield f"tenants.{name}.claims: has no effect, since oidc_issuer is not set"
        if tenant.role == "server" and not (tenant.hosts or tenant.certificates):
            yield f"tenants.{name}.hosts: is not set, so its servers may announce no host"
    for kind in "certificates", "claims":
        yield from _overlaps(tenants, kind)
    if settings.token_hashes is not None:
        yield from _of_tokens(settings.token_hashes, tenants)


def _overlaps(tenants: dict[str, Tenant], kind: str) -> Iterator[str]:
    """Patterns of two tenants that can match the same caller, which then belongs to neither."""
    entries = [(name, each) for name, tenant in tenants.items() for each in getattr(tenant, kind)]
    for index, (name, pattern) in enumerate(entries):
        for other, theirs in entries[:index]:
            if other != name and _overlap(pattern, theirs):
                yield (
                    f"tenants.{name}.{kind}: {pattern} may match the same callers as {theirs} of "
                    f"tenants.{other}; the server refuses callers that belong to both"
                )


def _overlap(one: str, other: str) -> bool:
    return belonging.any_matches([one], other) or belonging.any_matches([other], one)


def _of_tokens(path: Path, tenants: dict[str, Tenant]) -> Iterator[str]:
    if not path.exists():
        yield f"token_hashes: there is no file {path}; npucall-server token new makes it"
        return
    found, faults = tokens.read(path.read_bytes())
    yield from (f"token_hashes: {path}: {fault}" for fault in faults)
    for token in found.values():
        if token.tenant not in tenants:
            yield (
                f"token_hashes: the token of {token.name} is for the tenant {token.tenant}, which "
                "the settings do not have"
            )


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
