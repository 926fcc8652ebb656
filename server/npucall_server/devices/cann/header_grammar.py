"""The grammar of aclnn headers: finds the functions that a text declares [src:header-grammar].

It does not evaluate preprocessor conditions: every declaration in the text counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Bounded: every pattern reads any text only once. Literals are removed first, since the message of
# a deprecation may contain parentheses, semicolons, comments.
_SPLICE = re.compile(r"\\\r?\n")
_COMMENT_OR_LITERAL = re.compile(
    r"""/\*.*?(?:\*/|\Z) | //[^\n]* | "(?:\\.|[^"\\\n])*+"? | '(?:\\.|[^'\\\n])*+'?""",
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[^\S\n]*+#[^\n]*", re.MULTILINE)
# The words before aclnnStatus do not matter: ACLNN_API, a visibility, a deprecation, or nothing.
_FUNCTION = re.compile(
    r"\baclnnStatus\s++(acl\w++)\s*+\(((?:[^()]++|\([^()]*+\))*+)\)\s*+;", re.ASCII
)
_TOKEN = re.compile(r"\w+|\S")
_PARAMETER = re.compile(
    r"(?P<const>const )?(?:struct )?(?P<type>[A-Za-z_]\w*+)(?P<late> const)?"
    r"(?P<stars>(?: \*)*+)(?: const)?(?: (?P<name>[A-Za-z_]\w*+))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Declared:
    """A parameter, with its type written as ``const aclTensor*``.

    If the declaration is not just a type and a name, the name is empty, and ``c_type`` is the whole
    declaration.
    """

    c_type: str
    name: str


@dataclass(frozen=True)
class Found:
    """A function that returns a status, and the file name of the header that declares it."""

    name: str
    parameters: tuple[Declared, ...]
    source: str

    @property
    def c_types(self) -> tuple[str, ...]:
        """The types of the parameters."""
        return tuple(parameter.c_type for parameter in self.parameters)


def parse(text: str, source: str) -> list[Found]:
    """The functions that a header declares, in the order of the header."""
    plain = _COMMENT_OR_LITERAL.sub(" ", _SPLICE.sub("", text))
    declarations = _FUNCTION.finditer(_DIRECTIVE.sub("", plain))
    return [Found(found[1], _parameters(found[2]), source) for found in declarations]


def _parameters(listed: str) -> tuple[Declared, ...]:
    return tuple(map(_declared, listed.split(","))) if listed.strip() else ()


def _declared(piece: str) -> Declared:
    spaced = " ".join(_TOKEN.findall(piece))
    found = _PARAMETER.fullmatch(spaced)
    if found is None:
        return Declared(spaced, "")
    const = "const " if found["const"] or found["late"] else ""
    stars = found["stars"].replace(" ", "")
    return Declared(f"{const}{found['type']}{stars}", found["name"] or "")
