"""Libraries that are opened, and C functions that are declared in one line."""

import subprocess
import tempfile
from ctypes import c_int, c_int64
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from npucall_server.devices.cann.library import (
    BAD_ALLOC,
    Functions,
    HandleFunction,
    Library,
    LibraryError,
    NewStatusFunction,
    StatusFunction,
    ValueFunction,
    open_library,
)
from npucall_server.devices.cann.runtime import open_libraries
from npucall_server.settings.npu import AscendPaths

PHASES = ("aclnnX", "aclnnXGetWorkspaceSize")
"""The two phases of an operator of tests."""


def compiled(path: Path, source: str, *linked: Path, flags: tuple[str, ...] = ()) -> Path:
    """A shared library of this C source, linked with others; each path gets a file of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_library(source, *linked, flags=flags))
    return path


def library(path: Path, *functions: str, answer: int = 0) -> Path:
    """A shared library of these functions, both phases of ``aclnnX`` if none is named.

    They take nothing, and answer a number by which their library can be told.
    """
    lines = (f"int {name}(void) {{ return {answer}; }}\n" for name in functions or PHASES)
    return compiled(path, "".join(lines))


@cache
def _library(source: str, *linked: Path, flags: tuple[str, ...]) -> bytes:
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed"]
    with tempfile.TemporaryDirectory(prefix="npucall-") as folder:
        made = Path(folder, "made.so")
        subprocess.run([*command, *linked, *flags, "-o", made], input=source, text=True, check=True)
        return made.read_bytes()


class FailedError(Exception):
    """A function failed: its name and status."""


class Some(Functions):
    status = StatusFunction(c_int)
    made = HandleFunction()
    value = ValueFunction(c_int64, result=c_int64)
    newer = NewStatusFunction()


SOURCE = """
int status(int wanted) { return wanted; }
void *made(void) { return 0; }
long long value(long long number) { return number + 1; }
"""


def opened(path: Path, source: str = SOURCE, **options: Any) -> Library:
    """A library of this C source."""
    compiled(path, source, **options)
    return open_library([path.name], [path.parent])


@pytest.fixture
def some(tmp_path: Path) -> Some:
    return Some([opened(tmp_path / "libsome.so")], FailedError)


def test_the_loader_s_path_counts_then_the_first_name_then_the_first_folder(
    tmp_path: Path,
) -> None:
    for place in "b/libnpucall_x.so", "a/libnpucall_y.so", "c/libnpucall_x.so", "b/libc.so.6":
        library(tmp_path / place)
    folders = [tmp_path / place for place in "abc"]
    assert open_library(["libnpucall_x.so"], folders).path == str(tmp_path / "b/libnpucall_x.so")
    both = ["libnpucall_y.so", "libnpucall_x.so"]
    assert open_library(both, folders[1:]).path == str(tmp_path / "b/libnpucall_x.so")
    library(tmp_path / "b/libnpucall_y.so")
    assert open_library(both, folders[1:]).path == str(tmp_path / "b/libnpucall_y.so")
    assert open_library(["libc.so.6"], folders).path == "libc.so.6"


def test_the_error_names_every_path_tried_and_what_to_source(tmp_path: Path) -> None:
    broken = tmp_path / "b/libnpucall_y.so"
    broken.parent.mkdir()
    broken.write_text("no library")
    names = ("libnpucall_x.so", "libnpucall_y.so")
    with pytest.raises(LibraryError) as caught:
        open_library(names, [tmp_path / "a", tmp_path / "b"])
    first, *tried, advice = str(caught.value).splitlines()
    assert first == "expected one of libnpucall_x.so, libnpucall_y.so, found none:"
    in_folders = [str(tmp_path / place / name) for place in "ab" for name in names]
    assert [line.split(": ")[0].strip() for line in tried] == [*names, *in_folders]
    assert "file too short" in tried[-1] or "invalid ELF header" in tried[-1]
    for what in ("set_env.sh", "ASCEND_HOME_PATH", "LD_LIBRARY_PATH", "mount the driver"):
        assert what in advice


def test_a_status_of_0_is_no_failure_and_any_other_is_raised_with_the_name(some: Some) -> None:
    assert some.status(0) is None
    with pytest.raises(FailedError) as caught:
        some.status(-7)
    assert caught.value.args == ("status", -7)
    with pytest.raises(FailedError) as caught:
        some.made()  # a null pointer is lack of memory
    assert caught.value.args == ("made", BAD_ALLOC)
    assert some.value(2**40) == 2**40 + 1


def test_a_newer_function_is_called_where_it_is_there(tmp_path: Path, some: Some) -> None:
    assert some.newer is None
    source = SOURCE + "int newer(void) { return 5; }"
    newer = Some([opened(tmp_path / "libnewer.so", source)], FailedError).newer
    assert newer is not None
    with pytest.raises(FailedError):
        newer()


def test_missing_functions_are_named_all_at_once(tmp_path: Path) -> None:
    little = open_library(["liblittle.so"], [library(tmp_path / "liblittle.so", "status").parent])
    with pytest.raises(LibraryError) as caught:
        Some([little], FailedError)
    said = f"expected CANN 8.1 or newer, found no made, value in {little.path}"
    assert str(caught.value) == said


def test_a_function_is_taken_from_the_first_library_that_has_it(tmp_path: Path) -> None:
    one = opened(tmp_path / "a/libone.so", "int status(int wanted) { return 1; }")
    with pytest.raises(FailedError) as caught:
        Some([one, opened(tmp_path / "b/libtwo.so")], FailedError).status(0)
    assert caught.value.args == ("status", 1)


def test_too_few_or_wrong_arguments_are_refused_before_c_sees_them(some: Some) -> None:
    with pytest.raises(TypeError):
        some.status()
    with pytest.raises(Exception, match=r"wrong type|cannot be interpreted"):
        some.value("text")


def test_a_library_may_lack_functions_that_nobody_calls(tmp_path: Path) -> None:
    lacking = "int nowhere(void); int other(void) { return nowhere(); }"
    found = opened(tmp_path / "liblacking.so", SOURCE + lacking, flags=("-Wl,-z,lazy",))
    assert Some([found], FailedError).value(1) == 2


def test_types_that_one_user_declares_are_not_those_of_another(tmp_path: Path) -> None:
    class Other(Functions):
        value = ValueFunction(c_int, result=c_int)

    shared = opened(tmp_path / "libsome.so")
    some, other = Some([shared], FailedError), Other([shared], FailedError)
    assert some.value(2**40) == 2**40 + 1
    assert other.value(2**40) == 1
    assert shared.find("value").argtypes is None


def test_both_libraries_of_cann_are_opened(paths: AscendPaths, loaded: object) -> None:
    found = [path.rpartition("/")[2] for path in open_libraries(paths).paths]
    assert found == ["libascendcl.so", "libnnopbase.so"]
