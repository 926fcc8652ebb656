"""Every setting of the client: from the arguments of ``connect``, else from NPUCALL_* variables.

The only module of the client that reads the environment.
"""

from __future__ import annotations

import os
import reprlib
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from numbers import Real
from os import PathLike, fspath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from npucall.environment import variables
from npucall.errors import SettingError
from npucall.texts import did_you_mean
from npucall_client.targets import checked_target

_TOGETHER = (
    {"certificate", "key"},
    {"token", "token_file", "token_url", "token_url_bearer"},
)
"""Settings that belong together: with one of them as an argument the others' variables do not
count."""

_KEPT = 2**30
"""Bytes that ``keep_memory=True`` keeps."""
_TIMEOUTS = ("timeout", "connect_timeout")
_LONGEST_SECONDS = 1e9
"""Of a timeout: gRPC and the clocks of threads count a little further."""


if TYPE_CHECKING:
    _File = str | PathLike[str]
else:
    _File = Annotated[str, BeforeValidator(fspath)]


def checked_seconds(value: Any, name: str = "timeout", *, zero: bool = False) -> float:
    """The seconds that a caller gave, as a float. ``zero``: none at all may be given too.

    Raises SettingError, which names the argument.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and (0 < value <= _LONGEST_SECONDS or (zero and value == 0)):
        return float(value)
    least, found = "from 0" if zero else "more than 0, and", reprlib.repr(value)
    raise SettingError(
        f"{name}: expected seconds, {least} up to {_LONGEST_SECONDS:.0f}, found {found}",
        setting=name,
    )


def _labels(given: object) -> object:
    """Labels as a text such as ``rack=3,kind=cpu`` become a mapping."""
    if not isinstance(given, str):
        return given
    pairs = [pair.strip().partition("=") for pair in given.split(",") if pair.strip()]
    for key, equals, value in pairs:
        if not (key and equals):
            raise ValueError(f"labels: expected KEY=VALUE, found {key}{equals}{value}")
    return {key: value for key, _, value in pairs}


def _seconds(given: object) -> float:
    return checked_seconds(given)  # old versions of pydantic would give it more than one argument


def _connect_seconds(given: object) -> float:
    return checked_seconds(given, "connect_timeout")


def _kept(given: object) -> object:
    return _KEPT if given is True else given


class Options(BaseModel):
    """What few programs set: ``connect(target, options=Options(stream_from=0))``.

    Raises SettingError, a ValueError, for a value that cannot be, TypeError for an unknown name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect_timeout: Annotated[float, BeforeValidator(_connect_seconds)] = 10.0
    """Seconds that ``connect`` waits for a server to answer. NPUCALL_CONNECT_TIMEOUT."""
    stream_from: Annotated[int | None, Field(ge=0)] = None
    """The client sends the arrays of a call in chunks if they have so many bytes or more, or more
    than the server's max_message_bytes. Not given: 4 MiB over gRPC; in frames only what has no room
    in a message, nor in memory that both see. NPUCALL_STREAM_FROM."""
    keep_memory: Annotated[int, Field(ge=0), BeforeValidator(_kept)] = 0
    """Bytes of freed memory that this process keeps for its next large arrays, at most 2 GiB; only
    on Linux with glibc. NPUCALL_KEEP_MEMORY."""
    tls: bool | None = None
    """Encrypt the connection, and make the server prove who it is (TLS). Not given: on, if ca,
    certificate or server_name is set and the target is no Unix socket. NPUCALL_TLS."""
    certificate: _File = ""
    """File with the client's certificate, as PEM, for servers that ask for one; needs key. The
    client reads both files again when they change. NPUCALL_CERTIFICATE."""
    key: _File = ""
    """File with the private key of certificate, as PEM, not encrypted. NPUCALL_KEY."""
    server_name: str = ""
    """Name in the server's certificate, if the target has another name, such as the near end of a
    tunnel; turns TLS on. NPUCALL_SERVER_NAME."""
    proxy: str | None = Field(default=None, repr=False)
    """HTTP proxy to the server (CONNECT), as http://HOST:PORT or http://NAME:PASSWORD@HOST:PORT;
    ``none``: no proxy. Not given: the first of the variables grpc_proxy, https_proxy and
    http_proxy, except for servers of this machine and those in no_grpc_proxy or no_proxy.
    NPUCALL_PROXY."""
    carrier: Literal["auto", "grpc"] = "auto"
    """``auto``: calls travel in frames, which cost less, where the server offers them and the
    client can reach them, else over gRPC; ``grpc``: always over gRPC. NPUCALL_CARRIER."""
    token_file: _File = ""
    """File with a token; the client reads it again when it changes. NPUCALL_TOKEN_FILE."""
    token_url: str = ""
    """Address that returns a token as JSON (``value``), as in CI jobs of GitHub.
    NPUCALL_TOKEN_URL."""
    token_url_bearer: str = Field(default="", repr=False)
    """The token that the client shows to token_url. NPUCALL_TOKEN_URL_BEARER."""
    send_unread: bool = False
    """Also send the values of inputs that an operator never reads, not only their shape and dtype.
    NPUCALL_SEND_UNREAD."""
    shared_memory_socket: str = ""
    """Path of the server's socket for shared memory on this side, if it is mounted at another path
    than the server's. NPUCALL_SHARED_MEMORY_SOCKET."""
    reservation: str = Field(default="", repr=False)
    """Key of the reservation of the device under which calls run; empty: none.
    NPUCALL_RESERVATION."""
    poison: bool = False
    """For tests: fill new memory of this process with a pattern, so that you see bytes that nobody
    wrote. NPUCALL_POISON."""
    record: _File = ""
    """File to which the client appends its calls with their arrays, 1 GiB at most, as ``npucall
    record`` does. Calls are slower meanwhile. NPUCALL_RECORD."""
    product: str = ""
    """With a pool, the family (``npucall info`` shows it) of the members to call; empty: any.
    NPUCALL_PRODUCT."""
    labels: Annotated[Mapping[str, str], BeforeValidator(_labels)] = Field(default_factory=dict)
    """With a pool, the labels that members to call must have: ``rack=3,kind=cpu``.
    NPUCALL_LABELS."""

    if not TYPE_CHECKING:  # type checkers know what the fields are

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                refused = _refused(error)
            else:
                return
            raise refused


class ClientSettings(Options):
    """How a client reaches its server, and what it asks for if a call does not say."""

    target: Annotated[str, BeforeValidator(checked_target)] = "127.0.0.1:50051"
    """HOST:PORT or unix:PATH of a server, ``local:``, ``recorded:FILE``, or a pool:
    ``pool:HOST:PORT,HOST:PORT``, ``pool:dns:NAME:PORT``, ``pool:file:PATH``,
    ``pool:directory:HOST:PORT``. A HOST alone means port 50051. NPUCALL_TARGET."""
    timeout: Annotated[float, BeforeValidator(_seconds)] = 60.0
    """Seconds until a call fails, retries included. NPUCALL_TIMEOUT."""
    wait: bool = True
    """Wait for a server that is full, or for a quota, as long as the server says and the timeout of
    the call allows, and send the call again. False: raise the refusal at once. NPUCALL_WAIT."""
    ca: _File = ""
    """File with the authorities that may have signed the server's certificate, as PEM; empty: those
    that gRPC comes with. NPUCALL_CA."""
    token: str | Callable[[], str] = Field(default="", repr=False)
    """A token that tells the server who calls. ``connect`` also takes a function that returns one;
    the client calls it again before the token expires. NPUCALL_TOKEN."""
    variant: str = ""
    """The variant to run if an operator has several; empty: the server's default.
    NPUCALL_VARIANT."""
    soc: str = ""
    """With a pool, the SoC of the members to call; empty: the pool may have only one. With
    ``local:``, the SoC whose rules apply; empty: Ascend910B1. NPUCALL_SOC."""

    @classmethod
    def of(cls, **given: Any) -> ClientSettings:
        """The settings given, None standing for not given; the rest from the environment.

        Raises SettingError, a ValueError, for a value that cannot be.
        """
        _warn_of_unknown()
        named = {key: value for key, value in given.items() if value is not None}
        environment = {
            name: value
            for name in cls.model_fields
            if (value := os.environ.get(f"NPUCALL_{name.upper()}"))  # an empty one counts as unset
        }
        for group in _TOGETHER:
            if group & named.keys():
                environment = {key: environment[key] for key in environment.keys() - group}
        values: dict[str, Any] = {**environment, **named}
        for name in environment.keys() & set(_TIMEOUTS) - named.keys():
            with suppress(ValueError):  # else the rule says what is wrong
                values[name] = float(environment[name])
        return cls(**values)

    @property
    def encrypts(self) -> bool:
        """Whether TLS is spoken with the server."""
        if self.tls is None:
            asked = self.ca or self.certificate or self.server_name
            return bool(asked) and not self.target.startswith("unix")
        return self.tls


_warned: set[str] = set()
"""Variables that were told once."""


def _warn_of_unknown() -> None:
    """Warns once of each variable of the environment that nothing of npucall reads."""
    for name, fault in variables.faults_of(os.environ.keys() - _warned).items():
        _warned.add(name)
        warnings.warn(fault, stacklevel=5)


def _refused(error: ValidationError) -> SettingError | TypeError:
    """What is wrong with the first of the settings, without a value that may be a secret."""
    fault = error.errors(include_url=False)[0]
    own = fault.get("ctx", {}).get("error")
    if isinstance(own, SettingError):
        return own
    name = str(fault["loc"][0])
    known = ClientSettings.model_fields
    if name not in known:
        return TypeError(f"{name}: no setting has this name{did_you_mean(name, known)}")
    said = fault["msg"].removeprefix("Value error, ")
    found = f", found {fault['input']!r}" if known[name].repr and own is None else ""
    said = said if said.startswith(f"{name}: ") else f"{name}: {said}"
    return SettingError(f"{said}{found} ({name}, NPUCALL_{name.upper()})", setting=name)


def environment_with(**settings: str) -> dict[str, str]:
    """This process's environment, for a child whose clients have these settings."""
    return {**os.environ, **{f"NPUCALL_{name.upper()}": text for name, text in settings.items()}}


def proxies_of_environment() -> dict[str, str]:
    """The variables that name proxies, in lower case, as gRPC reads them."""
    return {name: value for name, value in os.environ.items() if name.endswith("_proxy")}


def target_of_environment() -> str | None:
    """NPUCALL_TARGET, or None where it is not set."""
    return os.environ.get("NPUCALL_TARGET")
