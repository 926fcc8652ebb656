"""``npucall exec`` and ``npucall toolkit``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from npucall_client.client import connect
from npucall_client.commands.console import Soc, TargetOrLocal
from npucall_client.commands.exits import ExitCode
from npucall_client.commands.run_child import run_child
from npucall_client.settings import target_of_environment
from npucall_client.targets import LOCAL
from npucall_exec import environment
from npucall_exec import toolkit as trees
from npucall_exec.binaries import why_nothing_arrived
from npucall_exec.calls import ProgramCalls
from npucall_exec.findings import Findings
from npucall_exec.own_operators import operators_in
from npucall_exec.serving import ProgramListener, Programs

_GIB = 2**30
_LIBRARIES = ("opapi", "opapi_nn", "opapi_math", "nnopbase", "ascendcl")
_SOURCES = (".c", ".cc", ".cpp", ".cxx")
_INCLUDED = ("", "/aclnnop", "/aclnn")
"""Folders below include/ whose headers are found by their names alone."""
Headers = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Headers of operators of yours, which the server has."),
]


def run_program(  # noqa: PLR0913  # options of a command
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROGRAM", help="The program and its arguments; -- stands before."),
    ] = None,
    target: TargetOrLocal = None,
    soc: Soc = "",
    variant: Annotated[
        str, typer.Option(metavar="VARIANT", help="The variant of operators that have several.")
    ] = "",
    source: Annotated[
        Path | None,
        typer.Option("--compile", metavar="FILE", help="Compile this, and run it with PROGRAM."),
    ] = None,
    cann: Annotated[
        Path | None,
        typer.Option("--toolkit", metavar="DIR", help="With --compile: a CANN, for its headers."),
    ] = None,
    headers: Headers = None,
    strict: Annotated[  # noqa: FBT002  # a flag
        bool, typer.Option("--strict", help="End with exit code 3 if there was a finding.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write findings and refusals as JSON.")
    ] = None,
    shared: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--shared", help="Device memory is memory of the server on this host."),
    ] = False,
    device_memory: Annotated[
        int | None,
        typer.Option(metavar="GIB", min=1, max=1024, help="GiB of the device: 8, or 1 if shared."),
    ] = None,
    quiet: Annotated[  # noqa: FBT002
        bool, typer.Option("--quiet", "-q", help="Say nothing on standard error.")
    ] = False,
) -> None:
    """Runs a program for an Ascend NPU without an NPU.

    The program is linked against CANN's names, such as libascendcl and libopapi; or --compile
    compiles and links a file. Its operators are computed by --target, else by NPUCALL_TARGET, else
    local:, which is this process. If it does what CANN leaves undefined, you read of it: a finding.
    The exit code is the program's; 126 and 127 mean that it could not be run, 128 + N that signal N
    ended it. With --compile, what follows -- are its arguments.

    Examples:
        npucall exec --compile sample.cpp
        npucall exec --strict -- ./program
        npucall exec --target npu-host:50051 -- bash build.sh
    """
    _need_linux()
    home = trees.built(operators_in(headers) if headers else None)
    findings = Findings(quiet=quiet)
    with ExitStack() as stack:
        program = list(command or ())
        if source is not None:
            homes = [home] if cann is None else [cann, home]
            include = [f"{one}/include{each}" for one in homes for each in _INCLUDED]
            include += [str(headers)] if headers else []
            compiled = _compiled(source, include, home / "lib64")
            stack.callback(os.close, compiled)
            program = [f"/proc/{os.getpid()}/fd/{compiled}", *program]
        if not program:
            raise ValueError("exec: expected a PROGRAM or --compile FILE, found neither")
        client = stack.enter_context(
            connect(target or target_of_environment() or LOCAL, soc=soc or None)
        )
        calls = ProgramCalls(client, variant)
        memory = (device_memory or (1 if shared else 8)) * _GIB
        programs = Programs(client, calls, findings, memory, shared=shared, strict=strict)
        socket = stack.enter_context(ProgramListener(programs))
        findings.note(f"computed by {calls.device} for {calls.soc}")
        variables = environment.of_program(home, socket)
        code = run_child(program, variables)
    if report is not None:
        findings.write(report, code)
    if not findings.processes and code not in (ExitCode.NO_COMMAND, ExitCode.NOT_RUN):
        why = why_nothing_arrived(program[0], variables, home / "lib64")
        findings.note(f"no call arrived: {why}")
    if strict and findings.found and code == 0:
        code = ExitCode.FOUND
    raise typer.Exit(code)


def toolkit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; it may exist.")],
    headers: Headers = None,
) -> None:
    """Writes headers and libraries for npucall exec.

    The folder is as CANN's installer lays it out: include/, lib64/, set_env.sh. Programs
    compile and link against it as they do against CANN; npucall exec runs them.

    Examples:
        npucall toolkit ~/npu
    """
    _need_linux()
    trees.install(folder, operators_in(headers) if headers else None)
    print(f"wrote {folder}: source {folder}/set_env.sh")


def _need_linux() -> None:
    if sys.platform != "linux":
        raise OSError(f"npucall exec: expected Linux, found {sys.platform}")


def _compiled(source: Path, include: Sequence[str], libraries: Path) -> int:
    """The program of a file, with the flags of CANN's own samples. Raises ValueError.

    It is in memory, so that nothing of it is left however this process ends.
    """
    if source.suffix not in _SOURCES or not source.is_file():
        raise ValueError(f"compile: expected a file {', '.join(_SOURCES)}, found {source}")
    compiler = "gcc" if source.suffix == ".c" else "g++"
    if shutil.which(compiler) is None:
        raise OSError(f"npucall exec: {compiler} compiles {source.name}: install it")
    flags = [*(f"-I{one}" for one in include), f"-L{libraries}", "-g"]
    linked = [f"-l{name}" for name in _LIBRARIES]
    with tempfile.TemporaryDirectory(prefix="npucall-") as folder:
        program = Path(folder, "program")
        arguments = [compiler, *flags, str(source), "-o", str(program), *linked]
        if subprocess.run(arguments, check=False).returncode:  # noqa: S603  # what the user asked for
            raise ValueError(
                f"compile: {compiler} does not compile {source}; if it lacks the header of an "
                "operator that npucall does not have, give its folder by --headers"
            )
        data = program.read_bytes()
    descriptor = os.memfd_create(source.stem)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    return descriptor


exec = run_program  # noqa: A001  # as the command is called
