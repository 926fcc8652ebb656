"""README.md does what it says, pages name files that are there, generated ones are fresh."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.more import TURNS, only

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECONDS = 120

# What is built has pages of others: storage of containers.
FOLDERS = [p for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "." and p.name != "build"]
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.@-][\w./@-]*\.(py|md|toml|yml|txt|proto|svg|binpb|service)|[\w.-][\w./-]*/")
# What is planned stands under this heading, and may name what is not there.
LATER = re.compile(r"^(#+) [^\n]*What comes later.*?(?=^\1 |\Z)", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    file: str
    text: str


def python_blocks() -> list[Block]:
    """The Python blocks of README.md; the first line of each is a comment that names its file."""
    texts = [text for language, text in FENCE.findall(README) if language == "python"]
    return [Block(text.splitlines()[0].removeprefix("# "), text) for text in texts]


PROGRAMS = [block for block in python_blocks() if not re.match(r"conftest|test_", block.file)]
TESTS = [block for block in python_blocks() if block not in PROGRAMS]
COMMANDS = [
    line
    for language, text in FENCE.findall(README)
    if language == "sh"
    for line in text.splitlines()
    if line.startswith("npucall ")
]


def run(
    command: list[str], folder: Path, target: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "NPUCALL_TARGET"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment if target is None else {**environment, "NPUCALL_TARGET": target},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def prose(page: Path) -> str:
    """What a page says outside code blocks and plans."""
    return LATER.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))


def is_there(name: str, page: Path) -> bool:
    """Whether a page means a file or folder by this: from itself, the root, or any folder."""
    if (page.parent / name).exists() or (ROOT / name).exists():
        return True
    pattern = name.rstrip("/")
    return any(match for folder in FOLDERS for match in folder.rglob(pattern))


def test_the_readme_has_an_example_for_each_kind_of_user() -> None:
    files = {block.file for block in python_blocks()}
    assert files >= {"laptop.py", "pool.py", "conftest.py", "test_loss.py"}


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.file)
def test_a_program_in_the_readme_runs_against_a_server(
    block: Block, npucall_server: str, tmp_path: Path
) -> None:
    (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    command = [sys.executable, "-W", "error", block.file, npucall_server, npucall_server]
    done = run(command, tmp_path, npucall_server)
    assert done.returncode == 0, done.stderr


def test_the_tests_in_the_readme_pass_with_a_server_of_their_own(tmp_path: Path) -> None:
    for block in TESTS:
        (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error"]
    done = run(command, tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def when(line: str) -> Any:
    """The suite takes half a minute on ``local:``, which is more, and over a socket a whole one."""
    return TURNS[0 if "conform" not in line else 1 if "conform local:" in line else 2]


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=when(line)) for line in COMMANDS],
    ids=lambda line: " ".join(line.split()[:2]),
)
def test_a_command_in_the_readme_succeeds(line: str, npucall_server: str, tmp_path: Path) -> None:
    name, *arguments = shlex.split(line.replace("npu-host:50051", npucall_server))
    done = run([str(Path(sys.executable).with_name(name)), *arguments], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


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
    readme_examples = {block.file for block in python_blocks()}
    named = {name for name in CODE.findall(prose(page)) if FILE.fullmatch(name)} - readme_examples
    assert [name for name in sorted(named) if not is_there(name, page)] == []


def test_the_folder_tree_of_the_architecture_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (tree,) = re.findall(r"## \d+\. The folder tree\n.*?```\n(.*?)```", text, re.DOTALL)
    missing, folders = [], {0: ROOT}
    for line in tree.splitlines():
        names = re.split(r"\s{2,}", line.strip())[0].split()
        depth = len(line) - len(line.lstrip())
        for name in names:
            path = folders[depth] / name
            missing += [] if path.exists() else [str(path.relative_to(ROOT))]
            if name.endswith("/"):
                folders[depth + 2] = path
    assert missing == []


def test_the_picture_of_the_layers_is_that_of_the_import_contracts() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"## \d+\. Layers\n.*?```\n(.*?)```", text, re.DOTALL)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = {
        contract["containers"][0]: [re.sub(r"\s+", " ", layer) for layer in contract["layers"]]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    }
    drawn = [re.split(r"\s{2,}", line.strip()) for line in picture.splitlines()]
    for name in "npucall_client", "npucall_server", "npucall", "npucall_pool":
        (start,) = [line for line, cells in enumerate(drawn) if name in cells]
        left = [cell for cells in drawn[start + 1 :] for cell in cells]
        found = [cell for cell in left if cell in layers[name]]
        assert found[: len(layers[name])] == layers[name], name


def test_generated_pages_are_up_to_date() -> None:
    done = run([sys.executable, "docs/generate.py", "--check"], ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "word"),
    only(
        ("README.md", "aclnn"),
        ("docs/ascend.md", "aclnn"),
        ("docs/errors.md", "elsewhere"),
        ("docs/limits.md", "MAX_RANK"),
        ("docs/operators.md", "aclnn"),
    ),
)
def test_a_generated_page_that_was_edited_is_named(name: str, word: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    proofs = tmp_path / "tests/abi/proofs.json"
    proofs.parent.mkdir(parents=True)
    shutil.copy(ROOT / "tests/abi/proofs.json", proofs)
    page = tmp_path / name
    page.write_text(page.read_text(encoding="utf-8").replace(word, "edited"), encoding="utf-8")
    done = run([sys.executable, "docs/generate.py", "--check"], tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"{name} is out of date: make docs\n"
