"""Links of pages lead somewhere, pages name files that are there, generated ones are fresh."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.more import only

from npucall.operators import CATALOGUE

from .pages import FENCE, ROOT, files

SECONDS = 120

# What is built has pages of others: storage of containers.
FOLDERS = [p for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "." and p.name != "build"]
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.@-][\w./@-]*\.(py|md|toml|yml|txt|proto|svg|binpb|service)|[\w.-][\w./-]*/")

NUMBERS = {
    "README.md": r"(\d+): (\d+) forward operators and (\d+) gradients",
    "README.zh-CN.md": r"共 (\d+) 个：(\d+) 个前向算子，(\d+) 个反向",
}
"""How each language says how many operators there are, forward and backward."""


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def prose(page: Path) -> str:
    """What a page says outside code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def is_there(name: str, page: Path) -> bool:
    """Whether a page means a file or folder by this: from itself, the root, or any folder."""
    if (page.parent / name).exists() or (ROOT / name).exists():
        return True
    pattern = name.rstrip("/")
    return any(match for folder in FOLDERS for match in folder.rglob(pattern))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = {
        target.partition("#")[0] for target in LINK.findall(prose(page)) if ":" not in target
    }
    assert [t for t in sorted(targets) if t and not (page.parent / t).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_pages_lead_to_headings(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        file, _, anchor = target.partition("#")
        if anchor and ":" not in target:
            text = ((page.parent / file) if file else page).read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
            known = [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings]
            known += re.findall(r'<a id="([\w-]+)"></a>', text)
            broken += [target] if anchor not in known else []
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    own = {each.name for each in files(page.read_text(encoding="utf-8"))}
    named = {name for name in CODE.findall(prose(page)) if FILE.fullmatch(name)} - own
    assert [name for name in sorted(named) if not is_there(name, page)] == []


def test_every_page_of_docs_is_found_from_its_list() -> None:
    docs = ROOT / "docs"
    listed = {target.partition("#")[0] for target in LINK.findall(prose(docs / "README.md"))}
    assert sorted(page.name for page in docs.glob("*.md") if page.name not in listed) == [
        "README.md"
    ]


def test_the_numbers_of_operators_are_those_of_the_catalogue() -> None:
    names = {operator.name for operator in CATALOGUE}
    gradients = {name for name in names if re.search("Backward|Grad", name)}
    numbers = [str(len(each)) for each in (names, names - gradients, gradients)]
    for page, words in NUMBERS.items():
        assert re.findall(words, (ROOT / page).read_text(encoding="utf-8")) == [tuple(numbers)]


def test_generated_pages_are_up_to_date() -> None:
    done = run([sys.executable, "docs/generate.py", "--check"], ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "word"),
    only(
        ("docs/ascend.md", "aclnn"),
        ("docs/errors.md", "elsewhere"),
        ("docs/limits.md", "MAX_RANK"),
        ("docs/operators.md", "aclnn"),
    ),
)
def test_a_generated_page_that_was_edited_is_named(name: str, word: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for needed in "tests/abi/proofs.json", "proto/npucall/known_variables.py":
        (tmp_path / needed).parent.mkdir(parents=True)
        shutil.copy(ROOT / needed, tmp_path / needed)
    page = tmp_path / name
    page.write_text(page.read_text(encoding="utf-8").replace(word, "edited"), encoding="utf-8")
    done = run([sys.executable, "docs/generate.py", "--check"], tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"{name} is out of date: make docs\n"
