"""The C of aclnn headers: which functions a text declares [src:header-grammar].

Preprocessor conditions are not evaluated: whatever stands in the text is declared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Bounded: every pattern reads a text once, whatever it holds. Literals go before anything else is
# looked for, since the message of a deprecation may hold parentheses, semicolons, comments.
_SPLICE = re.compile(r"\\\r?\n")
_COMMENT_OR_LITERAL = re.compile(
    r"""/\*.*?(?:\*/|\Z) | //[^\n]* | "(?:\\.|[^"\\\n])*+"? | '(?:\\.|[^'\\\n])*+'?""",
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[^\S\n]*+#[^\n]*", re.MULTILINE)
# What stands before aclnnStatus is of no concern: ACLNN_API, a visibility, a deprecation, nothing.
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
    """A parameter, its type as ``const aclTensor*``.

    The name is empty where C gives none, or more than a type and a name; ``c_type`` is all of it.
    """

    c_type: str
    name: str


@dataclass(frozen=True)
class Found:
    """A function that answers a status, and the file name of the header that declares it."""

    name: str
    parameters: tuple[Declared, ...]
    source: str

    @property
    def c_types(self) -> tuple[str, ...]:
        """The types of the parameters."""
        return tuple(parameter.c_type for parameter in self.parameters)


def parse(text: str, source: str) -> list[Found]:
    """The functions that a header declares, in its order."""
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
