"""Where an operator's functions are found: custom packages first, then CANN's own libraries."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from ctypes import byref, c_uint64, c_void_p
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from npucall.declare.declaration import prototype_only
from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall_server.devices.cann.operators import CUSTOM_LIBRARY, OpApi, load_priority
from npucall_server.settings.npu import AscendPaths

from .test_library import PHASES, compiled, library

X = prototype_only("aclnnX", (), "")
STRANGER = 4321


class StatusError(Exception):
    """A function answered this status: the number of its library."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function} {status}")
        self.status = status


def package(folder: Path, *functions: str, answer: int = 0) -> Path:
    """A custom package whose library has these functions."""
    return library(folder / CUSTOM_LIBRARY, *functions, answer=answer).parents[2]


def host(custom: Sequence[Path] = (), opp: Path | None = None, home: Path | None = None) -> OpApi:
    return OpApi(AscendPaths(home, opp, tuple(custom)), StatusError, lambda: None)


def found(libraries: OpApi, name: str = "aclnnX") -> Path | None:
    where = libraries.find(name)
    return None if where is None else Path(where[0].path)


def configure(opp: Path, text: str) -> Path:
    (opp / "vendors").mkdir(parents=True, exist_ok=True)
    (opp / "vendors/config.ini").write_bytes(text.encode())
    return opp


def test_the_first_package_of_the_environment_wins_that_has_the_operator(tmp_path: Path) -> None:
    first, second = package(tmp_path / "b"), package(tmp_path / "a")
    assert found(host([first, second])) == first / CUSTOM_LIBRARY
    assert found(host([second, first])) == second / CUSTOM_LIBRARY
    other = package(tmp_path / "other", "aclnnY")
    assert found(host([tmp_path / "missing", other, second])) == second / CUSTOM_LIBRARY
    vendor = package(tmp_path / "opp/vendors/a")  # of the configuration
    opp = configure(tmp_path / "opp", "load_priority=a\n")
    assert found(host([first], opp)) == first / CUSTOM_LIBRARY
    assert found(host([], opp)) == vendor / CUSTOM_LIBRARY


def test_vendors_count_in_the_order_of_the_configuration(tmp_path: Path) -> None:
    vendors = {name: package(tmp_path / "vendors" / name) for name in ("a", "b", " b")}
    for order, first in {"b,a": "b", "a,b": "a", " b,a": " b", "missing,,a": "a"}.items():
        opp = configure(tmp_path, f"load_priority={order}\n")
        assert found(host([], opp)) == vendors[first] / CUSTOM_LIBRARY
    assert found(host([], configure(tmp_path, ""))) is None
    assert found(host([], tmp_path / "nowhere")) is None


def test_the_configuration_counts_to_the_letter(tmp_path: Path) -> None:
    texts = {
        "load_priority=a,b\n": ["a", "b"],
        "# text\nload_priority=a": ["a"],
        "load_priority=a\nload_priority=b\n": ["a"],
        " load_priority=a\n": [],
        "load_priority =a\n": [],
        "LOAD_PRIORITY=a\n": [],
        "xload_priority=a\n": [],
        "load_priority= a, b \n": [" a", " b "],
        "load_priority=\nload_priority=b\n": [],
        "load_priority=a\r\n": ["a\r"],
        "# text\x0bload_priority=a\n": [],
        "load_priority=a=b\n": ["a=b"],
        "": [],
    }
    assert {text: load_priority(configure(tmp_path, text) / "vendors") for text in texts} == texts


def test_both_phases_come_from_the_first_library_that_has_both(tmp_path: Path) -> None:
    halves = [package(tmp_path / half, half, answer=1) for half in PHASES]
    assert host(halves).function(X) is None
    both = package(tmp_path / "both", answer=2)
    function = host([*halves, both]).function(X)
    assert function is not None
    assert (function.library, function.custom) == (str(both / CUSTOM_LIBRARY), True)
    run = partial(function.execute, 0, 0, 0, 0)
    for phase in partial(function.get_workspace_size, None, None), run:
        with pytest.raises(StatusError) as caught:
            phase()
        assert caught.value.status == 2


def test_what_a_package_is_linked_with_is_not_its_own(tmp_path: Path) -> None:
    built_in = library(tmp_path / "home/lib64/libopapi_linked.so")
    compiled(tmp_path / "custom" / CUSTOM_LIBRARY, "int aclnnY(void) { return 0; }", built_in)
    where = host([tmp_path / "custom"], home=tmp_path / "home").find("aclnnX")
    assert where is not None
    assert (Path(where[0].path).name, where[1]) == ("libopapi_linked.so", False)


def test_a_library_that_cannot_be_opened_is_noted_and_passed_over(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / CUSTOM_LIBRARY
    broken.parent.mkdir(parents=True)
    broken.write_text("no library")
    has = package(tmp_path / "has")
    libraries = host([tmp_path / "broken", has])
    assert found(libraries) == has / CUSTOM_LIBRARY
    (note,) = libraries.notes
    assert note.startswith(f"{broken}: cannot be opened: ")


@pytest.mark.parametrize(
    ("process", "owner", "taken", "note"),
    [(0, 0, True, ""),
     (0, STRANGER, False, "passed over, as CANN does"),
     (1000, 1000, True, ""),
     (1000, 0, True, "taken all the same"),
     (1000, STRANGER, False, "passed over, as CANN does")],
)  # fmt: skip
def test_the_owner_of_a_package_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: int, owner: int, taken: bool,
    note: str,
) -> None:  # fmt: skip
    """The next package is taken where the owner of the first is a stranger."""
    first, second = (package(tmp_path / name) / CUSTOM_LIBRARY for name in ("first", "second"))
    own(monkeypatch, process, {first: owner, second: process})
    libraries = host([tmp_path / "first", tmp_path / "second"])
    assert found(libraries, "aclnnZ") is None
    assert libraries.notes == []  # owners do not matter where the operator is not there
    assert [found(libraries) for _ in range(2)] == [first if taken else second] * 2
    said = f"{first}: owned by user {owner}, this process runs as {process}"
    assert libraries.notes == ([f"{said}; {note}"] if note else [])


def own(monkeypatch: pytest.MonkeyPatch, process: int, owners: dict[Path, int]) -> None:
    """Lets this process and some files belong to others."""
    stat = os.stat

    def told(path: str | os.PathLike[str], **options: Any) -> object:
        real = stat(path, **options)
        if isinstance(path, (str, Path)) and Path(path) in owners:
            rest = {name: getattr(real, name) for name in ("st_mode", "st_ino", "st_dev")}
            return SimpleNamespace(st_uid=owners[Path(path)], **rest)
        return real

    monkeypatch.setattr(os, "geteuid", lambda: process)
    monkeypatch.setattr(os, "stat", told)


# --- CANN's own: the split ones, libopapi.so, then those of features ------------------------------

FEATURES = ["ops_infer", "ops_train", "math", "sparse", "fft", "rand"]
IN_ORDER = ["libopapi.so", *(f"libaclnn_{name}.so" for name in FEATURES)]
EVERY = ["libopapi_nn.so", *IN_ORDER]
OPERATORS = [f"aclnn{place}" for place in range(len(EVERY))]
PROGRAM = """
import json, sys
from pathlib import Path
from npucall_server.devices.cann.operators import OpApi
from npucall_server.settings.npu import AscendPaths

told = []
for home in sys.argv[1].split(","):
    paths = AscendPaths(Path(home) if home else None, None, ())
    libraries = OpApi(paths, RuntimeError, lambda: None)
    found = [libraries.find(name) for name in sys.argv[2:]]
    told.append([where and [where[0].path, where[1]] for where in found])
print(json.dumps(told))
"""


def told(homes: str, loader: Path | None) -> list[list[object]]:
    """Where a process of its own finds operators: the simulator has the real names in this one."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(loader or "")}
    command = [sys.executable, "-c", PROGRAM, homes, *OPERATORS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    answer: list[list[object]] = json.loads(done.stdout)
    return answer


@pytest.mark.more
def test_the_libraries_are_searched_in_cann_s_order(tmp_path: Path) -> None:
    """The loader finds all but the split ones, else they are opened in the toolkit."""
    lib64 = tmp_path / "lib64"  # the first operator is in each, the last in the last one alone
    for place, name in enumerate(EVERY):
        phases = (f"{o}{p}" for o in OPERATORS[: place + 1] for p in ("", "GetWorkspaceSize"))
        library(lib64 / name, *phases)
    assert told(f"{tmp_path},", lib64) == [
        [[name, False] for name in EVERY],
        [[name, False] for name in ["libopapi.so", *IN_ORDER]],
    ]
    assert told(str(tmp_path), None) == [[[str(lib64 / name), False] for name in EVERY]]


def test_split_libraries_are_regular_files_and_links_to_them(tmp_path: Path) -> None:
    lib64 = tmp_path / "lib64"
    for number, name in enumerate(["libopapi_a.so", "else", "libopapi_b.so.1", "xlibopapi_c.so"]):
        library(lib64 / name, f"aclnn{number}", f"aclnn{number}GetWorkspaceSize")
    (lib64 / "libopapi_link.so").symlink_to(lib64 / "else")
    (lib64 / "libopapi_broken.so").symlink_to(lib64 / "nowhere")
    (lib64 / "libopapi_folder.so").mkdir()
    libraries = host(home=tmp_path)
    places = [found(libraries, f"aclnn{number}") for number in range(4)]
    expected = ["libopapi_a.so", "libopapi_link.so", None, None]
    assert [place and place.name for place in places] == expected
    assert libraries.notes == []


@pytest.mark.parametrize("backwards", [False, True])
def test_split_libraries_count_in_the_order_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    """One with a single phase is passed over."""
    names = sorted((f"libopapi_{letter}.so" for letter in "amz"), reverse=backwards)
    for name in names:
        library(tmp_path / "toolkit" / name)
    library(tmp_path / "toolkit/libopapi_half.so", PHASES[backwards])
    (tmp_path / "lib64").symlink_to(tmp_path / "toolkit")
    in_order = ["libopapi_half.so", *names]
    with os.scandir(tmp_path / "toolkit") as folder:
        entries = sorted(folder, key=lambda entry: in_order.index(entry.name))
    monkeypatch.setattr(os, "scandir", lambda _: entries)
    place = found(host(home=tmp_path))
    assert place is not None
    assert place.name == names[0]


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
"""All kinds that travel by value."""
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
    assert {kind for kind in Kind if not kind.value.startswith("const acl")} == set(ATTRIBUTES)
    compiled(tmp_path / "lib64/libopapi_x.so", CHECK)
    attributes = (Attribute(kind.name, kind, "") for kind in ATTRIBUTES)
    operator = prototype_only("aclnnX", (Input("self", ""), *attributes, Output("out", "")), "")
    function = host(home=tmp_path).function(operator)
    assert function is not None
    size, executor, address = c_uint64(), c_void_p(), 0x123456789ABCDEF0
    function.get_workspace_size(address, *ATTRIBUTES.values(), None, byref(size), byref(executor))
    function.execute(address, size.value, executor, None)
    assert (size.value, executor.value) == (2**40, 0xFEDCBA987654321)
