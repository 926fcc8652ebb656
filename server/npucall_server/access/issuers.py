"""Addresses of issuers of tokens: of whom keys can be taken."""

from __future__ import annotations

from urllib.parse import urlsplit

from npucall_server.addresses import is_loopback_host


def is_url(text: str) -> bool:
    """Whether it is an address, and no path."""
    return "://" in text


def checked_url(url: str) -> str:
    """The address; raises ValueError where what comes from it could be anybody's."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and is_loopback_host(parts.hostname or ""):
        return url
    raise ValueError(f"expected https://HOST..., found {url!r}")
