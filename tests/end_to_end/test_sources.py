"""docs/sources.md has a row for each tag that is cited, and nothing cites what no reader has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sources.md"

ROW = re.compile(
    r'^\| <a id="([a-z0-9-]+)"></a>`src:([a-z0-9-]+)` \| [^|]+ \| [^|]+ \|$', re.MULTILINE
)
CITED = re.compile(r"\[src:([\w .-]+)\]")
ABSENT = re.compile(
    r"\b(?:forwards|cann-abi|performance|perf-peers)\.md\b"  # working documents
    r"|\b(?:operators|pool|architecture)\.md,? (?:part |section )?\d"  # their sections
    r"|(?<![\w/(\"-])(?:operators|forwards)\.md (?:has|names|says|lists)"
    r"|\bfounding[ -]documents?\b|\bdocuments? S\d|\bworking documents?\b"
    r"|\b[Ii]ssue \d+\b",
)


def texts() -> dict[str, str]:
    """Every tracked text file but the two that are about citations."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = {}
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path in (PAGE, Path(__file__)) or not path.is_file():
            continue
        try:
            found[name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # compiled, such as proto/released
    return found


TEXTS = texts()
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def test_every_row_has_a_tag_of_its_own_which_is_its_anchor() -> None:
    assert all(anchor == tag for anchor, tag in ROWS)
    assert len({tag for _, tag in ROWS}) == len(ROWS) >= 60
    assert len(ROWS) == PAGE.read_text(encoding="utf-8").count("| <a id=")


def test_every_tag_that_is_cited_has_a_row() -> None:
    tags = {tag for _, tag in ROWS}
    missing = [
        f"{name}: {tag}"
        for name, text in TEXTS.items()
        for tag in CITED.findall(text)
        if tag not in tags
    ]
    assert not missing


def test_every_row_is_cited() -> None:
    cited = {tag for text in TEXTS.values() for tag in CITED.findall(text)}
    assert {tag for _, tag in ROWS} <= cited


def test_nothing_cites_a_document_that_no_reader_has() -> None:
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for name, text in TEXTS.items()
        for match in ABSENT.finditer(text)
    ]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "# operators.md 2.3, in order", "forwards.md", "cann-abi.md 6.2", "founding document S2",
        "see architecture.md section 3", "pool.md 4", "performance.md", "(issue 11)",
    ],
)  # fmt: skip
def test_such_citations_are_found(text: str) -> None:
    assert ABSENT.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "[operators.md](operators.md)", "docs/architecture.md", "docs/operators.md has all",
        "[section 5](docs/architecture.md#5-where-each-change-goes)", "docs/pool.md, which says",
    ],
)  # fmt: skip
def test_links_to_pages_of_the_project_are_not(text: str) -> None:
    assert not ABSENT.search(text)
