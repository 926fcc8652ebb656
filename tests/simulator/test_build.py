"""The built trees: which library has what, where it is, and that it loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .build import build
from .prototypes import GENERATIONS, read_prototypes
from .tree import MACHINE

if TYPE_CHECKING:
    from .tree import Tree

PROJECT = Path(__file__).parents[2]
PROTOTYPES = read_prototypes()
EACH = pytest.mark.parametrize("name", GENERATIONS)


def exported(library: Path) -> set[str]:
    """The C functions that a library itself defines."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=just-symbols", library],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return {symbol for symbol in listed.split() if symbol.startswith("acl")}


def names(*libraries: str, release: str) -> set[str]:
    held = [p.name for p in PROTOTYPES if p.library in libraries and release in p.releases]
    return {symbol for name in held for symbol in (name, f"{name}GetWorkspaceSize")}


def load(*libraries: Path, then: str = "", how: str = "opened") -> str:
    """What a process says that loads libraries by path, without any search path."""
    lines = [f"library = {how}({str(path)!r})" for path in libraries]
    start = ["from ctypes import CDLL", "from tests.simulator.loading import opened"]
    program = "\n".join([*start, *lines, then])
    plain = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=PROJECT, env=plain, capture_output=True, text=True, check=False
    )
    return done.stdout or done.stderr


def test_building_again_does_nothing(tree: Tree) -> None:
    library = tree.generation("9.x").lib64 / "libopapi.so"
    before = library.stat()
    assert build(tree.root) == tree
    assert (library.stat().st_ino, library.stat().st_mtime) == (before.st_ino, before.st_mtime)


def test_what_has_been_built_needs_nothing_to_be_written(tree: Tree) -> None:
    lock = tree.root / "lock"
    lock.rename(tree.root / "moved")
    try:
        assert build(tree.root) == tree
        assert not lock.exists()
    finally:
        (tree.root / "moved").rename(lock)


@pytest.mark.parametrize(
    ("release", "library", "marks"),
    [
        ("8.1", "libopapi.so", ("math", "nn", "opapi")),
        ("8.3", "libopapi.so", ("opapi",)),
        ("8.3", "libopapi_nn.so", ("nn",)),
        ("9.x", "libopapi.so", ("opapi",)),
        ("9.x", "libopapi_nn.so", ("nn",)),
        ("9.x", "libopapi_math.so", ("math",)),
    ],
)
def test_a_library_of_operators_exports_both_phases_of_those_that_it_has(
    tree: Tree, release: str, library: str, marks: tuple[str, ...]
) -> None:
    found = exported(tree.generation(release).lib64 / library)
    assert found == names(*marks, release=release)


def test_the_custom_package_exports_its_two_operators(tree: Tree) -> None:
    assert exported(tree.custom / "op_api/lib/libcust_opapi.so") == {
        "aclnnKlDivTargetBackward",
        "aclnnKlDivTargetBackwardGetWorkspaceSize",
        "aclnnVendorScale",
        "aclnnVendorScaleGetWorkspaceSize",
    }


def test_release_8_1_keeps_its_operators_in_the_operator_package(tree: Tree) -> None:
    here = tree.generation("8.1")
    folder = here.opp / "built-in/op_impl/ai_core/tbe/op_api/lib/linux" / MACHINE
    assert not (folder / "libopapi.so").is_symlink()
    for link in (here.lib64 / "libopapi.so", here.opp / "lib64/libopapi.so"):
        assert link.is_symlink()
        assert link.samefile(folder / "libopapi.so")


def test_release_8_3_has_split_its_operators_and_keeps_them_there_too(tree: Tree) -> None:
    here = tree.generation("8.3")
    for name in ("libopapi.so", "libopapi_math.so", "libopapi_nn.so"):
        assert not (here.op_api_libraries / name).is_symlink()
        assert (here.lib64 / name).is_symlink()
        assert (here.lib64 / name).samefile(here.op_api_libraries / name)
    assert [path.name for path in (here.opp / "lib64").iterdir()] == ["libopapi.so"]


def test_the_runtime_is_one_library_and_that_of_9_x_two(tree: Tree) -> None:
    *older, new = (tree.generation(name).lib64 for name in GENERATIONS)
    for old in older:
        assert "aclrtMalloc" in exported(old / "libascendcl.so")
        assert not (old / "libacl_rt.so").exists()
    assert "aclrtMalloc" in exported(new / "libacl_rt.so")
    assert exported(new / "libascendcl.so") == set()


def test_the_old_name_of_the_runtime_of_9_x_gives_the_functions_of_the_new(tree: Tree) -> None:
    old = tree.generation("9.x").lib64 / "libascendcl.so"
    assert load(old, then="print(library.aclrtMalloc.__name__)") == "aclrtMalloc\n"


@pytest.mark.parametrize("function", ["aclFinalizeReference", "aclsysGetVersionStr"])
def test_releases_before_9_x_lack_the_functions_that_came_later(tree: Tree, function: str) -> None:
    for name in ("8.1", "8.3"):
        assert function not in exported(tree.generation(name).lib64 / "libascendcl.so")
    assert function in exported(tree.generation("9.x").lib64 / "libacl_rt.so")


@EACH
def test_a_library_of_operators_loads_by_its_path_and_leads_to_the_descriptors(
    tree: Tree, name: str
) -> None:
    library = tree.generation(name).lib64 / "libopapi.so"
    assert load(library, then="print(library.aclCreateTensor.__name__)") == "aclCreateTensor\n"


@EACH
def test_a_library_of_operators_does_not_load_where_all_of_its_symbols_are_asked_for(
    tree: Tree, name: str
) -> None:
    said = load(tree.generation(name).lib64 / "libopapi.so", how="CDLL")
    assert said.rstrip().endswith("undefined symbol: npucall_sim_nobody_defines")


def test_the_operators_of_8_1_load_from_the_operator_package_too(tree: Tree) -> None:
    library = tree.generation("8.1").op_api_libraries / "libopapi.so"
    assert load(library, then="print(library.aclnnAdd.__name__)") == "aclnnAdd\n"


@EACH
def test_the_custom_package_loads_behind_the_runtime_of_either_release(
    tree: Tree, name: str
) -> None:
    base = tree.generation(name).lib64 / "libnnopbase.so"
    custom = tree.custom / "op_api/lib/libcust_opapi.so"
    printed = load(base, custom, then="print(library.aclnnVendorScale.__name__)")
    assert printed == "aclnnVendorScale\n"


def test_the_custom_library_belongs_to_the_user_of_the_process(tree: Tree) -> None:
    assert (tree.custom / "op_api/lib/libcust_opapi.so").stat().st_uid == os.getuid()


@EACH
def test_set_env_exports_the_environment_that_the_tree_names(tree: Tree, name: str) -> None:
    here = tree.generation(name)
    script = f". {here.home}/set_env.sh; env -0"
    plain = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    printed = subprocess.run(
        ["bash", "-c", script], env=plain, capture_output=True, text=True, check=True
    ).stdout
    exports = dict(line.partition("=")[::2] for line in printed.split("\0"))
    expected = here.environment()
    assert {variable: exports.get(variable) for variable in expected} == expected


@EACH
def test_a_tree_says_its_version_for_each_of_its_packages(tree: Tree, name: str) -> None:
    files = list((tree.generation(name).home / "share/info").glob("*/version.info"))
    assert len(files) == 6
    assert all(path.read_text().startswith(f"Version={name[0]}.") for path in files)
