"""The commands ``npucall-server token`` and ``npucall-server tenants``."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from npucall_server.access import belonging, tokens
from npucall_server.commands import command_line
from npucall_server.commands.command_line import Command, table
from npucall_server.settings.server import ServerSettings, read
from npucall_server.settings.tenants import Role, Tenant

_DAY = 86_400
_SOON_DAYS, _MOST_DAYS = 14, 3650


def run_token(arguments: Sequence[str]) -> int:
    """Runs ``npucall-server token``; answers its exit code."""
    about = "make a token, show it once, and add its hash to the file"
    commands = {
        "new": Command(about, _options_of_new, _new),
        "list": Command(
            "list the tokens: whose they are and when they expire", _options_of_file, _list
        ),
    }
    return command_line.run("token", commands, arguments, "Makes and lists the tokens of callers.")


def run_tenants(arguments: Sequence[str]) -> int:
    """Runs ``npucall-server tenants``; answers its exit code."""
    about = "check a settings file and show its tenants"
    commands = {"check": Command(about, _options_of_check, _check)}
    return command_line.run("tenants", commands, arguments, "Checks the tenants of a server.")


def _options_of_new(parser: ArgumentParser) -> None:
    parser.add_argument("--tenant", required=True, help="the tenant of the caller")
    parser.add_argument("--name", required=True, help="the caller's name within the tenant")
    parser.add_argument(
        "--days", type=float, default=90, help="days until it expires (default: 90)"
    )
    parser.add_argument(
        "--out", type=Path, help="write the token to this new file, for its owner alone (mode 0600)"
    )
    roles = [role.name.lower() for role in Role]
    parser.add_argument(
        "--role", choices=roles, help="what it allows (default: the role that the tenant gives)"
    )
    _options_of_file(parser)


def _options_of_file(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--file", type=Path, help="the file of hashes (default: token_hashes of the settings)"
    )
    parser.add_argument("--config", type=Path, help="the settings file (default: NPUCALL_CONFIG)")


def _options_of_check(parser: ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="FILE", help="the settings file")


def _settings(config: Path | None) -> ServerSettings:
    return read([] if config is None else ["--config", str(config)])


# --- token ----------------------------------------------------------------------------------------


def _new(given: Namespace) -> int:
    path, tenants = _token_file(given)
    if not 0 < given.days <= _MOST_DAYS:
        raise ValueError(
            f"--days: expected more than 0 and at most {_MOST_DAYS}, found {given.days}"
        )
    role = None if given.role is None else Role.named(given.role)
    text, token = tokens.new(given.tenant, given.name, role, given.days * _DAY)
    _hand_out(given.out, text, partial(tokens.append, path, token))
    where = "this shows it only once" if given.out is None else f"it is in {given.out} alone"
    _say(f"token of {token.tenant}/{token.name}, valid until {token.end}; {where}")
    _say(f"the last line of {path} is its hash: delete that line to revoke the token")
    if tenants and token.tenant not in tenants:
        _say(
            f"warning: the settings have no tenant {token.tenant}; servers refuse the token until "
            "they have"
        )
    return 0


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
        raise ValueError(f"--out: expected a new file, found that {out} exists") from error
    record()
    out.write_text(f"{text}\n", encoding="ascii")


def _list(given: Namespace) -> int:
    path, tenants = _token_file(given)
    found, faults = tokens.read(path.read_bytes())
    rows = [
        (each.tenant, each.name, _role_of(each, tenants), each.end, _state(each, tenants))
        for each in sorted(found.values(), key=lambda each: (each.tenant, each.name, each.expires))
    ]
    sys.stdout.write(table([("TENANT", "NAME", "ROLE", "ENDS", ""), *rows]))
    for fault in faults:
        _say(f"warning: {path}: {fault}")
    return 0


def _token_file(given: Namespace) -> tuple[Path, dict[str, Tenant]]:
    """The file of tokens, and the tenants if the settings are known."""
    if given.file is not None and given.config is None:
        return given.file, {}
    settings = _settings(given.config)
    path = given.file or settings.token_hashes
    if path is None:
        raise ValueError(
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


def _check(given: Namespace) -> int:
    settings = _settings(given.config)
    if not settings.tenants:
        raise ValueError(f"tenants: expected tables [tenants.NAME] in {given.config}, found none")
    heads = ("TENANT", "CLASS", "WEIGHT", "ROLE", "LIMITS", "CALLERS")
    rows = [_row(name, tenant) for name, tenant in settings.tenants.items()]
    sys.stdout.write(table([heads, *rows]))
    for warning in _warnings(settings):
        _say(f"warning: {warning}")
    return 0


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
        if tenant.users and not settings.knows_local_users:
            yield f"tenants.{name}.users: has no effect, since frames_socket is off"
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


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")
