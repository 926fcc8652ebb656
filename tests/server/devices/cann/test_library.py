"""Libraries that are opened, and C functions that are declared in one line."""

from __future__ import annotations

from ctypes import c_int, c_int64
from typing import TYPE_CHECKING

import pytest

from npucall_server.devices.cann.library import (
    BAD_ALLOC,
    Function,
    Functions,
    HandleFunction,
    LibraryError,
    NewStatusFunction,
    StatusFunction,
    open_library,
)
from npucall_server.devices.cann.runtime import open_libraries
from npucall_server.npu_settings import AscendPaths

from .compiled import compiled, library

if TYPE_CHECKING:
    from pathlib import Path


class FailedError(Exception):
    """A function failed: its name and status."""


class Some(Functions):
    status = StatusFunction(c_int)
    made = HandleFunction()
    value = Function(c_int64, result=c_int64)
    newer = NewStatusFunction()


SOURCE = """
int status(int wanted) { return wanted; }
void *made(void) { return 0; }
long long value(long long number) { return number + 1; }
"""


@pytest.fixture
def some(tmp_path: Path) -> Some:
    opened = open_library(["libsome.so"], [compiled(tmp_path / "libsome.so", SOURCE).parent])
    return Some([opened], FailedError)


def test_a_library_is_opened_in_the_first_folder_that_has_it(tmp_path: Path) -> None:
    there = library(tmp_path / "b" / "libnpucall_x.so")
    opened = open_library(["libnpucall_x.so"], [tmp_path / "a", tmp_path / "b"])
    assert opened.path == str(there)


def test_the_first_name_counts_before_the_second(tmp_path: Path) -> None:
    for name in ("libnpucall_old.so", "libnpucall_new.so"):
        library(tmp_path / name)
    opened = open_library(["libnpucall_old.so", "libnpucall_new.so"], [tmp_path])
    assert opened.path == str(tmp_path / "libnpucall_old.so")


def test_the_loader_s_path_counts_before_the_folders(tmp_path: Path) -> None:
    library(tmp_path / "libc.so.6")
    assert open_library(["libc.so.6"], [tmp_path]).path == "libc.so.6"


def test_the_error_names_every_path_tried_and_what_to_source(tmp_path: Path) -> None:
    broken = tmp_path / "b/libnpucall_y.so"
    broken.parent.mkdir()
    broken.write_text("no library")
    with pytest.raises(LibraryError) as caught:
        open_library(["libnpucall_x.so", "libnpucall_y.so"], [tmp_path / "a", tmp_path / "b"])
    first, *tried, advice = str(caught.value).splitlines()
    assert first == "expected one of libnpucall_x.so, libnpucall_y.so, found none:"
    assert [line.split(": ")[0].strip() for line in tried] == [
        "libnpucall_x.so",
        "libnpucall_y.so",
        *(
            str(tmp_path / place / name)
            for place in "ab"
            for name in ("libnpucall_x.so", "libnpucall_y.so")
        ),
    ]
    assert "file too short" in tried[-1] or "invalid ELF header" in tried[-1]
    for what in ("set_env.sh", "ASCEND_HOME_PATH", "LD_LIBRARY_PATH", "mount the driver"):
        assert what in advice


def test_a_status_of_0_is_no_failure(some: Some) -> None:
    assert some.status(0) is None


def test_any_other_status_is_raised_with_the_name_of_the_function(some: Some) -> None:
    with pytest.raises(FailedError) as caught:
        some.status(-7)
    assert caught.value.args == ("status", -7)


def test_a_null_pointer_is_raised_as_lack_of_memory(some: Some) -> None:
    with pytest.raises(FailedError) as caught:
        some.made()
    assert caught.value.args == ("made", BAD_ALLOC)


def test_a_value_comes_back_whole(some: Some) -> None:
    assert some.value(2**40) == 2**40 + 1


def test_a_newer_function_is_none_where_it_is_missing(some: Some) -> None:
    assert some.newer is None


def test_a_newer_function_is_called_where_it_is_there(tmp_path: Path) -> None:
    path = compiled(tmp_path / "libnewer.so", SOURCE + "int newer(void) { return 5; }")
    newer = Some([open_library(["libnewer.so"], [path.parent])], FailedError).newer
    assert newer is not None
    with pytest.raises(FailedError):
        newer()


def test_missing_functions_are_named_all_at_once(tmp_path: Path) -> None:
    opened = open_library(["liblittle.so"], [library(tmp_path / "liblittle.so", "status").parent])
    with pytest.raises(LibraryError) as caught:
        Some([opened], FailedError)
    assert str(caught.value) == (
        f"expected CANN 8.1 or newer, found no made, value in {opened.path}"
    )


def test_a_function_is_taken_from_the_first_library_that_has_it(tmp_path: Path) -> None:
    one = compiled(tmp_path / "a/libone.so", "int status(int wanted) { return 1; }")
    two = compiled(tmp_path / "b/libtwo.so", SOURCE)
    opened = [open_library([path.name], [path.parent]) for path in (one, two)]
    with pytest.raises(FailedError) as caught:
        Some(opened, FailedError).status(0)
    assert caught.value.args == ("status", 1)


def test_too_few_or_wrong_arguments_are_refused_before_c_sees_them(some: Some) -> None:
    with pytest.raises(TypeError):
        some.status()
    with pytest.raises(Exception, match=r"wrong type|cannot be interpreted"):
        some.value("text")


def test_a_library_may_lack_functions_that_nobody_calls(tmp_path: Path) -> None:
    lacking = "int nowhere(void); int other(void) { return nowhere(); }"
    path = compiled(tmp_path / "liblacking.so", SOURCE + lacking, flags=("-Wl,-z,lazy",))
    assert Some([open_library([path.name], [path.parent])], FailedError).value(1) == 2


def test_types_that_one_user_declares_are_not_those_of_another(tmp_path: Path) -> None:
    class Other(Functions):
        value = Function(c_int, result=c_int)

    library = open_library(["libsome.so"], [compiled(tmp_path / "libsome.so", SOURCE).parent])
    some, other = Some([library], FailedError), Other([library], FailedError)
    assert some.value(2**40) == 2**40 + 1
    assert other.value(2**40) == 1
    assert library.find("value").argtypes is None


def test_both_libraries_of_cann_are_opened(paths: AscendPaths, loaded: object) -> None:
    libraries = open_libraries(paths)
    assert [path.rpartition("/")[2] for path in libraries.paths] == [
        "libascendcl.so",
        "libnnopbase.so",
    ]
