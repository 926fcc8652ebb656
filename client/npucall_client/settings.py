"""Every setting of the client: from the arguments of ``connect``, else from NPUCALL_* variables.

The only module of the client that reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field, fields
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.dataclasses import dataclass

from npucall.errors import SettingError
from npucall_client.targets import checked_target
from npucall_client.timeouts import checked_seconds

_TOGETHER = (
    {"certificate", "key"},
    {"token", "token_file", "token_url", "token_url_bearer"},
)
"""Settings that belong together: with one of them as an argument the others' variables do not
count."""

_TIMEOUTS = ("timeout", "connect_timeout")


def _labels(given: object) -> object:
    """Labels as a text such as ``rack=3,kind=cpu`` become a mapping."""
    if not isinstance(given, str):
        return given
    pairs = [pair.strip().partition("=") for pair in given.split(",") if pair.strip()]
    for key, equals, value in pairs:
        if not (key and equals):
            raise ValueError(f"labels: expected KEY=VALUE, found {key}{equals}{value}")
    return {key: value for key, _, value in pairs}


def _connect_seconds(given: object) -> float:
    return checked_seconds(given, "connect_timeout")


@dataclass(frozen=True)
class ClientSettings:
    """How a client reaches its server, and what it asks for if a call does not say."""

    target: Annotated[str, BeforeValidator(checked_target)] = "127.0.0.1:50051"
    """HOST:PORT or unix:PATH of a server, ``local:``, or a pool: ``pool:HOST:PORT,HOST:PORT``,
    ``pool:dns:NAME:PORT``, ``pool:file:PATH``, ``pool:directory:HOST:PORT``. A HOST alone means
    port 50051. NPUCALL_TARGET."""
    timeout: Annotated[float, BeforeValidator(checked_seconds)] = 60.0
    """Seconds until a call fails, retries included. NPUCALL_TIMEOUT."""
    connect_timeout: Annotated[float, BeforeValidator(_connect_seconds)] = 10.0
    """Seconds that ``connect`` waits for a server that is starting. NPUCALL_CONNECT_TIMEOUT."""
    stream_from: Annotated[int, Field(ge=0)] = 4 * 2**20
    """Bytes of a call's arrays from which they travel in chunks; fewer, where no message of the
    server holds so many (its max_message_bytes). NPUCALL_STREAM_FROM."""
    keep_memory: Annotated[int, Field(ge=0)] = 0
    """Bytes of freed memory that this process keeps for its next large arrays, at most 2 GiB; Linux
    with glibc only. NPUCALL_KEEP_MEMORY."""
    tls: bool | None = None
    """Encrypt what travels, and have the server prove who it is. Not given: where ca, certificate
    or server_name is, except on Unix sockets. NPUCALL_TLS."""
    ca: str = ""
    """File of the authorities, as PEM, one of which has to have signed the server's certificate;
    empty: those that gRPC comes with. NPUCALL_CA."""
    certificate: str = ""
    """File of the client's certificate, as PEM, for servers that ask for one; needs key. Both are
    read again when they change. NPUCALL_CERTIFICATE."""
    key: str = ""
    """File of the private key of certificate, as PEM, not encrypted. NPUCALL_KEY."""
    server_name: str = ""
    """Name that the server's certificate has, where the target is another one, such as the near end
    of a tunnel; turns TLS on. NPUCALL_SERVER_NAME."""
    proxy: str | None = field(default=None, repr=False)
    """HTTP proxy through which the server is reached (CONNECT), as http://HOST:PORT or
    http://NAME:PASSWORD@HOST:PORT; ``none`` or empty: no proxy. Not given: the first of grpc_proxy,
    https_proxy and http_proxy in the environment, but for servers of this machine and those that
    no_grpc_proxy or no_proxy names. NPUCALL_PROXY."""
    token: str | Callable[[], str] = field(default="", repr=False)
    """A token by which the server knows the caller; for ``connect`` also a function that answers
    one, which is asked again before it ends. NPUCALL_TOKEN."""
    token_file: str = ""
    """File that holds a token; it is read again when it changes. NPUCALL_TOKEN_FILE."""
    token_url: str = ""
    """Address that answers a token as JSON (``value``), as CI jobs of GitHub have it.
    NPUCALL_TOKEN_URL."""
    token_url_bearer: str = field(default="", repr=False)
    """What proves to token_url who asks. NPUCALL_TOKEN_URL_BEARER."""
    send_unread: bool = False
    """Send also the values of inputs that an operator never reads, not only their shape and dtype.
    NPUCALL_SEND_UNREAD."""
    shared_memory_socket: str = ""
    """Path here of the server's socket for shared memory, where it is mounted elsewhere than in the
    server's file system. NPUCALL_SHARED_MEMORY_SOCKET."""
    reservation: str = ""
    """Key of a reservation of the device that calls are made under; empty: none.
    NPUCALL_RESERVATION."""
    variant: str = ""
    """Variant of operators that have several; empty: the server's default. NPUCALL_VARIANT."""
    poison: bool = False
    """For tests: fill new memory of this process with a pattern, so that bytes which nobody wrote
    show. NPUCALL_POISON."""
    soc: str = ""
    """With a pool, the SoC of the members that are called; empty: there may be only one. With
    ``local:``, the SoC whose rules hold; empty: Ascend910B1. NPUCALL_SOC."""
    product: str = ""
    """With a pool, the family (``npucall info`` shows it) of the members that are called; empty:
    any. NPUCALL_PRODUCT."""
    labels: Annotated[Mapping[str, str], BeforeValidator(_labels)] = field(default_factory=dict)
    """With a pool, labels that members have to have to be called: ``rack=3,kind=cpu``.
    NPUCALL_LABELS."""

    @classmethod
    def of(cls, **given: Any) -> ClientSettings:
        """The settings given, None standing for not given; the rest from the environment.

        Raises SettingError, a ValueError, for a value that cannot be.
        """
        named = {key: value for key, value in given.items() if value is not None}
        environment = {
            field.name: os.environ[variable]
            for field in fields(cls)
            if (variable := f"NPUCALL_{field.name.upper()}") in os.environ
        }
        for group in _TOGETHER:
            if group & named.keys():
                environment = {key: environment[key] for key in environment.keys() - group}
        values: dict[str, Any] = {**environment, **named}
        for name in environment.keys() & set(_TIMEOUTS) - named.keys():
            with suppress(ValueError):  # else the rule says what is wrong
                values[name] = float(environment[name])
        try:
            return cls(**values)
        except ValidationError as error:
            refused = _refused(error)
        raise refused

    @property
    def encrypts(self) -> bool:
        """Whether TLS is spoken with the server."""
        if self.tls is None:
            asked = self.ca or self.certificate or self.server_name
            return bool(asked) and not self.target.startswith("unix")
        return self.tls


def _refused(error: ValidationError) -> SettingError:
    """What is wrong with the first of the settings, without a value that may be a secret."""
    fault = error.errors(include_url=False)[0]
    own = fault.get("ctx", {}).get("error")
    if isinstance(own, SettingError):
        return own
    name = str(fault["loc"][0])
    shown = {each.name: each.repr for each in fields(ClientSettings)}
    said = fault["msg"].removeprefix("Value error, ")
    found = f", found {fault['input']!r}" if shown.get(name) and own is None else ""
    said = said if said.startswith(f"{name}: ") else f"{name}: {said}"
    return SettingError(f"{said}{found} ({name}, NPUCALL_{name.upper()})", setting=name)


def environment_under(target: str, reservation: str) -> dict[str, str]:
    """This process's environment, for a child whose clients call there under a reservation."""
    return {**os.environ, "NPUCALL_TARGET": target, "NPUCALL_RESERVATION": reservation}


def proxies_of_environment() -> dict[str, str]:
    """The variables that name proxies, in lower case, as gRPC reads them."""
    return {name: value for name, value in os.environ.items() if name.endswith("_proxy")}


def target_of_environment() -> str | None:
    """NPUCALL_TARGET, or None where it is not set."""
    return os.environ.get("NPUCALL_TARGET")
