"""What somebody finds in a wheel or an sdist: the licence, a page, keywords, types."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "proto": "npucall",
    "client": "npucall_client",
    "server": "npucall_server",
    "pool": "npucall_pool",
}
BUILD = """
import os, sys
from hatchling.build import build_sdist, build_wheel
os.chdir(sys.argv[1])
for build in (build_wheel, build_sdist):
    build(sys.argv[2])
"""
pytestmark = pytest.mark.skipif(
    find_spec("hatchling") is None or not (ROOT / "pool" / "pyproject.toml").exists(),
    reason="needs hatchling and a checkout",
)


def build(source: Path, into: Path) -> None:
    subprocess.run([sys.executable, "-c", BUILD, source, into], check=True, timeout=120)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """The wheel and the sdist of each folder."""
    found = {}
    for folder in PACKAGES:
        out = tmp_path_factory.mktemp(folder)
        build(ROOT / folder, out)
        (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
        found[folder] = (wheel, sdist)
    return found


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata_of(wheel: Path) -> Message:
    (text,) = (data for name, data in files_of(wheel).items() if name.endswith("/METADATA"))
    return Parser().parsestr(text.decode())


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_wheel_says_what_it_is(folder: str, built: dict[str, tuple[Path, Path]]) -> None:
    wheel, _ = built[folder]
    metadata = metadata_of(wheel)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / folder / "README.md").read_text(encoding="utf-8")
    assert {"Ascend", "NPU"} <= set(metadata["Keywords"].split(","))
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert not [
        each for each in classifiers if each.startswith("License")
    ]  # the expression says it
    # The project has no public address; an address that nobody has must not be published.
    assert metadata.get_all("Project-URL") is None


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_wheel_has_the_licence_and_its_types(
    folder: str, built: dict[str, tuple[Path, Path]]
) -> None:
    files = files_of(built[folder][0])
    (licence,) = (data for name, data in files.items() if name.endswith("/licenses/LICENSE"))
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert f"{PACKAGES[folder]}/py.typed" in files


@pytest.mark.parametrize("folder", PACKAGES)
def test_the_same_wheel_is_built_from_the_sdist(
    folder: str, built: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    wheel, sdist = built[folder]
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for name in ("LICENSE", "README.md", "pyproject.toml", "PKG-INFO"):
        assert (source / name).is_file()
    out = tmp_path / "out"
    out.mkdir()
    build(source, out)
    (again,) = out.glob("*.whl")
    assert files_of(again) == files_of(wheel)


@pytest.mark.parametrize("folder", PACKAGES)
def test_the_page_of_a_package_has_no_link_that_an_index_cannot_follow(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https://)", text) == []
    named = re.findall(r"`(docs/[\w.-]+)`", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_program_of_the_clients_page_runs() -> None:
    text = (ROOT / "client" / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout == "[[-0.1  -0.15 -0.25]\n [-0.3  -0.15 -0.05]]\n"


def test_the_extras_of_the_pages_are_those_of_the_packages(
    built: dict[str, tuple[Path, Path]],
) -> None:
    for folder in ("client", "server"):
        text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
        told = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        assert sorted(told) == sorted(metadata_of(built[folder][0]).get_all("Provides-Extra") or [])
