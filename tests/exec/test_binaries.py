"""What users are told of a program that makes no call, by its file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from npucall_exec.binaries import why_nothing_arrived

SAYS = "int aclInit(const char*); int main() { return aclInit(0); }"
IS_CANN = "int aclInit(const char* text) { return text != 0; }"


def compiled(text: str, *flags: str) -> str:
    subprocess.run(["gcc", "-xc", "-", *flags], input=text, text=True, check=True)
    return flags[flags.index("-o") + 1]


def test_why_a_program_makes_no_call_is_said(tree: Path, tmp_path: Path) -> None:
    libraries = tree / "lib64"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}

    def why(program: str | Path) -> str:
        return why_nothing_arrived(str(program), environment, libraries)

    cann = tmp_path / "cann"
    cann.mkdir()
    compiled(IS_CANN, "-shared", "-fPIC", "-o", f"{cann}/libascendcl.so")
    linked = ("-Wl,--disable-new-dtags", f"-L{cann}", "-lascendcl")
    real = compiled(SAYS, "-o", f"{tmp_path}/real", *linked, f"-Wl,-rpath,{cann}")
    assert f"used {cann}/libascendcl.so" in why(real)
    assert "other libraries" in why(compiled(SAYS, "-o", f"{tmp_path}/ours", *linked))
    still = compiled("int main() { return 0; }", "-static", "-o", f"{tmp_path}/static")
    assert "linked statically" in why(still)

    set_id = Path(shutil.copy(real, tmp_path / "set_id"))
    set_id.chmod(0o4755)
    assert "is setuid" in why(set_id)
    foreign = tmp_path / "foreign"
    data = bytearray(Path(real).read_bytes())
    data[18:20] = (243).to_bytes(2, "little")
    foreign.write_bytes(data)
    foreign.chmod(0o755)
    assert "for riscv64, and this is" in why(foreign)
    for other in (b"", b"#!/bin/sh\n", b"\x7fELF\2\1" + b"\xff" * 100):
        foreign.write_bytes(other)
        assert why(foreign)
    assert "other libraries" in why("no-such-program")
