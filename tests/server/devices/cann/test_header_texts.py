"""Any text is read: what is declared comes back however it is written, and garbage does no harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npucall_server.devices.cann.header_grammar import Declared, Found, parse

IDENTIFIERS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in {"const", "struct", "aclnnStatus"}
)
TYPES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "const "]),
    st.sampled_from(["aclTensor", "aclTensorList", "int64_t", "bool", "char", "aclOpExecutor"]),
    st.sampled_from(["", "*", "**"]),
)
FUNCTIONS = st.builds(
    Found,
    st.builds("acl{}".format, IDENTIFIERS),
    st.lists(st.builds(Declared, TYPES, IDENTIFIERS), max_size=6).map(tuple),
    st.just("x.h"),
)
TEXTS = st.lists(
    st.sampled_from([*"ab ,;()*\"'#{}算", "aclnnStatus aclnnFake(int x);"]), max_size=8
).map("".join)
GAPS = st.lists(
    st.sampled_from([" ", "\n", "\t", "\r\n", " \\\n "])
    | TEXTS.map(lambda text: f"/* {text} */")
    | TEXTS.map(lambda text: f"// {text}\n"),
    min_size=1,
    max_size=3,
).map("".join)
BETWEEN = st.lists(
    GAPS
    | st.sampled_from(["\n#define X \\\n aclnnStatus aclnnFake(int x);\n", 'extern "C" {', "}"])
    | st.sampled_from(["ACLNN_API ", 'ACL_DEPRECATED_MESSAGE("(;" "aclnnStatus aclnnF(int x);") ']),
    max_size=3,
).map(" ".join)  # fmt: skip


def written(function: Found, draw: st.DrawFn) -> str:
    """A declaration with noise between any two tokens."""
    tokens = ["aclnnStatus", function.name, "("]
    for number, parameter in enumerate(function.parameters):
        tokens += [","] * bool(number)
        tokens += [*parameter.c_type.replace("*", " * ").split(), parameter.name]
    return "".join(token + draw(GAPS) for token in [*tokens, ")", ";"])


@st.composite
def headers(draw: st.DrawFn) -> tuple[list[Found], str]:
    functions = draw(st.lists(FUNCTIONS, max_size=3))
    pieces = [f"{draw(BETWEEN)} {written(function, draw)}" for function in functions]
    return functions, "".join([*pieces, draw(BETWEEN)])


@given(headers())
def test_whatever_is_declared_is_read_back_however_it_is_written(
    header: tuple[list[Found], str],
) -> None:
    functions, text = header
    assert parse(text, "x.h") == functions


PIECES = ["aclnnStatus ", "aclnnX", "(", ")", ";", ",", "/*", "*/", "//", '"', "'", "\\", "\n", "#",
          "const ", "*", "\0", "\ufffd", "算", " "]  # fmt: skip


@given(st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_garbage_is_read_without_an_error(text: str) -> None:
    assert all(found.name.startswith("acl") for found in parse(text, "x.h"))


@pytest.mark.parametrize(
    "piece",
    ["/*", '"', "'", "\\", "#", " ", "\n ", "aclnnStatus ", "aclnnStatus aclnnX",
     "aclnnStatus aclnnX(", "aclnnStatus aclnnX((", "aclnnStatus aclnnX()",
     "aclnnStatus aclnnX(,", "*", "()", "const ", "'\\", '"\\', "/*\n#"],
)  # fmt: skip
@pytest.mark.parametrize("start", ["", "aclnnStatus aclnnX("])
def test_a_megabyte_of_one_piece_is_read_at_once(start: str, piece: str) -> None:
    # Patterns that try again from every place would take hours for this.
    assert parse(start + piece * (2**20 // len(piece)), "x.h") == []
