"""What sanitizers and valgrind find in the runtime: nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from npucall.operators import CATALOGUE
from npucall_exec.compiler import RUNTIME, release, sources_of, together
from npucall_exec.entry_points import entry_point, parameters_of

from .conftest import HERE, Run
from .test_programs import ENDS

LIVES = [asked for asked, (code, *_) in ENDS.items() if code == 0]
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}


def with_sanitizer(tree: Path, folder: Path, sanitizer: str) -> Path:
    """The probe and all of the runtime as one program."""
    runtime, points, program = folder / "runtime.cpp", folder / "points.cpp", folder / "probe"
    parts = [path for part in ("acl", "nnopbase", "socket") for path in sources_of(part)]
    runtime.write_text(together(parts) + release(90))
    names = ("aclnnSigmoid", "aclnnLog")
    rest = '"builtin", nullptr, 0, false, 8'
    texts = [entry_point(name, parameters_of(CATALOGUE.find(name)), rest) for name in names]
    points.write_text("\n".join(['#include "operator_entry.h"\n', *texts]))
    flags = ["-std=c++17", "-g", "-pthread", "-DSIM_GENERATION=90", f"-fsanitize={sanitizer}"]
    include = [f"-I{RUNTIME}", f"-I{tree}/include"]
    sources = [runtime, points, HERE / "probe.cpp"]
    subprocess.run(["g++", *flags, *include, *sources, "-ldl", "-o", program], check=True)
    return program


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(
    tree: Path, run_under: Run, tmp_path: Path, sanitizer: str
) -> None:
    program = with_sanitizer(tree, tmp_path, sanitizer)
    for asked in LIVES:
        done = run_under("--", program, asked, **OPTIONS)
        assert done.returncode == 0, done.stderr
        assert "Sanitizer" not in done.stderr
        assert "runtime error" not in done.stderr
    wrong = run_under("--", program, "touches", **OPTIONS)
    assert "the host touched device memory" in wrong.stderr
    assert "Sanitizer: SEGV" in wrong.stderr  # the handler that was there has it next


@pytest.mark.long
def test_valgrind_finds_nothing(probe: Path, run_under: Run) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("expected valgrind on the path, found none")
    command = ("valgrind", "--error-exitcode=9", probe)
    for asked in LIVES:
        done = run_under("--device-memory", "1", "--", *command, asked)
        assert done.returncode == 0, done.stderr
        assert "ERROR SUMMARY: 0 errors" in done.stderr
    wrong = run_under("--device-memory", "1", "--", *command, "touches")
    assert "Invalid read of size 4" in wrong.stderr
