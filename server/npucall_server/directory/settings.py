"""Every setting of a directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from npucall.membership import DIRECTORY_PORT, check_address
from npucall_server.front_settings import FrontSettings, read_as
from npucall_server.transport_settings import LISTEN, with_commas

if TYPE_CHECKING:
    from collections.abc import Sequence


_STORE = "etcd://"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")


def _known_store(text: str) -> str:
    if not text:
        return text
    hosts, name = _store_parts(text)
    if not text.startswith(_STORE) or not _NAME.fullmatch(name):
        raise ValueError(f"expected etcd://HOST:PORT[,HOST:PORT...][/NAME], found {text!r}")
    for host in hosts:
        check_address(host)
    return text


def _store_parts(text: str) -> tuple[tuple[str, ...], str]:
    hosts, _, name = text.removeprefix(_STORE).partition("/")
    return tuple(host.strip() for host in hosts.split(",") if host.strip()), name or "npucall"


class DirectorySettings(FrontSettings):
    """The directory of a pool: servers announce themselves there, and clients watch the list.

    It keeps the list in memory, and has it whole again a second after a restart; calls never pass
    through it. One directory is enough; several need an etcd (--store). Servers name it with
    --announce, clients as pool:directory:HOST:PORT. Give a setting as a flag, as an environment
    variable NPUCALL_DIRECTORY_<NAME>, or as a line of the TOML file that --config names; the first
    of these counts. npucall-server makes and checks certificates, tokens and tenants:
    `npucall-server certificates`, `npucall-server token new`.
    """

    model_config = SettingsConfigDict(
        env_prefix="NPUCALL_DIRECTORY_", cli_prog_name="npucall-directory"
    )

    listen: Annotated[str, BeforeValidator(with_commas)] = Field(
        f"127.0.0.1:{DIRECTORY_PORT}", description=LISTEN
    )
    store: Annotated[str, AfterValidator(_known_store)] = Field(
        "",
        description="An etcd through which several directories of one pool share what they "
        "know: etcd://HOST:PORT[,HOST:PORT...][/NAME], with the pool's own NAME in that etcd "
        "(npucall if there is none). A server may then announce itself to any of them, and a "
        "client may watch any. Everybody who can write there can add members. Default: none, for "
        "a single directory.",
    )
    store_ca: Path | None = Field(
        None,
        description="File with the certificates of the authorities that signed etcd's "
        "certificates, as PEM. Default: no encryption.",
    )
    store_certificate: Path | None = Field(
        None, description="File with the certificate that this directory shows to etcd, as PEM."
    )
    store_key: Path | None = Field(
        None, description="File with the private key of --store-certificate, as PEM."
    )
    max_connections: int = Field(
        4096,
        ge=1,
        description="Connections that may be open, one for each server and each client; the "
        "directory closes any more at once. Never more than the process may have open files, less "
        "a few.",
    )

    @property
    def store_parts(self) -> tuple[tuple[str, ...], str]:
        """The hosts of the store, and the pool's name there; no hosts where there is none."""
        return _store_parts(self.store)

    @model_validator(mode="after")
    def _check_store(self) -> Self:
        if (self.store_certificate is None) != (self.store_key is None):
            raise ValueError(
                "store_certificate: expected store_certificate and store_key, found one of them"
            )
        for name in "store_ca", "store_certificate":
            if getattr(self, name) is not None and not self.store:
                raise ValueError(f"{name}: expected store, since {name} is set, found none")
        if self.store_certificate is not None and self.store_ca is None:
            raise ValueError(
                "store_certificate: expected store_ca, since store_certificate is set, found none"
            )
        return self


def read(arguments: Sequence[str]) -> DirectorySettings:
    """The settings that hold with these arguments of the command line.

    Raises ValueError, a line for each fault.
    """
    return read_as(DirectorySettings, arguments)
