"""Settings of a server that announces itself to directories, and what it says of itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from npucall import membership
from npucall.limits import MAX_LABEL_VALUE_BYTES, MAX_LABELS
from npucall_server.settings import addresses
from npucall_server.settings.addresses import Address, Security
from npucall_server.settings.listening import TransportSettings, named

_PORT = re.compile(r":[0-9]+$")
_WILDCARDS = ("", "*", "0.0.0.0", "::", "[::]")  # noqa: S104  # compared, not bound


def _labels(value: Any) -> Any:
    """A text with commas between its parts, or a list of them, as what it stands for."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        return value
    labels = {}
    for part in filter(None, map(str.strip, parts)):
        name, equals, text = part.partition("=")
        if not equals:
            raise ValueError(f"expected NAME=VALUE, found {part!r}")
        labels[name.strip()] = text.strip()
    return labels


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    if fault := membership.fault_of_labels(labels):
        raise ValueError(fault)
    return labels


def _directories(text: str) -> str:
    for each in filter(None, addresses.split_list(text)):
        address = _directory(each, Security.PLAIN)
        if addresses.unix_path(address.where) is None:
            membership.split_address(address.where)
    return text


def _directory(text: str, usual: Security) -> Address:
    """The address of a directory, which may leave out the port. Raises ValueError."""
    prefix, where = addresses.split_prefix(text)
    if addresses.unix_path(where) is None and not _PORT.search(where):
        where = f"{where}:{membership.DIRECTORY_PORT}"
    return addresses.parse(f"{prefix}:{where}" if prefix else where, usual)


def _member_address(text: str) -> str:
    if text:
        membership.split_address(text)
    return text


class AnnounceSettings(TransportSettings):
    """To whom the server announces itself, as what, and how it proves who it is."""

    announce: Annotated[str, AfterValidator(_directories)] = Field(
        "",
        description="Directories (npucall-directory) to which this server announces once a second "
        "that it is there and how busy it is: addresses with commas between them, HOST:PORT or "
        f"unix:PATH; the default port is {membership.DIRECTORY_PORT}. A prefix chooses the "
        "security: tls: is TLS, mtls: is TLS where the server shows its certificate, plain: is not "
        "encrypted. Without a prefix a port is plain if --announce-ca is not set; if it is, mtls "
        "if --tls-certificate is set and --announce-token-file is not, else tls. Default: none.",
    )
    advertise: Annotated[str, AfterValidator(_member_address)] = Field(
        "",
        description="HOST:PORT at which clients of the pool reach this server; its certificate "
        "has to name HOST. Default: the first address of --listen that has a host and a port.",
    )
    labels: Annotated[
        dict[str, str], NoDecode, BeforeValidator(_labels), AfterValidator(_check_labels)
    ] = Field(
        default_factory=dict,
        description="Labels of this server, by which clients of a pool choose members: --label "
        "rack=7, once for each label, or all with commas between them; in TOML a table. At most "
        f"{MAX_LABELS}, with values of up to {MAX_LABEL_VALUE_BYTES} bytes. Default: none.",
    )
    announce_ca: Path | None = Field(
        None,
        description="File with the certificates of the authorities that signed the directories' "
        "certificates, as PEM. Default: the system's, for addresses with the prefix tls: or "
        "mtls:.",
    )
    announce_token_file: Path | None = Field(
        None,
        description="File with the token that proves to directories who this server is; the "
        "server reads it at each connection. `npucall-server token new --role server` makes one. "
        "The server sends it to another machine only encrypted.",
    )

    @property
    def directories(self) -> tuple[Address, ...]:
        """The directories, each with how it is reached."""
        usual = Security.PLAIN
        if self.announce_ca is not None:
            proves = self.tls_certificate is not None and self.announce_token_file is None
            usual = Security.MTLS if proves else Security.TLS
        texts = filter(None, addresses.split_list(self.announce))
        return tuple(_directory(text, usual) for text in texts)

    @model_validator(mode="after")
    def _check_announcing(self) -> Self:
        if self.announce and not self.advertise:
            self.advertised([address.where for address in self.listens])
        with named("announce"):
            for address in self.directories:
                self._check_directory(address)
        return self

    def advertised(self, bound: list[str]) -> str:
        """The name of this server in a pool; ``bound`` are its addresses. Raises ValueError."""
        if self.advertise:
            return self.advertise
        where = next((each for each in bound if addresses.unix_path(each) is None), "")
        host = where.rpartition(":")[0]
        if host in _WILDCARDS:
            raise ValueError(
                f"advertise: expected HOST:PORT, since listen ({self.listen}) names no host that "
                "clients can reach, found none; set it (--advertise)"
            )
        return where

    def _check_directory(self, address: Address) -> None:
        """Raises ValueError with what keeps the server from announcing itself there."""
        if address.security is Security.MTLS and self.tls_certificate is None:
            raise ValueError(f"expected tls_certificate and tls_key for {address}, found none")
        plain = address.security is Security.PLAIN and not addresses.is_loopback(address.where)
        if plain and self.announce_token_file is not None:
            raise ValueError(
                f"expected TLS to {address.where}, since announce_token_file is set, found none; "
                "the server sends a token only encrypted: set announce_ca, or write tls: before "
                "the address"
            )
