"""The way to a server: direct, or through an HTTP proxy (CONNECT). No gRPC.

This module chooses the proxy, and not gRPC. gRPC cannot use a proxy for a host that ``no_proxy``
names, and it uses the proxies of the environment also for servers of this machine.
"""

from __future__ import annotations

import base64
import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from npucall_client.settings import proxies_of_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall_client.settings import ClientSettings

_VARIABLES = "grpc_proxy", "https_proxy", "http_proxy"
"""The first of them that is set counts, as for gRPC."""
_EXCEPTIONS = "no_grpc_proxy", "no_proxy"
"""The first that is set names the hosts without a proxy."""
_HTTP_PORT = 80
_UNIX = "unix:", "unix-abstract:"


class Proxy(NamedTuple):
    """An HTTP proxy; its texts never show its password."""

    address: str
    """HOST:PORT."""
    login: str
    """NAME:PASSWORD, or empty."""


class Way(NamedTuple):
    """How a channel comes to its server."""

    target: str
    """The target to which gRPC connects."""
    options: tuple[tuple[str, str | int], ...]
    """Further options for gRPC."""
    told: str
    """The text of an error about the way; empty if there is no proxy."""

    @property
    def is_straight(self) -> bool:
        """Whether there is no proxy."""
        return not any(name == "grpc.http_connect_server" for name, _ in self.options)


def way_to(settings: ClientSettings) -> Way:
    """The way to the target of the settings. Raises ValueError for an invalid proxy."""
    proxy, told = _proxy_of(settings)
    name = settings.server_name
    if proxy is None:
        own = (("grpc.default_authority", name),) if name else ()
        return Way(settings.target, (("grpc.enable_http_proxy", 0), *own), told)
    server = _without_scheme(settings.target)
    options: list[tuple[str, str | int]] = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.default_authority", name or server),  # whose certificate is checked
        ("grpc.http_connect_server", server),
    ]
    if proxy.login:
        login = base64.b64encode(proxy.login.encode()).decode()
        options.append(("grpc.http_connect_headers", f"Proxy-Authorization:Basic {login}"))
    return Way(proxy.address, tuple(options), told)


def is_local(target: str) -> bool:
    """Whether a target is on this machine."""
    if target.startswith(_UNIX):
        return True
    host = host_of(target)
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def host_of(target: str) -> str:
    """The name or address of a server's host; empty for a Unix socket."""
    if target.startswith(_UNIX):
        return ""
    return _without_scheme(target).rpartition(":")[0].strip("[]")


def _proxy_of(settings: ClientSettings) -> tuple[Proxy | None, str]:
    """The proxy to use, if any, and the text of an error about it."""
    if settings.target.startswith(_UNIX):
        return None, ""
    if settings.proxy is not None:
        if settings.proxy in {"", "none"}:
            return None, ""
        proxy = _parsed("proxy", settings.proxy)
        return proxy, f", through the HTTP proxy at {proxy.address} (NPUCALL_PROXY)"
    return _proxy_around(settings.target, proxies_of_environment())


def _proxy_around(target: str, environment: Mapping[str, str]) -> tuple[Proxy | None, str]:
    variable = next((each for each in _VARIABLES if each in environment), "")
    if not environment.get(variable) or is_local(target) or _is_excepted(target, environment):
        return None, ""
    try:
        proxy = _parsed(variable, environment[variable])
    except ValueError:
        return None, f", without a proxy, since {variable} in the environment is no HTTP proxy"
    return proxy, (
        f", through the HTTP proxy at {proxy.address} of the variable {variable} "
        "(NPUCALL_PROXY=none turns it off)"
    )


def _parsed(name: str, url: str) -> Proxy:
    """A proxy from its URL. Raises ValueError, which shows no password."""
    scheme = url.partition("://")[0] if "://" in url else ""
    with suppress(ValueError):
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _HTTP_PORT
        if parts.scheme == "http" and host:
            login = unquote(parts.netloc.rpartition("@")[0])
            return Proxy(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", login)
    found = f"{scheme}://..." if scheme.isalnum() else "something else"
    raise ValueError(
        f"{name}: expected http://HOST:PORT or http://NAME:PASSWORD@HOST:PORT of an HTTP proxy, "
        f"found {found}; set proxy (NPUCALL_PROXY)"
    )


def _is_excepted(target: str, environment: Mapping[str, str]) -> bool:
    """Whether ``no_proxy`` names a target: by the end of its name, or as a range of addresses."""
    variable = next((each for each in _EXCEPTIONS if each in environment), "")
    host = host_of(target)
    address = _address(host)
    for entry in environment.get(variable, "").split(","):
        named = entry.strip().lower()
        if named and host.lower().endswith(named):
            return True
        with suppress(ValueError):
            if address is not None and address in ipaddress.ip_network(named, strict=False):
                return True
    return False


def _without_scheme(target: str) -> str:
    """HOST:PORT, without the scheme of gRPC's own spellings."""
    for scheme in ("dns:", "ipv4:", "ipv6:"):
        if target.startswith(scheme):
            return target[len(scheme) :].rpartition("/")[2]
    return target


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
