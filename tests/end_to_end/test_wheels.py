"""What somebody finds in a wheel or an sdist, on its page, and as its version."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path

import pytest

import npucall
import npucall_client
import npucall_conformance
import npucall_exec
import npucall_pool
import npucall_server

from .pages import ROOT, blocks, text

PACKAGES = {
    "proto": npucall,
    "client": npucall_client,
    "server": npucall_server,
    "conformance": npucall_conformance,
    "exec": npucall_exec,
    "pool": npucall_pool,
}
BUILD = """
import os, sys
from hatchling.build import build_sdist, build_wheel
os.chdir(sys.argv[1])
for build in (build_wheel, build_sdist):
    build(sys.argv[2])
"""


def build(source: Path, into: Path) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    into.mkdir()
    subprocess.run([sys.executable, "-c", BUILD, source, into], check=True, timeout=120)
    (wheel,), (sdist,) = into.glob("*.whl"), into.glob("*.tar.gz")
    return wheel, sdist


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.more
@pytest.mark.skipif(
    find_spec("hatchling") is None or not (ROOT / "pool" / "pyproject.toml").exists(),
    reason="needs hatchling and a checkout",
)
@pytest.mark.parametrize("folder", PACKAGES)
def test_a_wheel_says_what_it_is_and_is_built_from_its_sdist_too(
    folder: str, tmp_path: Path
) -> None:
    wheel, sdist = build(ROOT / folder, tmp_path / "built")
    files = files_of(wheel)
    (told,) = (data for name, data in files.items() if name.endswith("/METADATA"))
    metadata = Parser().parsestr(told.decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == text(f"{folder}/README.md")
    assert {"Ascend", "NPU"} <= set(metadata["Keywords"].split(","))
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert not [each for each in classifiers if each.startswith("License")]  # see the expression
    # The project has no public address; an address that nobody has must not be published.
    assert metadata.get_all("Project-URL") is None
    (licence,) = (data for name, data in files.items() if name.endswith("/licenses/LICENSE"))
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert f"{PACKAGES[folder].__name__}/py.typed" in files
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    (source,) = (tmp_path / "sources").iterdir()
    for name in ("LICENSE", "README.md", "pyproject.toml", "PKG-INFO"):
        assert (source / name).is_file()
    again, _ = build(source, tmp_path / "again")
    assert files_of(again) == files


def test_the_page_of_a_package_has_no_link_that_an_index_cannot_follow() -> None:
    for folder in PACKAGES:
        page = text(f"{folder}/README.md")
        assert re.findall(r"\]\((?!https://)", page) == [], folder
        named = re.findall(r"`(docs/[\w.-]+)`", page)
        assert named
        assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_extras_of_the_pages_are_those_of_the_packages() -> None:
    for folder in ("client", "server"):
        declared = tomllib.loads(text(f"{folder}/pyproject.toml"))["project"]
        listed = re.findall(r"^\| `(\w+)` \|", text(f"{folder}/README.md"), re.MULTILINE)
        assert sorted(listed) == sorted(declared["optional-dependencies"])


def test_the_program_of_the_clients_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("client/README.md", "python")
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})  # the page's own
    assert capsys.readouterr().out == "[[-0.1  -0.15 -0.25]\n [-0.3  -0.15 -0.05]]\n"


def test_every_package_and_command_has_the_version_of_its_distribution(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in PACKAGES.values():
        assert module.__version__ == version(module.__name__)
        with pytest.raises(AttributeError, match="has no attribute 'nope'"):
            module.nope  # noqa: B018
    for name in "npucall", "npucall-server", "npucall-directory", "npucall-pool":
        (command,) = entry_points(group="console_scripts", name=name)
        monkeypatch.setattr(sys, "argv", [name, "--version"])
        with pytest.raises(SystemExit) as ended:
            command.load()()
        assert not ended.value.code
        assert capsys.readouterr().out == f"{name} {version('npucall')}\n"


def block_with(what: str) -> str:
    (found,) = (each for each in blocks("docs/ascend.md", "sh") if what in each)
    return found


@pytest.mark.long
def test_a_host_without_internet_installs_from_the_folder_that_the_page_fills(
    tmp_path: Path,
) -> None:
    """By the page's commands, without a network in the end; uv's Python is that of the test."""
    if shutil.which("unshare") is None or shutil.which("python3.11") is None:
        pytest.skip("needs unshare and a python3.11")
    for folder in ("proto", "server", "client", "conformance"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    fill, install = block_with("pip download"), block_with("--no-index")
    fill = re.sub("^uv .*$", "", fill.replace("aarch64", platform.machine()), flags=re.MULTILINE)
    install = re.sub(r"^\$\(ls .*?\) -m", "python3.11 -m", install)
    start = "~/npucall/bin/python -I -m npucall_server settings; ~/npucall/bin/npucall --version"
    offline = f"export HOME={tmp_path}\n{install}\n{start}"
    environment = {**os.environ, "PYTHONPATH": ""}
    for command in ["bash", "-ec", fill], ["unshare", "-rn", "bash", "-ec", offline]:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"npucall {version('npucall-client')}\n")
