"""README and the tutorials do what they say: files run, commands print what is shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from .pages import ROOT, Command, File, files, follow, same, steps

if TYPE_CHECKING:
    from pathlib import Path

PAGES = ("README.md", "README.zh-CN.md", "docs/pool.md", "docs/laptop.md", "docs/ci.md")


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", [*PAGES[:3], *(pytest.param(page, marks=pytest.mark.more) for page in PAGES[3:])]
)
def test_a_page_does_what_it_shows(page: str, npucall_server: str, tmp_path: Path) -> None:
    assert steps(text(page))
    follow(text(page), tmp_path, npucall_server)


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_a_page_is_run_there(page: str) -> None:
    said = " ".join(step.line for step in steps(text(page)) if isinstance(step, Command))
    shown = [block.name for block in files(text(page))]
    assert [name for name in shown if name not in said and name != "conftest.py"] == []


def test_there_is_an_example_for_each_kind_of_user() -> None:
    shown = {block.name for page in PAGES for block in files(text(page))}
    assert shown >= {"first.py", "check_kernel.py", "pool.py", "conftest.py", "test_loss.py"}


@pytest.mark.long  # half a minute each
@pytest.mark.parametrize(
    "told",
    [
        ("local:", "--quick"),
        ("SERVER", "--quick", "--html", "report.html"),
        ("SERVER", "--quick", "--against", "local:"),
    ],
    ids=" ".join,
)
def test_the_quick_suite_judges_a_cpu_server_right(
    told: tuple[str, ...], npucall_server: str, tmp_path: Path
) -> None:
    line = shlex.join(("npucall", "conform", *told)).replace("SERVER", npucall_server)
    follow(f"```console\n$ {line}\n...\n```\n", tmp_path, npucall_server)


def test_the_readme_begins_with_the_two_commands_that_ci_runs() -> None:
    for page in "README.md", "README.zh-CN.md":
        (first, *_) = re.findall(r"^```sh\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL)
        assert re.findall(r"^make \w+", first, re.MULTILINE) == ["make demo", "make test"]


def first_shell_block(page: str) -> str:
    return re.findall(r"^```sh\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL)[0]


ADDRESS = "https://lab.example/npucall"


def typed(commands: str, folder: Path, repository: Path) -> None:
    """Commands that install, in an empty folder; git finds the repository by an address."""
    environment = {
        **os.environ,
        "REPOSITORY": ADDRESS,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
    }
    subprocess.run(["bash", "-ec", commands], cwd=folder, env=environment, check=True)


@pytest.mark.long
@pytest.mark.parametrize("page", ["docs/laptop.md", "docs/ci.md"])
def test_a_tutorial_takes_a_new_user_from_an_empty_folder_to_its_end(
    page: str, repository: Path, npucall_server: str, tmp_path: Path
) -> None:
    typed(first_shell_block(page), tmp_path, repository)
    follow(text(page), tmp_path, npucall_server, tmp_path / ".venv/bin")


@pytest.mark.long
def test_one_line_installs_from_git(repository: Path, tmp_path: Path) -> None:
    (line,) = re.findall(r"^pip install .*git\+.*$", text("README.md"), re.MULTILINE)
    typed(f"python3 -m venv .venv\n.venv/bin/{line}", tmp_path, repository)
    typed(".venv/bin/npucall info local:", tmp_path, repository)


def test_output_that_is_not_as_shown_is_found() -> None:
    assert same("1 passed in ...\n", "1 passed in 0.02s\n")
    assert same("...\nlast\n", "first  \nsecond\nlast\n")
    assert not same("[-0.1]\n", "[0.1]\n")
    assert not same("[-0.1]\n", "[-0.1]\nWarning\n")
    assert not same("1 passed in ...\n", "2 passed in 0.02s\n")


def test_a_command_that_ends_otherwise_than_shown_is_found(tmp_path: Path) -> None:
    page = "```console\n$ false\n```\n"
    with pytest.raises(AssertionError, match="false"):
        follow(page, tmp_path, "local:")


def test_the_steps_of_a_page_are_files_and_commands_in_its_order() -> None:
    page = "```python\n# a.py\nx\n```\n```console\n$ one\n1\n\n2\n$ two\n```\n"
    assert steps(page) == [
        File("a.py", "# a.py\nx\n"),
        Command("one", "1\n\n2\n"),
        Command("two", ""),
    ]


def shell(page: str) -> list[str]:
    """The lines that a page has its reader type, without remarks and indentation."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    lines = [
        re.sub(r"\s+# .*", "", line).strip() for block in blocks for line in block.splitlines()
    ]
    return [line for line in lines if line]


def first_run(page: str) -> str:
    """The page from its first step on, without what follows the first run in Docker."""
    start = page.index("\n1. ")
    return page[start : page.index("docker compose --profile npu up npu")] + "\n```\n"


def test_the_chinese_readme_has_the_code_of_the_english_one() -> None:
    english, chinese = text("README.md"), text("README.zh-CN.md")
    assert shell(chinese) == shell(english)
    assert steps(chinese) == steps(english)


def test_the_chinese_first_run_has_the_commands_of_the_english_one() -> None:
    english, chinese = text("docs/ascend.md"), text("docs/ascend.zh-CN.md")
    assert len(shell(first_run(english))) > 10
    assert shell(first_run(chinese)) == shell(first_run(english))
    row = re.compile(r"^   \| (`--.+?`) \| .+? \| (.*) ?\|$", re.MULTILINE)
    assert row.findall(chinese) == row.findall(english) != []
