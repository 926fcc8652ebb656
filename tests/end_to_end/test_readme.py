"""Links of pages lead somewhere, pages name files that are there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import FOLDERS, PAGES, ROOT, Command, blocks, files, prose, steps, text

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.@-][\w./@-]*\.(py|md|toml|yml|txt|proto|svg|binpb|service)|[\w.-][\w./-]*/")

TUTORIALS = (
    "README.md",
    "README.zh-CN.md",
    "docs/pool.md",
    "docs/laptop.md",
    "docs/ci.md",
    "docs/kernel.md",
    "docs/commands.md",
)
OF_HOSTS = {"server.toml", "cpu.toml", "server-3.toml"}
"""Files that an administrator writes on a host."""


def is_there(name: str, page: Path) -> bool:
    """Whether a page means a file or folder by this: from itself, the root, or any folder."""
    if (page.parent / name).exists() or (ROOT / name).exists():
        return True
    pattern = name.rstrip("/")
    return any(match for folder in FOLDERS for match in folder.rglob(pattern))


def test_relative_links_lead_to_files_and_headings() -> None:
    broken = []
    for page in PAGES:
        for target in LINK.findall(prose(page)):
            file, _, anchor = target.partition("#")
            there = (page.parent / file) if file else page
            if ":" in target or (there.exists() and (not anchor or anchor in anchors(there))):
                continue
            broken.append((page, target))
    assert broken == []


def anchors(page: Path) -> list[str]:
    """What links can lead to within a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    known = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return known + re.findall(r'<a id="([\w-]+)"></a>', page.read_text(encoding="utf-8"))


def test_files_that_a_page_names_are_there() -> None:
    missing = []
    for page in PAGES:
        own = {each.name for each in files(page.read_text(encoding="utf-8"))}
        named = (
            {name for name in CODE.findall(prose(page)) if FILE.fullmatch(name)} - own - OF_HOSTS
        )
        missing += [(page, name) for name in sorted(named) if not is_there(name, page)]
    assert missing == []


def test_every_page_of_docs_is_found_from_its_list() -> None:
    docs = ROOT / "docs"
    listed = {target.partition("#")[0] for target in LINK.findall(prose(docs / "README.md"))}
    assert sorted(page.name for page in docs.glob("*.md") if page.name not in listed) == [
        "README.md"
    ]


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "word"),
    {
        "docs/ascend.md": "aclnn",
        "docs/errors.md": "elsewhere",
        "docs/limits.md": "MAX_RANK",
        "docs/operators.md": "aclnn",
    }.items(),
)
def test_a_generated_page_that_was_edited_is_named(name: str, word: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    written = "proto/npucall/ops.pyi", "proto/npucall/environment/known_variables.py"
    for needed in "README.md", "README.zh-CN.md", "tests/abi/proofs.json", *written:
        (tmp_path / needed).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / needed, tmp_path / needed)
    page = tmp_path / name
    page.write_text(page.read_text(encoding="utf-8").replace(word, "edited"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, f"{name} is out of date: make docs\n")


def test_the_letters_of_the_demos_picture_can_be_read_at_the_width_of_a_page() -> None:
    """13 pixels on a page of 830, as code hosts show it."""
    picture = text("docs/demo.svg")
    (width,) = re.findall(r'viewBox="0 0 ([\d.]+) ', picture)
    (size,) = set(re.findall(r"-matrix \{[^}]*font-size: (\d+)px", picture))
    assert int(size) * 830 / float(width) >= 13
    assert "\N{HORIZONTAL ELLIPSIS}" not in picture


# --- Its tutorials, and what is in Chinese --------------------------------------------------------


def test_the_readme_begins_with_the_two_commands_that_ci_runs() -> None:
    for page in "README.md", "README.zh-CN.md":
        first = blocks(page, "sh")[0]
        assert re.findall(r"^make \w+", first, re.MULTILINE) == ["make demo", "make test"]


def test_every_program_of_a_tutorial_is_run_there_and_each_kind_of_user_has_one() -> None:
    shown = set()
    for page in TUTORIALS:
        said = " ".join(step.line for step in steps(text(page)) if isinstance(step, Command))
        programs = {
            block.name
            for block in files(text(page))
            if f"from {Path(block.name).stem} import" not in text(page)
        }
        assert [name for name in programs - {"conftest.py"} if name not in said] == [], page
        shown |= programs
    assert shown >= {"first.py", "check_kernel.py", "pool.py", "conftest.py", "test_loss.py"}


def shell(page: str) -> list[str]:
    """The lines that a page has its reader type, without remarks and indentation."""
    found = re.findall(r"^ *```sh\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"\s+# .*", "", line).strip() for block in found for line in block.splitlines()]
    return [line for line in lines if line]


def first_run(page: str) -> str:
    """The page from its first step on, without what follows the first run in Docker."""
    start = page.index("\n1. ")
    return page[start : page.index("docker compose --profile npu up npu")] + "\n```\n"


def test_the_chinese_pages_have_the_code_of_the_english_ones() -> None:
    english, chinese = text("README.md"), text("README.zh-CN.md")
    assert shell(chinese) == shell(english)
    assert steps(chinese) == steps(english)
    english, chinese = text("docs/ascend.md"), text("docs/ascend.zh-CN.md")
    assert len(shell(first_run(english))) > 10
    assert shell(first_run(chinese)) == shell(first_run(english))
    row = re.compile(r"^   \| (`--.+?`) \| .+? \| (.*) ?\|$", re.MULTILINE)
    assert row.findall(chinese) == row.findall(english) != []
