"""Settings of the addresses: where the server listens, and what encrypts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from npucall_server.settings import addresses
from npucall_server.settings.addresses import Address, Security
from npucall_server.settings.expert import expert

_PORT = 50051
LISTEN = (
    "Addresses to listen on, with commas between them (in TOML also a list): HOST:PORT, with port "
    "0 for any free one, or unix:PATH. A prefix chooses the security: mtls: is TLS where callers "
    "show a certificate, tls: is TLS where they show none, plain: is not encrypted. Without a "
    "prefix a Unix socket is plain, and a port is mtls if --tls-client-ca is set, else tls if "
    "--tls-certificate is set, else plain. An address beyond loopback needs TLS and a way to know "
    "callers, or --insecure-bind."
)
"""What the setting listen means."""


def with_commas(listen: Any) -> Any:
    """A list, which TOML may give, as the one text that it stands for."""
    is_list = isinstance(listen, list) and all(isinstance(each, str) for each in listen)
    return ",".join(listen) if is_list else listen


class TransportSettings(BaseModel):
    """Where callers come in, and who reads what they send on its way."""

    listen: Annotated[str, BeforeValidator(with_commas)] = Field(
        f"127.0.0.1:{_PORT}",
        description=LISTEN,
    )
    listen_host: str = expert(
        "",
        description="Only the host of that address, for supervisors that choose the port "
        "themselves. If --listen has a host too, both have to be the same.",
    )
    insecure_bind: bool = Field(
        default=False,
        description="Allow addresses beyond loopback without encryption, or where callers need "
        "not prove who they are.",
    )
    tls_certificate: Path | None = Field(
        None,
        description="File with the server's certificate and those between it and its authority, "
        "as PEM. The server reads this file, --tls-key and --tls-client-ca again when they "
        "change.",
    )
    tls_key: Path | None = Field(
        None, description="File with the private key of --tls-certificate, as PEM, not encrypted."
    )
    tls_client_ca: Path | None = Field(
        None,
        description="File with the certificates of the authorities that sign the certificates "
        "of callers (mtls:), as PEM.",
    )
    health_listen: str = Field(
        "",
        description="Another address, only for grpc.health.v1.Health, without TLS and "
        "credentials: for probes that have none. Default: none.",
    )

    @property
    def listens(self) -> tuple[Address, ...]:
        """The addresses, each with its security."""
        return tuple(map(self.address_of, addresses.split_list(self.listen)))

    def address_of(self, text: str) -> Address:
        """An address, secured as it says, or as it is usual. Raises ValueError."""
        usual = Security.PLAIN
        if self.tls_certificate is not None:
            usual = Security.TLS if self.tls_client_ca is None else Security.MTLS
        return addresses.parse(text, usual)

    @property
    def knows_tokens(self) -> bool:
        """Whether callers without a certificate can prove who they are."""
        return False

    @property
    def is_on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return all(addresses.is_loopback(address.where) for address in self.listens)

    @model_validator(mode="before")
    @classmethod
    def _give_the_address_its_host(cls, values: dict[str, Any]) -> dict[str, Any]:
        host, listen = values.get("listen_host"), with_commas(values.get("listen", f":{_PORT}"))
        if not host or not isinstance(host, str) or not isinstance(listen, str):
            return values
        texts = addresses.split_list(listen)
        if len(texts) > 1:
            raise ValueError(
                f"listen_host: expected one address in listen, found {len(texts)}; name the host "
                "in each of them instead"
            )
        with named("listen"):
            addresses.check(addresses.split_prefix(texts[0])[1])
        return {**values, "listen": addresses.at_host(host, texts[0])}

    @model_validator(mode="after")
    def _check_certificates(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            found, missing = "tls_certificate", "tls_key"
            if self.tls_certificate is None:
                found, missing = missing, found
            raise ValueError(f"{missing}: expected a file, since {found} is set, found none")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError(
                "tls_certificate: expected a file, since tls_client_ca is set, found none; set "
                "tls_certificate and tls_key"
            )
        return self

    @model_validator(mode="after")
    def _check_addresses(self) -> Self:
        with named("listen"):
            for address in self.listens:
                self.check_address(address)
        if self.health_listen:
            with named("health_listen"):
                addresses.check(self.health_listen)
        return self

    def check_address(self, address: Address) -> None:
        """Raises ValueError with what keeps an address from being bound."""
        if address.security is not Security.PLAIN and self.tls_certificate is None:
            raise ValueError(f"expected tls_certificate and tls_key for {address}, found none")
        if address.security is Security.MTLS and self.tls_client_ca is None:
            raise ValueError(f"expected tls_client_ca for {address}, found none")
        if self.insecure_bind or addresses.is_loopback(address.where):
            return
        if address.security is Security.PLAIN:
            raise ValueError(
                f"expected a loopback address or TLS, found {address.where} without TLS; set "
                "tls_certificate, or insecure_bind (--insecure-bind) if you trust the network"
            )
        if address.security is Security.TLS and not self.knows_tokens:
            raise ValueError(
                f"expected a way to know the callers of {address}, found none; set token_hashes or "
                "oidc_issuer, or tls_client_ca for mtls:, or insecure_bind (--insecure-bind) to "
                "let in everybody"
            )


def socket_of_systemd() -> str:
    """Where a unit of Type=notify says that it is ready; empty if nobody asks."""
    return os.environ.get("NOTIFY_SOCKET", "")


@contextmanager
def named(setting: str) -> Iterator[None]:
    """Puts a setting's name before what is wrong with its value."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from None
