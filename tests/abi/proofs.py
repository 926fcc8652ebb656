"""For every C function that the server calls: what proves its declaration.

``make abi`` runs this file, which proves and writes proofs.json, from which the documentation
takes it. Where a proof fails nothing is written, and the functions are named.
"""

import json
import sys
from pathlib import Path
from typing import Any

from . import wheel
from .headers import Claim, Headers
from .ours import signatures

TABLE = Path(__file__).with_name("proofs.json")

HEADER, TYPEDEF, NONE = "header", "typedef", "none"
MEANINGS = {
    HEADER: f"compiled against CANN's headers in the wheel of {wheel.NAME}",
    TYPEDEF: f"compiled against the type by which {wheel.NAME} calls it",
    NONE: "none without hardware: no public header of a wheel declares it",
}


def claims(headers: Headers, declared: dict[str, str]) -> list[Claim]:
    """That these functions, of which the headers have a type, are declared as they are there."""
    types = {name: headers.type_of(name) for name in declared}
    return [
        Claim(name, f"alike<{theirs}, {declared[name]}>()")
        for name, theirs in types.items()
        if theirs
    ]


def proofs(headers: Headers) -> dict[str, Any]:
    """The content of proofs.json; raises AssertionError where a declaration is wrong."""
    declared = signatures()
    wrong = headers.refuted(claims(headers, declared))
    if wrong:
        raise AssertionError(f"expected these to be declared as in {wheel.NAME}: {wrong}")
    return {"meanings": MEANINGS, "functions": {name: _kind(headers, name) for name in declared}}


def _kind(headers: Headers, name: str) -> str:
    if name in headers.functions:
        return HEADER
    return TYPEDEF if name in headers.pointers else NONE


def _main() -> str | None:
    try:
        found = proofs(Headers(wheel.headers()))
    except (AssertionError, wheel.UnavailableError) as error:
        return str(error)
    TABLE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(_main())
