"""CANN's own libraries of operators: the split ones, libopapi.so, then those of features."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ctypes import byref, c_uint64, c_void_p
from pathlib import Path

import pytest

from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall_server.devices.cann.operators import OpApi
from npucall_server.npu_settings import AscendPaths

from .compiled import PHASES, compiled, library

FEATURES = ["ops_infer", "ops_train", "math", "sparse", "fft", "rand"]
IN_ORDER = ["libopapi.so", *(f"libaclnn_{name}.so" for name in FEATURES)]
PROGRAM = """
import json, sys
from pathlib import Path
from npucall_server.devices.cann.operators import OpApi
from npucall_server.npu_settings import AscendPaths

paths = AscendPaths(Path(sys.argv[1]) if sys.argv[1] else None, None, ())
libraries = OpApi(paths, RuntimeError, lambda: None)
found = [libraries.find(name) for name in sys.argv[2:]]
print(json.dumps([where and [where[0].path, where[1]] for where in found]))
"""


def found(names: list[str], *, home: Path | None, loader: Path | None) -> list[list[object] | None]:
    """Where a process of its own finds operators: the simulator has the real names in this one."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(loader or "")}
    command = [sys.executable, "-c", PROGRAM, str(home or ""), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    answer: list[list[object] | None] = json.loads(done.stdout)
    return answer


EVERY = ["libopapi_nn.so", *IN_ORDER]
OPERATORS = [f"aclnn{place}" for place in range(len(EVERY))]


@pytest.fixture
def lib64(tmp_path: Path) -> Path:
    """All of them; the first operator is in every library, the last in the last one alone."""
    for place, name in enumerate(EVERY):
        phases = (f"{o}{p}" for o in OPERATORS[: place + 1] for p in ("", "GetWorkspaceSize"))
        library(tmp_path / "lib64" / name, *phases)
    return tmp_path / "lib64"


def test_the_libraries_are_searched_in_cann_s_order(lib64: Path) -> None:
    places = found(OPERATORS, home=lib64.parent, loader=lib64)
    assert places == [[name, False] for name in EVERY]


def test_they_are_opened_in_the_toolkit_where_the_loader_does_not_find_them(lib64: Path) -> None:
    places = found(OPERATORS, home=lib64.parent, loader=None)
    assert places == [[str(lib64 / name), False] for name in EVERY]


def test_without_a_toolkit_the_loader_finds_all_but_the_split_ones(lib64: Path) -> None:
    places = found(OPERATORS, home=None, loader=lib64)
    assert places == [[name, False] for name in ["libopapi.so", *IN_ORDER]]


def test_split_libraries_are_regular_files_and_links_to_them(tmp_path: Path) -> None:
    lib64 = tmp_path / "lib64"
    for number, name in enumerate(
        ["libopapi_a.so", "elsewhere", "libopapi_b.so.1", "xlibopapi_c.so"]
    ):
        library(lib64 / name, f"aclnn{number}", f"aclnn{number}GetWorkspaceSize")
    (lib64 / "libopapi_link.so").symlink_to(lib64 / "elsewhere")
    (lib64 / "libopapi_broken.so").symlink_to(lib64 / "nowhere")
    (lib64 / "libopapi_folder.so").mkdir()
    libraries = OpApi(AscendPaths(tmp_path, None, ()), RuntimeError, lambda: None)
    places = [libraries.find(f"aclnn{number}") for number in range(4)]
    assert [place and Path(place[0].path).name for place in places] == [
        "libopapi_a.so",
        "libopapi_link.so",
        None,
        None,
    ]
    assert libraries.notes == []


@pytest.mark.parametrize("backwards", [False, True])
def test_split_libraries_count_in_the_order_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    names = sorted((f"libopapi_{letter}.so" for letter in "amz"), reverse=backwards)
    for name in names:
        library(tmp_path / "toolkit" / name)
    (tmp_path / "lib64").symlink_to(tmp_path / "toolkit")
    with os.scandir(tmp_path / "toolkit") as folder:
        entries = sorted(folder, key=lambda entry: names.index(entry.name))
    monkeypatch.setattr(os, "scandir", lambda _: entries)
    place = OpApi(AscendPaths(tmp_path, None, ()), RuntimeError, lambda: None).find("aclnnX")
    assert place is not None
    assert Path(place[0].path).name == names[0]


@pytest.mark.parametrize("half", PHASES)
def test_a_library_with_one_phase_alone_is_passed_over(tmp_path: Path, half: str) -> None:
    lib64 = tmp_path / "lib64"
    library(lib64 / "libopapi_a.so", half)
    both = library(lib64 / "libopapi_b.so")
    library(lib64 / "libopapi_c.so", half)
    place = OpApi(AscendPaths(tmp_path, None, ()), RuntimeError, lambda: None).find("aclnnX")
    assert place is not None
    assert place[0].path == str(both)


def test_a_host_without_libraries_has_no_operator(tmp_path: Path) -> None:
    paths = AscendPaths(tmp_path / "nowhere", None, ())
    assert OpApi(paths, RuntimeError, lambda: None).find("aclnn0") is None


ATTRIBUTES = {
    Kind.INT64: -(2**40),
    Kind.INT32: -(2**30),
    Kind.INT: 2**30,
    Kind.INT8: -100,
    Kind.UINT64: 2**63 + 1,
    Kind.BOOL: True,
    Kind.FLOAT: 0.1,
    Kind.DOUBLE: 0.1,
    Kind.DTYPE: 27,
    Kind.STRING: b"text",
}
CHECK = """
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

int aclnnXGetWorkspaceSize(const void *self, int64_t a, int32_t b, int c, int8_t d, uint64_t e,
                           bool f, float g, double h, int i, const char *j, void *out,
                           uint64_t *size, void **executor) {
    if (self != (void *)0x123456789abcdef0) return 1;
    if (a != -(1LL << 40)) return 2;
    if (b != -(1 << 30) || c != 1 << 30) return 3;
    if (d != -100) return 4;
    if (e != (1ULL << 63) + 1) return 5;
    if (f != true) return 6;
    if (g != 0.1f) return 7;
    if (h != 0.1) return 8;
    if (i != 27) return 9;
    if (strcmp(j, "text") != 0) return 10;
    if (out != 0) return 11;
    *size = 1ULL << 40;
    *executor = (void *)0xfedcba987654321;
    return 0;
}

int aclnnX(void *workspace, uint64_t size, void *executor, void *stream) {
    if (workspace != (void *)0x123456789abcdef0 || stream != 0) return 1;
    return size == 1ULL << 40 && executor == (void *)0xfedcba987654321 ? 0 : 2;
}
"""


def test_every_attribute_reaches_c_in_its_own_type(tmp_path: Path) -> None:
    compiled(tmp_path / "lib64/libopapi_x.so", CHECK)
    attributes = (Attribute(kind.name, kind, "") for kind in ATTRIBUTES)
    operator = prototype_only("aclnnX", (Input("self", ""), *attributes, Output("out", "")), "")
    paths = AscendPaths(tmp_path, None, ())
    libraries = OpApi(paths, lambda *failed: RuntimeError(failed), lambda: None)
    function = libraries.function(operator)
    assert function is not None
    size, executor, address = c_uint64(), c_void_p(), 0x123456789ABCDEF0
    function.get_workspace_size(address, *ATTRIBUTES.values(), None, byref(size), byref(executor))
    function.execute(address, size.value, executor, None)
    assert (size.value, executor.value) == (2**40, 0xFEDCBA987654321)


def test_the_kinds_that_travel_by_value_are_all_of_them() -> None:
    assert {kind for kind in Kind if not kind.value.startswith("const acl")} == set(ATTRIBUTES)
