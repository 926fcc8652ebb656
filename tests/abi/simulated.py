"""What the sources of the runtime declare, of which the simulator is built."""

import re
import subprocess
from pathlib import Path

from npucall_exec.compiler import RUNTIME

_FUNCTION = re.compile(
    r'extern "C" __attribute__\(\(visibility\("default"\)\)\)\s+([^;{]*?\b(\w+)\([^;{]*\))\s*[;{]'
)
_STRUCTURE = re.compile(r"^(struct (\w+) \{.*?^\};)", re.MULTILINE | re.DOTALL)


def functions() -> dict[str, str]:
    """The declarations of all C functions by name: macros are expanded."""
    program = "".join(f'#include "{path}"\n' for path in _files())
    command = ["g++", "-std=c++17", "-E", "-P", f"-I{RUNTIME}", "-x", "c++", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=True)
    return {name: declaration for declaration, name in _FUNCTION.findall(done.stdout)}


def dtypes() -> list[str]:
    """The enumerators of its aclDataType."""
    (body,) = re.findall(r"typedef enum \{([^}]*)\} aclDataType;", _types())
    return re.findall(r"(\w+) =", body)


def namespace(declarations: dict[str, str]) -> str:
    """These functions in a namespace of C++, with the types that they need."""
    lines = [f"{declaration};" for declaration in declarations.values()]
    text = "".join(path.read_text() for path in _files())
    used = set(re.findall(r"\w+", " ".join(lines)))
    structures = [body for body, name in _STRUCTURE.findall(text) if name in used]
    return "\n".join(["namespace simulator {", _types(), *structures, *lines, "}"])


def _files() -> list[Path]:
    return sorted(RUNTIME.glob("*/*.cpp"))


def _types() -> str:
    return (RUNTIME / "acl_types.h").read_text().replace("#pragma once", "")
