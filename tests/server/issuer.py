"""An issuer of tokens (OpenID Connect) on loopback, that does what a test tells it."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE = "npucall-test"
KINDS = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


class Issuer:
    """A server of its configuration and its public keys. ``keys`` are the private ones, by name."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, Any]] = {}
        self.asked: list[str] = []
        """The paths that were asked for."""
        self.broken = False
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                body = issuer.answer(self.path)
                self.send_response(500 if issuer.broken else 200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.add("one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, name: str, algorithm: str = "RS256") -> Any:
        """Makes a key; answers the private one."""
        self.keys[name] = algorithm, KINDS[algorithm]()
        return self.keys[name][1]

    def answer(self, path: str) -> bytes:
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        return self.jwks()

    def jwks(self) -> bytes:
        """Its public keys."""
        return json.dumps({"keys": [self._public(name) for name in self.keys]}).encode()

    def _public(self, name: str) -> dict[str, Any]:
        algorithm, key = self.keys[name]
        kind = jwt.get_algorithm_by_name(algorithm)
        entry: dict[str, Any] = json.loads(kind.to_jwk(key.public_key()))
        entry.pop("key_ops", None)
        return {**entry, "kid": name, "use": "sig"}

    def public_pem(self, name: str = "one") -> bytes:
        key = self.keys[name][1].public_key()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return key.public_bytes(serialization.Encoding.PEM, form)

    def token(self, name: str = "", *, seconds: float = 600, **claims: Any) -> str:
        """A token that its key, or its first one, signs; a claim that is None is left out."""
        name = name or next(iter(self.keys))
        algorithm, key = self.keys[name]
        return jwt.encode(self.claims(seconds, **claims), key, algorithm, {"kid": name})

    def claims(self, seconds: float = 600, **others: Any) -> dict[str, Any]:
        now = time.time()
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "repo:lab/vision:ref:refs/heads/main",
            "iat": int(now) - 60,
            "exp": int(now + seconds),
            **others,
        }
        return {name: value for name, value in claims.items() if value is not None}


def write_keys(issuer: Issuer, path: Path) -> Path:
    """Its public keys as a file."""
    path.write_bytes(issuer.jwks())
    return path
