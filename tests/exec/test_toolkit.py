"""The toolkit: what its libraries export, and that its headers are valid and complete."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.simulator.prototypes import read_prototypes

from npucall.operators import CATALOGUE
from npucall_exec import headers, toolkit
from npucall_exec.headers import functions, header_of

from .conftest import HERE, Run, compile_with

LIBRARIES = {
    "libascendcl.so": "aclrtMalloc",
    "libacl_rt.so": "aclrtMalloc",
    "libnnopbase.so": "aclCreateTensor",
    "libopapi.so": "aclnnKlDivBackward",
    "libopapi_nn.so": "aclnnKlDivBackward",
    "libopapi_math.so": "aclnnMuls",
    "libopapi_cv.so": "aclnnSigmoid",
    "libopapi_transformer.so": "aclnnSigmoid",
    "libcust_opapi.so": "aclnnKlDivTargetBackward",
}


def said(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(library: Path) -> list[str]:
    return said("nm", "-D", "--defined-only", "--format=just-symbols", library).split()


def test_libraries_have_their_names_and_export_nothing_but_cann_s(tree: Path) -> None:
    for library, function in LIBRARIES.items():
        path = tree / "lib64" / library
        assert function in exported(path)
        assert f"Library soname: [{library}]" in said("readelf", "-d", path)
    every = {name for path in (tree / "lib64").iterdir() for name in exported(path)}
    assert [name for name in every if not re.match("[aA]cl", name)] == []
    holder = set(exported(tree / "lib64/libnpucall_exec.so"))
    assert every == holder


def test_a_program_needs_the_libraries_that_it_was_linked_with(probe: Path) -> None:
    needed = re.findall(r"NEEDED.*\[(\w+)\.so", said("readelf", "-d", probe))
    assert {"libascendcl", "libnnopbase", "libopapi_nn"} <= set(needed)
    assert "libnpucall_exec" not in needed


@pytest.mark.parametrize("language", ["c", pytest.param("c++", marks=pytest.mark.more)])
def test_a_compiler_accepts_every_header_alone(tree: Path, language: str) -> None:
    include = tree / "include"
    command = ["gcc", "-fsyntax-only", "-Wall", "-Werror", f"-x{language}", f"-I{include}", "-"]
    one_operator = include / "aclnnop/aclnn_sigmoid.h"  # the others are made alike
    for path in [*include.glob("acl*/acl*.h"), one_operator] if language == "c++" else []:
        text = f'#include "{path.relative_to(include)}"\n'
        subprocess.run(command, input=text, text=True, check=True)
    every = "".join(f'#include "{p.relative_to(include)}"\n' for p in include.rglob("*.h"))
    subprocess.run(command, input=every, text=True, check=True)


def test_each_operator_is_in_the_header_that_cann_has_for_it() -> None:
    of_cann = {prototype.name: prototype.header for prototype in read_prototypes()}
    ours = {operator.name: header_of(operator) for operator in CATALOGUE}
    assert ours == {name: of_cann[name] for name in ours}


def test_all_functions_of_the_runtime_are_found_in_its_sources(tree: Path) -> None:
    declared = {*functions("acl"), *functions("nnopbase")}
    operators = {operator.name for operator in CATALOGUE}
    of_operators = {name + phase for name in operators for phase in ("", "GetWorkspaceSize")}
    assert declared | of_operators == set(exported(tree / "lib64/libnpucall_exec.so"))


def test_a_toolkit_in_a_folder_of_the_user_names_that_folder(tree: Path, tmp_path: Path) -> None:
    toolkit.install(tmp_path / "npu")
    script = (
        f". {tmp_path}/npu/set_env.sh; echo $ASCEND_HOME_PATH $ASCEND_OPP_PATH $LD_LIBRARY_PATH"
    )
    home = f"{tmp_path}/npu"
    for before, after in (((), ""), (("LD_LIBRARY_PATH=/other",), ":/other")):
        done = said("env", "-i", f"PATH={os.environ['PATH']}", *before, "sh", "-c", script)
        assert done.split() == [home, f"{home}/opp", f"{home}/lib64{after}"]
    assert (tmp_path / "npu/opp").is_dir()


@pytest.mark.more
def test_headers_of_an_installed_cann_come_first(run_here: Run, tmp_path: Path) -> None:
    own = tmp_path / "cann/include/acl/acl.h"
    own.parent.mkdir(parents=True)
    own.write_text('#define OF_CANN 7\n#include_next "acl/acl.h"\n')
    source = tmp_path / "program.c"
    source.write_text('#include "acl/acl.h"\nint main() { return aclInit(0) + OF_CANN; }\n')
    done = run_here("--toolkit", tmp_path / "cann", "--compile", source)
    assert done.returncode == 7, done.stderr


def test_another_header_makes_another_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    before = toolkit.content()
    monkeypatch.setattr(headers, "STATUSES", {})
    assert toolkit.content() != before


@pytest.mark.long
def test_libraries_for_another_machine_run_there(
    run_under: Run, tmp_path: Path, tree: Path
) -> None:
    """Its instructions are imitated; the command that computes is of this machine."""
    needed = ("aarch64-linux-gnu-g++", "qemu-aarch64-static")
    if any(shutil.which(command) is None for command in needed):
        pytest.skip(f"expected {', '.join(needed)} on the path")
    other, program = tmp_path / "npu", tmp_path / "probe"
    toolkit.build(other, "aarch64")
    assert exported(other / "lib64/libascendcl.so") == exported(tree / "lib64/libascendcl.so")
    compile_with(needed[0], other, HERE / "probe.cpp", program)
    imitated = (needed[1], "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={other}/lib64")
    for asked, printed in (("runs", "0.5\n"), ("threads", "25 " * 8)):
        done = run_under("--", *imitated, program, asked)
        assert (done.returncode, done.stdout) == (0, printed), done.stderr
