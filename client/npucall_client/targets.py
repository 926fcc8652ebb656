"""What a target says: a server, this process, or a pool. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from npucall.errors import SettingError
from npucall.membership import DIRECTORY_PORT, check_address

LOCAL = "local:"
"""The target that computes in this process."""
RECORDED = "recorded:"
"""What the target of a file of recorded calls begins with."""
POOL = "pool:"
"""What the target of a pool begins with."""
SERVER_PORT = 50051
"""Of a server, where none is said."""

DIRECTORIES = "directories"
"""The source that other machines can make list anything."""

ANY = "any"
"""As a wish for the SoC: any SoC, and any kind of device."""
_UNIX = "unix:"
_OF_GRPC = ("dns:", "ipv4:", "ipv6:", _UNIX, "unix-abstract:", "vsock:")
"""What gRPC's own spellings begin with. It reads the rest."""
_LARGEST_PORT = 65535
_ANY_ADDRESS = ("0.0.0.0", "[::]")  # noqa: S104  # a client may call them, nobody listens here
_COMPLETE = {
    "local": LOCAL,
    "pool": "pool:HOST:PORT,HOST:PORT",
    "recorded": "recorded:FILE",
    "unix": "unix:PATH",
}
"""What was probably meant by the first word alone."""
_ENCRYPTED = ("https", "grpcs")


def checked_target(target: object) -> str:
    """The target, with the port of a server where it has none.

    Raises SettingError for what is no target; it says what to write instead.
    """
    if not isinstance(target, str) or not target.strip():
        raise _refused(target, "write HOST:PORT of a server, unix:PATH, local: or pool:...")
    text = target.strip()
    if text.startswith(RECORDED) and text != RECORDED:
        return text
    if text == LOCAL or (text.startswith(_OF_GRPC) and text != _UNIX):
        return text
    if text.startswith(POOL) and text != POOL:
        parse(text)
        return text
    word, colon, rest = text.partition(":")
    if word.lower() in _COMPLETE and not (colon and rest.isdecimal()):
        raise _refused(target, f"did you mean {_COMPLETE[word.lower()]}?")
    if "://" in text:
        raise _refused(_without_login(text), _without_scheme(text))
    if text.startswith(("/", "./", "../", "~")):
        raise _refused(target, f"the socket of a server is {_UNIX}{text}")
    return _server(target, text)


def _server(target: str, text: str) -> str:
    """HOST:PORT of a target that is one server."""
    if _is_bare_ipv6(text):
        raise _refused(target, "an IPv6 address has brackets, such as [::1]:50051")
    host, colon, port = (text, "", "") if text.endswith("]") else text.rpartition(":")
    if not colon:
        host, port = text, str(SERVER_PORT)
    if not port.isdecimal() or not 0 < int(port[:6]) <= _LARGEST_PORT:
        raise _refused(
            target, f"the port is a number from 1 to {_LARGEST_PORT}; without one it is 50051"
        )
    port = str(int(port))
    if host not in _ANY_ADDRESS:
        try:
            check_address(f"{host.removesuffix('.')}:{port}")
        except ValueError:
            why = f"{host!r} is no name or IP address of a host" if host else "it names no host"
            raise _refused(target, why) from None
    return f"{host}:{port}"


def _without_scheme(text: str) -> str:
    """What to write instead of an address with a scheme."""
    scheme, _, rest = text.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    try:
        meant = _server(host, host)
    except SettingError:
        meant = "HOST:PORT"
    encrypted = " and set tls (NPUCALL_TLS=true)" if scheme.lower() in _ENCRYPTED else ""
    return f"a target has no {scheme}://; write {meant}{encrypted}"


def _without_login(text: str) -> str:
    """An address without the name and password that it may have."""
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _is_bare_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6  # noqa: PLR2004  # IPv6
    except ValueError:
        return False


def _refused(target: object, instead: str) -> SettingError:
    return SettingError(
        f"target: expected a server, a pool or local:, found {target!r}; {instead} "
        "(target, NPUCALL_TARGET)",
        setting="target",
    )


def _addresses(text: str, usual_port: int | None = None) -> tuple[str, ...]:
    """Of a list with commas between; one without a port has the usual one."""
    given = [each.strip() for each in text.split(",")]
    if usual_port is not None:
        given = [each if _has_port(each) else f"{each}:{usual_port}" for each in given]
    return tuple(dict.fromkeys(map(check_address, given)))


def _has_port(text: str) -> bool:
    return ":" in text.rpartition("]")[2]


def _directories(text: str) -> tuple[str, ...]:
    return _addresses(text, DIRECTORY_PORT)


def _resolved(text: str) -> tuple[str, int]:
    name, _, port = check_address(text).rpartition(":")
    if name.startswith("["):
        raise ValueError(f"expected a name after dns:, found {name}")
    return name, int(port)


def _written(text: str) -> Path:
    if not text:
        raise ValueError("expected a path after file:, found none")
    return Path(text)


class SourceKind(NamedTuple):
    """A source of the members of a pool."""

    module: str
    """Of ``pool.sources``; its ``opened(settings, told)`` makes the source."""
    parse: Callable[[str], Any]
    """What its part of the target tells. Raises ValueError."""


SOURCES: Mapping[str, SourceKind] = {
    "": SourceKind("fixed", _addresses),
    "dns": SourceKind("names", _resolved),
    "file": SourceKind("files", _written),
    "directory": SourceKind(DIRECTORIES, _directories),
}
"""Every source, by the word after ``pool:``; without such a word the target lists the members."""


class PoolTarget(NamedTuple):
    """What the target of a pool says."""

    module: str
    told: Any


def parse(target: str) -> PoolTarget:
    """What the target of a pool says. Raises SettingError for what is none."""
    text = target.removeprefix(POOL)
    word, _, rest = text.partition(":")
    kind, said = (SOURCES[word], rest) if word in SOURCES and word else (SOURCES[""], text)
    try:
        return PoolTarget(kind.module, kind.parse(said))
    except ValueError as error:
        raise SettingError(
            f"target: {error} in {target!r} (NPUCALL_TARGET)", setting="target"
        ) from None
