"""Settings of who may call: the tenants, and the ways in which the server knows callers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from npucall.texts import missing_extra
from npucall_server.settings.expert import expert
from npucall_server.settings.issuers import checked_url, is_url
from npucall_server.settings.tenants import TenantTables

_OIDC = ("oidc_issuer", "oidc_audience", "oidc_keys")


class AccessSettings(BaseModel):
    """Who may call."""

    tenants: TenantTables = Field(
        default_factory=dict,
        description="Groups of callers, each a table [tenants.NAME] of the settings file. If "
        "there are any, every call has to come from a caller of a tenant, also over loopback and "
        "Unix sockets; if there are none, everybody may call. The server reads them again when "
        "the file changes, and on SIGHUP.",
    )
    token_hashes: Path | None = Field(
        None,
        description="File with the hashes of tokens, which `npucall-server token new` writes. "
        "Delete a line to revoke its token. Needs tenants.",
    )
    oidc_issuer: str | None = Field(
        None,
        description="Address of an OpenID Connect issuer: the server accepts its tokens (JWT). "
        "Write it as the tokens do, such as https://token.actions.githubusercontent.com. Needs "
        "tenants, --oidc-audience and the extra npucall-server[auth].",
    )
    oidc_audience: str | None = Field(
        None,
        min_length=1,
        description="The audience that such tokens must have: a name of this server.",
    )
    oidc_keys: str | None = expert(
        None,
        description="The issuer's public keys (JWKS): an address, or a file. Default: the "
        "address that the issuer gives at /.well-known/openid-configuration.",
    )
    oidc_tenant_claim: str = expert(
        "sub",
        min_length=1,
        description="The claim of a token that decides its tenant: the lists `claims` of the "
        "tenants name its values.",
    )
    oidc_name_claim: str = expert(
        "sub",
        min_length=1,
        description="The claim of a token that holds the caller's name.",
    )

    @field_validator("oidc_issuer", "oidc_keys")
    @classmethod
    def _check_issuer(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and (info.field_name == "oidc_issuer" or is_url(value)):
            checked_url(value)
        return value

    @model_validator(mode="after")
    def _ways_need_tenants(self) -> AccessSettings:
        given = [name for name in ("token_hashes", *_OIDC) if getattr(self, name) is not None]
        if given and not self.tenants:
            raise ValueError(
                f"{given[0]}: expected tenants with it, found none; add a table [tenants.NAME] to "
                "the settings file (config)"
            )
        return self

    @model_validator(mode="after")
    def _an_issuer_is_whole(self) -> AccessSettings:
        given = [name for name in _OIDC if getattr(self, name) is not None]
        for name in ("oidc_issuer", "oidc_audience"):
            if given and getattr(self, name) is None:
                raise ValueError(f"{name}: expected a value, since {given[0]} is set, found none")
        if given and find_spec("jwt") is None:
            raise ValueError(missing_extra("oidc_issuer", "npucall-server", "auth"))
        return self

    @property
    def knows_tokens(self) -> bool:
        """Whether callers without a certificate can prove who they are, wherever they are."""
        return bool(self.tenants) and (self.token_hashes or self.oidc_issuer) is not None
