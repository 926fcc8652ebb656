"""Follows a page as its reader does: writes its files, runs its commands, compares what they print.

In a page a block ``cpp``, ``python`` or ``toml`` whose first line is the comment NAME is a file.
In a block ``console`` a line that begins with ``$`` is a command, and what follows is what it
prints: ``...`` stands for what differs from run to run, within a line or, on a line of its own, for
lines. A command ends well unless the page shows an error. A block ``sh`` is not run here.
"""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANY_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

# What is built has pages of others: storage of containers.
FOLDERS = [p for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "." and p.name != "build"]
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """What a page says outside code blocks."""
    return _ANY_FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code of a page in this language."""
    return [block for found, block in FENCE.findall(text(page)) if found == language]


@cache
def tracked() -> list[Path]:
    """The files of the project, without those that git does not keep."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


class File(NamedTuple):
    name: str
    text: str


class Command(NamedTuple):
    line: str
    printed: str


def steps(page: str) -> list[File | Command]:
    """What a reader of this page writes and types, in the page's order."""
    found: list[File | Command] = []
    for language, text in FENCE.findall(page):
        first = text.partition("\n")[0]
        if language in ("cpp", "python", "toml") and re.fullmatch(r"(#|//) [\w.]+", first):
            found.append(File(first.split()[1], text))
        elif language == "console":
            commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
            found += [Command(*each) for each in commands]
    return found


def files(page: str) -> list[File]:
    """The files of a page."""
    return [step for step in steps(page) if isinstance(step, File)]
