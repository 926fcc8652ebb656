"""Checks the addresses of issuers of tokens, from which the server takes their keys."""

from __future__ import annotations

from urllib.parse import urlsplit

from npucall_server.settings.addresses import is_loopback_host


def is_url(text: str) -> bool:
    """Whether the text is an address and not a path."""
    return "://" in text


def checked_url(url: str) -> str:
    """The address. Raises ValueError if somebody else could answer in its place."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and is_loopback_host(parts.hostname or ""):
        return url
    raise ValueError(f"expected https://HOST..., found {url!r}")
