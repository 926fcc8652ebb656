"""What the headers declare, and the claims about it that g++ judges without running anything."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Claim(NamedTuple):
    """A constant expression of C++ that must be true."""

    name: str
    expression: str


@dataclass(frozen=True)
class Headers:
    """The headers in a folder that ``wheel.headers`` answers."""

    folder: Path

    def refuted(self, claims: Sequence[Claim], before: str = "") -> dict[str, str]:
        """The claims that do not hold, by name, with the compiler's reason.

        ``before``: C++ that stands between the headers and the claims.
        """
        found: dict[str, str] = {}
        for line in self._errors(claims, before):
            match = re.match(r"claims:(\d+):\d+: error: (.*)", line)
            if match is None:
                raise AssertionError(f"expected headers that compile, found {line}")
            found.setdefault(claims[int(match[1]) - 1].name, match[2])
        return found

    def type_of(self, function: str) -> str | None:
        """The C++ type of a function of CANN, or None where the headers do not have it."""
        if function in self.functions:
            return f"decltype(::{function})"
        if function in self.pointers:
            return f"std::remove_pointer_t<{self.pointers[function]}>"
        return None

    @cached_property
    def functions(self) -> frozenset[str]:
        """The names of the runtime's functions, and of what looks like one in a comment."""
        return frozenset(re.findall(r"\b(acl\w+)\s*\(", self._runtime))

    @cached_property
    def pointers(self) -> dict[str, str]:
        """Functions of libnnopbase: the name of the type of pointers through which they are called.

        ``aclnnXxx`` stands for every operator's second phase.
        """
        found = re.findall(r"^typedef [^;(]*\(\*(_acl\w+)\)", self._op_api, re.MULTILINE)
        return {name.removeprefix("_"): name for name in found} | {"aclnnXxx": "OpApiFunc"}

    @cached_property
    def statuses(self) -> dict[str, int]:
        """The names of statuses and their numbers, success left out."""
        pattern = r"^(?:static const \w+|#define)\s+(ACL_ERROR_\w+)\s*=?\s*([1-9]\d*)U?"
        found = re.findall(pattern, self._runtime, re.MULTILINE)
        return {name: int(number) for name, number in found}

    def _errors(self, claims: Sequence[Claim], before: str) -> list[str]:
        options = ["-std=c++17", "-fsyntax-only", "-w", "-fdiagnostics-plain-output"]
        done = subprocess.run(
            ["g++", *options, f"-I{self.folder}", f"-I{HERE}", "-x", "c++", "-"],
            input=self._program(claims, before), capture_output=True, text=True, check=False,
        )  # fmt: skip
        errors = [line for line in done.stderr.splitlines() if "error: " in line]
        if done.returncode and not errors:
            raise AssertionError(f"expected a compiler that judges, found {done.stderr}")
        return errors

    def _program(self, claims: Sequence[Claim], before: str) -> str:
        includes = ("<cstddef>", "<cstdint>", '"acl/acl.h"', '"alike.h"')
        head = [f"#include {name}" for name in includes]
        # Of this header only the types: the rest of it needs those of PyTorch.
        types = re.findall(
            r"^typedef struct \w+ \w+;|^typedef [^;(]*\(\*_acl[^;]*;|^using OpApiFunc =[^;]*;",
            self._op_api,
            re.MULTILINE,
        )
        lines = [f'static_assert({claim.expression}, "{claim.name}");' for claim in claims]
        return "\n".join([*head, *types, before, '#line 1 "claims"', *lines, ""])

    @cached_property
    def _runtime(self) -> str:
        return "".join(path.read_text() for path in sorted((self.folder / "acl").rglob("*.h")))

    @cached_property
    def _op_api(self) -> str:
        (path,) = self.folder.rglob("op_api_common_base.h")
        return path.read_text()
