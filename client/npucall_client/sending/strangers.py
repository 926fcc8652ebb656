"""What answers at an address if the connection failed: TLS or none, HTTP/1, something else.

For most of them gRPC says "Socket closed", and tries again until the time is over.
"""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress

from npucall.texts import cut, shown

_SECONDS = 1.0
"""Time for an answer."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first bytes of a client of HTTP/2: the preface, and settings."""
_SETTINGS = 4
"""The type of the first frame from a server of HTTP/2, in its fourth byte."""
_ALERT = b"\x15\x03"
"""The first bytes with which a TLS server refuses a client without TLS."""
_HTTP_1 = (b"HTTP/", b"<")
"""How an answer of HTTP/1 begins; before HTTP/1.0 an answer had no head."""
_NOT_VERIFIED = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)")
"""gRPC's text, with the reason."""
_OTHER_NAME = re.compile(r"hostname verification|is not in peer certificate", re.IGNORECASE)
"""gRPC's texts, of several releases."""
_SHOWN_BYTES = 40
_USES_TLS = (
    "uses TLS; set tls (NPUCALL_TLS=true), or ca (NPUCALL_CA) to the authority of its certificate"
)
_HAS_NO_TLS = (
    "does not use TLS; set tls=False (NPUCALL_TLS=false), or do not give ca, certificate and "
    "server_name"
)
_MEANT = "; correct the target (NPUCALL_TARGET)"


def other_service(address: str) -> str:
    """A sentence on a gRPC server that does not know npucall's methods."""
    return (
        f"target: the gRPC server at {address} is no npucall server (UNIMPLEMENTED){_MEANT}; that "
        f"of a directory is pool:directory:{address}"
    )


def untrusted(address: str, said: str) -> str:
    """A sentence on a certificate that the client does not trust, from gRPC's text.

    Empty if the text is about something else.
    """
    if refused := _NOT_VERIFIED.search(said):
        return (
            f"target: the client does not trust the certificate of the server at {address} "
            f"({refused[1]}); name the authority that signed it (NPUCALL_CA)"
        )
    if _OTHER_NAME.search(said):
        return (
            f"target: the certificate of the server at {address} is for another host; say for "
            "which one (NPUCALL_SERVER_NAME)"
        )
    return ""


def misfit(address: str, *, encrypts: bool) -> str:
    """A sentence on what answers at HOST:PORT, if the client does not speak its protocol.

    One too if no host has that name. Empty if the client speaks it, if nothing answers, and if it
    cannot be found out. Blocks for at most three seconds.
    """
    try:
        return _misfit(_first_bytes(address), address, encrypts=encrypts)
    except socket.gaierror as error:
        host = address.rpartition(":")[0]
        none = f"target: no host has the name {host}; correct the target (NPUCALL_TARGET)"
        return none if error.errno == socket.EAI_NONAME else ""
    except (OSError, ValueError):
        return ""


def _misfit(first: bytes, address: str, *, encrypts: bool) -> str:
    if first.startswith(_ALERT) or (not first and _speaks_tls(address)):
        return "" if encrypts else f"target: the server at {address} {_USES_TLS}"
    if first.startswith(_HTTP_1):
        return f"target: an HTTP/1 server answers at {address}, and no npucall server" + _MEANT
    if first[3:4] == bytes((_SETTINGS,)) and first[:1] == b"\0":
        return f"target: the server at {address} {_HAS_NO_TLS}" if encrypts else ""
    if first:
        said = shown(cut(first.decode(errors="replace").strip(), _SHOWN_BYTES))
        return f"target: no gRPC server answers at {address}; it says {said!r}" + _MEANT
    return ""


def refusal(address: str, certificate: str, key: str) -> str:
    """What to say of a server that ends the connection after a TLS handshake; empty if it does not.

    A server checks the client's certificate then. A proxy in front of a server that is not there
    does the same, so this says nothing about the cause. Blocks for at most two seconds.
    """
    with suppress(OSError, ValueError):
        if _ends_after_handshake(address, certificate, key):
            return (
                "the server ends the connection after the TLS handshake, as a server does that "
                f"wants {'another' if certificate else 'a'} certificate of the client "
                "(NPUCALL_CERTIFICATE, NPUCALL_KEY)"
            )
    return ""


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _SECONDS)


def _first_bytes(address: str) -> bytes:
    """What a server says to a client of HTTP/2; empty if it closes the connection."""
    with _connected(address) as connection:
        connection.sendall(_GREETING)
        with suppress(ConnectionError):
            return connection.recv(_SHOWN_BYTES)
    return b""


def _speaks_tls(address: str) -> bool:
    """Whether a handshake begins."""
    with _connected(address) as connection, _context().wrap_socket(connection) as encrypted:
        return encrypted.version() is not None


def _ends_after_handshake(address: str, certificate: str, key: str) -> bool:
    """Whether a server sends no HTTP/2 settings after the handshake, but ends the connection."""
    context = _context()
    if certificate and key:
        context.load_cert_chain(certificate, key)
    with _connected(address) as connection, context.wrap_socket(connection) as encrypted:
        try:
            return not encrypted.recv(1)
        except TimeoutError:
            return False
        except (ssl.SSLError, ConnectionError):  # an alert, such as CERTIFICATE_REQUIRED
            return True


def _context() -> ssl.SSLContext:
    """For a handshake that sends nothing after it, so that certificates need not be checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context
