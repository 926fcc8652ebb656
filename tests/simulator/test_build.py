"""The built trees: which library has what, where it is, and that it loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .build import build
from .prototypes import GENERATIONS, read_prototypes
from .tree import MACHINE, Tree

PROJECT = Path(__file__).parents[2]
PROTOTYPES = read_prototypes()
EACH = pytest.mark.parametrize("name", GENERATIONS)
HELD = [
    ("8.1", "libopapi.so", ("math", "nn", "opapi")),
    ("8.3", "libopapi.so", ("opapi",)),
    ("8.3", "libopapi_nn.so", ("nn",)),
    ("9.x", "libopapi.so", ("opapi",)),
    ("9.x", "libopapi_nn.so", ("nn",)),
    ("9.x", "libopapi_math.so", ("math",)),
]
"""Libraries of operators, and the marks of those that each has."""


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


def load(*lines: str) -> list[str]:
    """What a process says that loads libraries by path, without any search path."""
    start = ["from ctypes import CDLL", "from tests.simulator.loading import opened"]
    plain = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    command = [sys.executable, "-c", "\n".join([*start, *lines])]
    done = subprocess.run(
        command, cwd=PROJECT, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_building_again_does_nothing_and_needs_nothing_to_be_written(tree: Tree) -> None:
    library = tree.generation("9.x").lib64 / "libopapi.so"
    before = library.stat()
    assert build(tree.root) == tree
    assert (library.stat().st_ino, library.stat().st_mtime) == (before.st_ino, before.st_mtime)
    lock = tree.root / "lock"
    lock.rename(tree.root / "moved")
    try:
        assert build(tree.root) == tree
        assert not lock.exists()
    finally:
        (tree.root / "moved").rename(lock)


def test_a_library_of_operators_exports_both_phases_of_those_that_it_has(tree: Tree) -> None:
    wrong = [
        (release, library)
        for release, library, marks in HELD
        if exported(tree.generation(release).lib64 / library) != names(*marks, release=release)
    ]
    assert wrong == []
    library = tree.custom / "op_api/lib/libcust_opapi.so"
    own = ("aclnnKlDivTargetBackward", "aclnnVendorScale")
    assert exported(library) == {name + phase for name in own for phase in ("", "GetWorkspaceSize")}
    assert library.stat().st_uid == os.getuid()


def test_older_releases_keep_their_operators_in_the_operator_package_with_links_to_them(
    tree: Tree,
) -> None:
    here = tree.generation("8.1")
    folder = here.opp / "built-in/op_impl/ai_core/tbe/op_api/lib/linux" / MACHINE
    assert not (folder / "libopapi.so").is_symlink()
    for link in (here.lib64 / "libopapi.so", here.opp / "lib64/libopapi.so"):
        assert link.is_symlink()
        assert link.samefile(folder / "libopapi.so")
    here = tree.generation("8.3")
    for name in ("libopapi.so", "libopapi_math.so", "libopapi_nn.so"):
        assert not (here.op_api_libraries / name).is_symlink()
        assert (here.lib64 / name).is_symlink()
        assert (here.lib64 / name).samefile(here.op_api_libraries / name)
    assert [path.name for path in (here.opp / "lib64").iterdir()] == ["libopapi.so"]


@EACH
def test_a_release_is_where_cann_s_installer_puts_it_and_its_home_is_a_link(
    tree: Tree, name: str
) -> None:
    home, version = {
        "8.1": ("ascend-toolkit/latest", "8.1.RC1"),
        "8.3": ("ascend-toolkit/latest", "8.3.RC1"),
        "9.x": ("cann", "cann-9.0.0"),
    }[name]
    here = tree.generation(name)
    assert here.home == tree.ascend(name) / home
    assert str(here.home.readlink()) == version
    assert str(here.lib64.readlink()) == f"{MACHINE}-linux/lib64"
    assert str(here.include.readlink()) == f"{MACHINE}-linux/include"


def test_the_runtime_is_one_library_that_of_9_x_two_with_later_functions(tree: Tree) -> None:
    *older, new = (tree.generation(name).lib64 for name in GENERATIONS)
    for old in older:
        assert "aclrtMalloc" in exported(old / "libascendcl.so")
        assert not (old / "libacl_rt.so").exists()
    assert "aclrtMalloc" in exported(new / "libacl_rt.so")
    assert exported(new / "libascendcl.so") == set()
    later = {"aclFinalizeReference", "aclsysGetVersionStr"}
    for name in ("8.1", "8.3"):
        assert not later & exported(tree.generation(name).lib64 / "libascendcl.so")
    assert later <= exported(tree.generation("9.x").lib64 / "libacl_rt.so")


@EACH
def test_libraries_load_by_their_paths_and_lead_to_what_they_need(tree: Tree, name: str) -> None:
    """But not where all of their symbols are asked for."""
    here = tree.generation(name)
    operators = here.op_api_libraries if name == "8.1" else here.lib64
    custom = tree.custom / "op_api/lib/libcust_opapi.so"
    *found, refused = load(
        f"runtime = opened({str(here.lib64 / 'libascendcl.so')!r})",
        "print(runtime.aclrtMalloc.__name__)",  # in 9.x another library has it
        f"try: CDLL({str(operators / 'libopapi.so')!r})",
        "except OSError as error: refused = error",
        f"library = opened({str(operators / 'libopapi.so')!r})",
        "print(library.aclCreateTensor.__name__, hasattr(library, 'aclnnAdd'))",
        f"print(opened({str(custom)!r}).aclnnVendorScale.__name__)",
        "print(refused)",
    )
    alone = f"aclCreateTensor {name == '8.1'}"  # later releases have split their operators
    assert found == ["aclrtMalloc", alone, "aclnnVendorScale"]
    assert refused.endswith("undefined symbol: npucall_sim_nobody_defines")


@EACH
def test_set_env_exports_the_environment_that_the_tree_names(tree: Tree, name: str) -> None:
    here = tree.generation(name)
    script = f". {here.set_env}; env -0"
    plain = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    printed = subprocess.run(
        ["bash", "-c", script], env=plain, capture_output=True, text=True, check=True
    ).stdout
    exports = dict(line.partition("=")[::2] for line in printed.split("\0"))
    expected = here.environment()
    assert {variable: exports.get(variable) for variable in expected} == expected
