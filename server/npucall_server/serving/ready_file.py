"""The ready file: it appears all at once, and nothing is written into a file of somebody else."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


def write(path: Path, text: str) -> None:
    """Puts a file with all of its content at a path at once. It replaces a file that is there.

    If somebody put a file or link at the path or at the draft's path, it is neither written to nor
    followed. Raises OSError.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(draft, _NEW_FILE, 0o644)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
