"""The file of tokens. Each has a line, in columns with spaces between them.

    # sha256 of the token    tenant  name   role  expires
    5e884898da28047151d0...  vision  alice  -     2027-02-20T10:00:00Z

The role is user, bench, admin or server, or ``-`` for the role that the tenant gives. The end is a
time in UTC, or ``never``. A # starts a comment. The file has no tokens, only their hashes: a token
is 256 random bits, so nobody can find it from its hash. Delete a line to revoke its token.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from npucall.environment.watched_file import WatchedFile
from npucall_server.access.refusals import LONGEST_NAME, is_name
from npucall_server.settings.tenants import TENANT_PATTERN, Role

PREFIX = "npc_"
"""Every token starts with it, so that scanners for leaked secrets find tokens."""
_SECRET_BYTES = 32
_COLUMNS = 5
_HASH = re.compile(r"[0-9a-f]{64}")
_TENANT = re.compile(TENANT_PATTERN)
_NO_ROLE, _NEVER = "-", "never"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_OTHERS_WRITE = 0o022
_HEAD = (
    "# sha256 of the token; tenant, name, role (- is the tenant's), end. Delete a line to revoke.\n"
)


class Token(NamedTuple):
    """What a line says about its token."""

    hash: str
    """SHA-256, in hexadecimal."""
    tenant: str
    name: str
    role: Role | None
    """None: the role that the tenant gives."""
    expires: float
    """Seconds since 1970; infinity if the token never expires."""

    @property
    def end(self) -> str:
        """When the token expires, as the file spells it."""
        if self.expires == math.inf:
            return _NEVER
        return datetime.fromtimestamp(self.expires, UTC).strftime(_TIME)

    def line(self) -> str:
        """Its line in the file."""
        role = _NO_ROLE if self.role is None else self.role.name.lower()
        return f"{self.hash}  {self.tenant}  {self.name}  {role}  {self.end}\n"


def new(tenant: str, name: str, role: Role | None, seconds: float) -> tuple[str, Token]:
    """A new token and its line. Raises ValueError if no line can say this."""
    text = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    token = Token(hash_of(text), tenant, name, role, time.time() + seconds)
    return text, parsed(token.line())


def hash_of(token: str) -> str:
    """The hash of a token, as the file has it."""
    return hashlib.sha256(token.encode()).hexdigest()


def parsed(line: str) -> Token:
    """What a line says. Raises ValueError."""
    columns = line.split()
    if len(columns) != _COLUMNS:
        raise ValueError(f"expected hash, tenant, name, role, end; found {len(columns)} columns")
    digest, tenant, name, role, end = columns
    if not _HASH.fullmatch(digest):
        raise ValueError("hash: expected 64 digits of 0 to 9 and a to f, found something else")
    if not _TENANT.fullmatch(tenant):
        raise ValueError(f"tenant: expected a name of a-z, 0-9, _, . and -, found {tenant!r}")
    if not is_name(name) or "#" in name:
        raise ValueError(f"name: expected at most {LONGEST_NAME} printable characters without #")
    return Token(digest, tenant, name, _role(role), _end(end))


def _role(text: str) -> Role | None:
    try:
        return None if text == _NO_ROLE else Role.named(text)
    except KeyError:
        raise ValueError(
            f"role: expected user, bench, admin, server or -, found {text!r}"
        ) from None


def _end(text: str) -> float:
    if text == _NEVER:
        return math.inf
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"end: expected a time as {_now()}, or {_NEVER}; found {text!r}") from None
    return end.replace(tzinfo=end.tzinfo or UTC).timestamp()


def _now() -> str:
    return datetime.now(UTC).strftime(_TIME)


def read(content: bytes) -> tuple[dict[str, Token], list[str]]:
    """The tokens by their hashes, and what is wrong with the lines that are no tokens."""
    tokens: dict[str, Token] = {}
    faults = []
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        said = line.partition("#")[0]
        if not said.strip():
            continue
        try:
            token = parsed(said)
        except ValueError as error:
            faults.append(f"line {number}: {error}")
            continue
        if tokens.setdefault(token.hash, token) is not token:
            faults.append(f"line {number}: expected a hash once, found it twice")
    return tokens, faults


def append(path: Path, token: Token) -> None:
    """Adds a line in one write, even if others write too. A new file is for its owner only."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        is_open = size and os.pread(descriptor, 1, size - 1) != b"\n"
        before = "\n" if is_open else "" if size else _HEAD
        os.write(descriptor, (before + token.line()).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class TokenFile:
    """The current tokens. Raises OSError if the file cannot be read at the start."""

    def __init__(self, path: Path) -> None:
        self._file = WatchedFile(path)
        self.path = path
        self.by_hash: dict[str, Token] = {}
        self.faults: list[str] = []
        """What is wrong with the file. Faulty lines are skipped; the others count."""
        self.look()

    def look(self) -> bool:
        """Reads the file again if it has changed. Answers whether it has.

        Raises OSError if it cannot be read; then the tokens stay as they were.
        """
        content = self._file.changed()
        if content is None:
            return False
        self.by_hash, self.faults = read(content)
        if self.path.stat().st_mode & _OTHERS_WRITE:
            self.faults.append(f"expected its owner alone to write it: chmod go-w {self.path}")
        return True
