"""Hypothesis without deadlines, since tests do not judge time; a repository to install from."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from .pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a branch main that has the files of this one as they are."""
    folder = tmp_path_factory.mktemp("repository")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(lambda name: (ROOT / name).is_file(), listed.stdout.splitlines()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    identity = "-c", "user.name=anna", "-c", "user.email=anna@lab.example"
    for command in (
        ["init", "--quiet", "-b", "main"],
        ["add", "."],
        ["commit", "--quiet", "-m", "x"],
    ):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)
    return folder
