"""What the doctor says of CANN's two libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npucall_server.devices.cann.runtime import open_libraries
from npucall_server.doctor.finding import Verdict, fault
from npucall_server.doctor.libraries import check_libraries, check_opening

from .hosts import warnings

if TYPE_CHECKING:
    from tests.simulator.control import Simulator
    from tests.simulator.tree import Generation

    from npucall_server.npu_settings import AscendPaths

MISSING = "cannot open shared object file: No such file or directory"


def test_the_files_that_were_loaded_are_named(
    simulator: Simulator, toolkit: Generation, paths: AscendPaths
) -> None:
    said = [finding.found for finding in check_libraries(open_libraries(paths), paths)]
    assert f"loaded {toolkit.lib64}/libnnopbase.so" in said
    assert said[-1] == "every function is there"


def test_a_library_of_another_toolkit_is_a_warning(
    simulator: Simulator, paths: AscendPaths, tmp_path: Path
) -> None:
    other = paths._replace(home=tmp_path)
    found = warnings(check_libraries(open_libraries(paths), other))
    assert len(found) == 3
    assert all(text.endswith(f"which is not the library in {tmp_path}/lib64") for text in found)


def test_functions_that_an_older_version_does_not_have_are_named(
    simulator: Simulator, paths: AscendPaths, tmp_path: Path
) -> None:
    libraries = open_libraries(paths)
    del libraries.acl.aclFinalizeReference
    last = list(check_libraries(libraries, paths))[-1]
    assert last.verdict is Verdict.OK
    assert "but for aclFinalizeReference" in last.found


def test_every_path_that_was_tried_is_shown() -> None:
    tried = f"expected one of liba.so, libb.so, found none:\n  liba.so: liba.so: {MISSING}"
    finding = check_opening(f"{tried}\nSource the toolkit's set_env.sh")
    assert finding == fault(tried, "source the toolkit's set_env.sh", "library-names")


def test_a_library_of_the_driver_that_is_missing_leads_to_the_driver() -> None:
    finding = check_opening(f"expected:\n  libascendcl.so: libascend_hal.so: {MISSING}\nSource it")
    assert finding.todo.startswith("libascend_hal.so belongs to the driver: see the section driver")


def test_functions_that_are_missing_lead_to_a_newer_version() -> None:
    finding = check_opening("expected CANN 8.1 or newer, found no aclrtX in libascendcl.so")
    assert finding.found.startswith("expected CANN 8.1 or newer")
    assert finding.todo.startswith("install CANN 8.1 or newer")
