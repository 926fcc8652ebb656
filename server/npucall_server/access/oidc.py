"""Tokens of an OpenID Connect issuer (JWT), such as CI jobs have. Needs the extra ``auth``."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, NamedTuple

import jwt

from npucall.errors import UnauthenticatedError
from npucall_server.access.keys import FetchedKeys, FileKeys, Keys
from npucall_server.access.refusals import Fault, check_name, expired, invalid
from npucall_server.settings.access import AccessSettings
from npucall_server.settings.issuers import is_url
from npucall_server.telemetry.log import Log

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Only asymmetric ones: a server that can check a token must not be able to make one."""
LEEWAY_SECONDS = 30.0
"""How much clocks may differ."""
_LONGEST = 16_384
"""The most characters of a token; gRPC itself allows 16 KiB of metadata."""
_REQUIRED = ["exp", "iss", "aud"]

_FAULTS: tuple[tuple[type[jwt.PyJWTError], Fault, str], ...] = (
    (jwt.InvalidSignatureError, "signature", "that the issuer signed"),
    (jwt.ImmatureSignatureError, "not_yet_valid", "that is valid already"),
    (jwt.InvalidAudienceError, "audience", "for the audience {audience!r} (oidc_audience)"),
    (jwt.InvalidIssuerError, "issuer", "of the issuer {issuer} (oidc_issuer)"),
    (jwt.InvalidAlgorithmError, "algorithm", "signed by one of {algorithms}"),
    (jwt.InvalidKeyError, "key", "with a key that fits its algorithm"),
    (jwt.MissingRequiredClaimError, "claim", "with the claims exp, iss and aud"),
    (jwt.DecodeError, "malformed", "that is a JSON Web Token"),
    (jwt.PyJWTError, "claim", "with claims in the standard's form"),
)
"""The fault for each of PyJWT's errors. The first class that fits counts."""


class Claims(NamedTuple):
    """What a token says of its caller."""

    tenant: str
    """The value that the settings of tenants are compared with."""
    name: str
    expires: float
    """When the server starts to refuse the token, in seconds since 1970."""


class Issuer:
    """An issuer whose tokens are accepted.

    Raises OSError and ValueError for a file without keys.
    """

    def __init__(self, settings: AccessSettings, log: Log) -> None:
        issuer, audience = settings.oidc_issuer, settings.oidc_audience
        assert issuer is not None  # noqa: S101  # the settings are checked
        assert audience is not None  # noqa: S101  # as above
        self._issuer, self._audience = issuer, audience
        self._tenant_claim, self._name_claim = settings.oidc_tenant_claim, settings.oidc_name_claim
        keys = settings.oidc_keys or ""
        self.keys: Keys = (
            FileKeys(Path(keys), log)
            if keys and not is_url(keys)
            else FetchedKeys(keys, issuer, log)
        )

    def known(self, token: str) -> Claims:
        """What a token of the issuer says. Raises UnauthenticatedError."""
        _check_spelling(token)
        try:
            claims = self._decoded(token)
        except jwt.ExpiredSignatureError:
            raise expired("the token has expired (claim exp); get a new one") from None
        except jwt.PyJWTError as error:
            raise self._refusal(error) from error
        except RecursionError:  # JSON in JSON in JSON, which anybody can write
            raise self._refusal(jwt.DecodeError()) from None
        except (TypeError, ValueError) as error:  # a key that does not fit the algorithm
            raise self._refusal(jwt.InvalidKeyError()) from error
        tenant = claims.get(self._tenant_claim)
        if not isinstance(tenant, str):
            raise invalid("claim", f"expected a text in the claim {self._tenant_claim}, found none")
        name = check_name(claims.get(self._name_claim), f"the claim {self._name_claim}")
        return Claims(tenant, name, float(claims["exp"]) + LEEWAY_SECONDS)

    def _decoded(self, token: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError
        key = self.keys.find(header.get("kid"))
        if key is None:
            raise invalid(
                "key",
                "this server does not know the key that signed the token; it asks the issuer for "
                "new keys once a minute: repeat the call then",
            )
        return jwt.decode(
            token,
            key.key,
            [algorithm],
            audience=self._audience,
            issuer=self._issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": _REQUIRED},
        )

    def _refusal(self, error: jwt.PyJWTError) -> UnauthenticatedError:
        fault, wanted = next(row[1:] for row in _FAULTS if isinstance(error, row[0]))
        texts = {
            "audience": self._audience,
            "issuer": self._issuer,
            "algorithms": ", ".join(ALGORITHMS),
        }
        return invalid(fault, f"expected a token {wanted.format(**texts)}, found another one")


def _check_spelling(token: str) -> None:
    """Raises CredentialInvalidError for a token that spells the same bytes in another way."""
    try:
        is_canonical = len(token) <= _LONGEST and all(map(_is_canonical, token.split(".")))
    except ValueError:
        is_canonical = False
    if not is_canonical:
        raise invalid("malformed", "expected a token that is a JSON Web Token, found another one")


def _is_canonical(part: str) -> bool:
    data = base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)
    return base64.urlsafe_b64encode(data).decode().rstrip("=") == part
