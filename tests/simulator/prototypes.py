"""Reads the files prototypes*.h: which operators there are, and where."""

import re
from dataclasses import dataclass
from pathlib import Path

from npucall_exec.entry_points import CParameter

FOLDER = Path(__file__).parent
FILES = tuple(sorted(FOLDER.glob("prototypes*.h")))
GENERATIONS = ("8.1", "8.3", "9.x")
_LATER = {"8.1": ("8.3",)}
"""Releases that have what an older one has."""

_OPERATOR = re.compile(
    r"^// (?P<header>\w+\.h); (?P<library>\w+); (?P<releases>[\w. ]+)(?:; (?P<words>[\w -]+))?\n"
    r"SIM_OPERATOR\((?P<name>\w+),(?P<parameters>[^()]*)\);$",
    re.MULTILINE,
)
_PARAMETER = re.compile(
    r"(?P<optional>SIM_OPTIONAL )?(?P<output>SIM_OUT )?"
    r"(?P<type>[\w ]+?)(?P<star> \*| )(?P<name>\w+)"
)


@dataclass(frozen=True)
class Prototype:
    """One operator: its parameters before workspace size and executor, and where it is."""

    name: str
    parameters: tuple[CParameter, ...]
    header: str
    library: str
    releases: tuple[str, ...]
    words: tuple[str, ...]


def read_prototypes() -> list[Prototype]:
    """Every operator, in the order of the files."""
    return [_prototype(match) for path in FILES for match in _OPERATOR.finditer(path.read_text())]


def _prototype(match: re.Match[str]) -> Prototype:
    parameters = " ".join(match["parameters"].split())
    return Prototype(
        name=match["name"],
        parameters=tuple(map(_parameter, parameters.split(", "))),
        header=match["header"],
        library=match["library"],
        releases=_releases(match["releases"].split()),
        words=tuple((match["words"] or "").split()),
    )


def _releases(named: list[str]) -> tuple[str, ...]:
    every = {*named, *(later for name in named for later in _LATER.get(name, ()))}
    return tuple(sorted(every))


def _parameter(text: str) -> CParameter:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a C parameter, found {text!r}")
    return CParameter(
        name=match["name"],
        c_type=match["type"] + match["star"].strip(),
        optional=match["optional"] is not None,
        output=match["output"] is not None,
    )
