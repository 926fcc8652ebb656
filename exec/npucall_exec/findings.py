"""What programs did although CANN leaves it undefined, or forgot to give back."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections import Counter
from pathlib import Path

_MOST_OF_A_KIND = 20


class Findings:
    """Prints each finding, at most 20 of a kind, and remembers all. For several threads."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._lock = threading.Lock()
        self._kinds: Counter[str] = Counter()
        self.found: list[str] = []
        self.refused: list[str] = []
        """What phase ones refused."""
        self.processes = 0
        """Processes that connected."""
        self.launches = 0

    def note(self, sentence: str) -> None:
        """Something to know."""
        with self._lock:
            self._say(sentence)

    def launched(self) -> None:
        """Counts a launch."""
        with self._lock:
            self.launches += 1

    def add(self, line: str) -> None:
        """A finding: function, colon, what."""
        with self._lock:
            self.found.append(line)
            kind = re.sub(r"0x[0-9a-f]+|\d+", "#", line)
            self._kinds[kind] += 1
            if self._kinds[kind] <= _MOST_OF_A_KIND:
                self._say(f"finding: {line}")
            elif self._kinds[kind] == _MOST_OF_A_KIND + 1:
                self._say(f"finding: {line}; others of this kind are not printed")

    def refuse(self, status: int, sentence: str) -> None:
        """A call that phase one refused, or that failed: samples print the number only."""
        with self._lock:
            self.refused.append(f"{status}: {sentence}")
            self._say(f"{status}: {sentence}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(f"npucall exec: {text}", file=sys.stderr, flush=True)

    def write(self, path: Path, code: int) -> None:
        """Writes the report of a program that ended with this exit code."""
        told = {
            "exit_code": code,
            "processes": self.processes,
            "launches": self.launches,
            "findings": self.found,
            "refused": self.refused,
        }
        path.write_text(json.dumps(told, indent=1) + "\n")
