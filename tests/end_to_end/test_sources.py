"""docs/sources.md has a row for each tag that is cited, and nothing cites what no reader has."""

import re
from contextlib import suppress
from pathlib import Path

from .pages import ROOT, tracked

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

HINT = re.compile(r"\.md|ocument|ssue ")
"""A part of each of them, which is found sooner."""


def texts() -> dict[str, str]:
    """Every tracked text file but the two that are about citations."""
    found = {}
    for path in tracked():
        if path not in (PAGE, Path(__file__)):
            with suppress(UnicodeDecodeError):  # compiled, such as proto/released
                found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    return found


TEXTS = texts()
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def test_every_row_has_a_tag_of_its_own_which_is_its_anchor() -> None:
    assert all(anchor == tag for anchor, tag in ROWS)
    assert len({tag for _, tag in ROWS}) == len(ROWS) >= 60
    assert len(ROWS) == PAGE.read_text(encoding="utf-8").count("| <a id=")


def test_the_tags_that_are_cited_are_those_that_have_a_row() -> None:
    cited = {tag: name for name, text in TEXTS.items() for tag in CITED.findall(text)}
    tags = {tag for _, tag in ROWS}
    assert {tag: name for tag, name in cited.items() if tag not in tags} == {}
    assert tags - set(cited) == set()


def test_nothing_cites_a_document_that_no_reader_has() -> None:
    found = [
        f"{name}:{number}: {match[0]}"
        for name, text in TEXTS.items()
        for number, line in enumerate(text.split("\n"), 1)
        if HINT.search(line) and (match := ABSENT.search(line))
    ]
    assert not found


def test_such_citations_are_found_and_links_to_pages_of_the_project_are_not() -> None:
    for text in (
        "# operators.md 2.3, in order", "forwards.md", "cann-abi.md 6.2", "founding document S2",
        "see architecture.md section 3", "pool.md 4", "performance.md", "(issue 11)",
    ):  # fmt: skip
        assert ABSENT.search(text), text
        assert HINT.search(text), text
    for text in (
        "[operators.md](operators.md)", "docs/architecture.md", "docs/operators.md has all",
        "[section 5](docs/architecture.md#5-where-each-change-goes)", "docs/pool.md, which says",
    ):  # fmt: skip
        assert not ABSENT.search(text), text
