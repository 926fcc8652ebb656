"""Addresses of issuers of tokens: of whom keys can be taken."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_url(text: str) -> bool:
    """Whether it is an address, and no path."""
    return "://" in text


def checked_url(url: str) -> str:
    """The address; raises ValueError where what comes from it could be anybody's."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return url
    raise ValueError(f"expected https://HOST..., found {url!r}")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
