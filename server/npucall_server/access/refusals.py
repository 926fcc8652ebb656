"""Why a credential is refused, by name: ``details["fault"]`` of the error."""

from __future__ import annotations

from typing import Literal

from npucall.errors import CredentialExpiredError, CredentialInvalidError

Fault = Literal[
    "malformed", "unknown", "revoked", "key", "algorithm", "signature", "audience", "issuer",
    "not_yet_valid", "claim", "certificate", "person",
]  # fmt: skip


def invalid(fault: Fault, sentence: str) -> CredentialInvalidError:
    """The error for a credential that is not valid."""
    return CredentialInvalidError(f"credential: {sentence}", fault=fault)


def expired(sentence: str) -> CredentialExpiredError:
    """The error for a credential that has expired."""
    return CredentialExpiredError(f"credential: {sentence}", fault="expired")


def check_name(name: object, what: str) -> str:
    """The name of a caller. Raises CredentialInvalidError if it cannot be a name.

    Logs, listings and accounts show it, so it is printable, short, and has no spaces at its ends.
    """
    if isinstance(name, str) and is_name(name):
        return name
    raise invalid("claim", f"expected {what} of 1 to {LONGEST_NAME} printable characters")


def is_name(name: str) -> bool:
    """Whether a caller may have that name."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()


LONGEST_NAME = 200
"""Characters."""
