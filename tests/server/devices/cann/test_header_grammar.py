"""The C of headers: every spelling of a declaration is read, and nothing else is taken for one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from npucall_server.devices.cann.header_grammar import Declared, Found, parse

PHASE_TWO = "void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream"
RELU = f"aclnnStatus aclnnRelu({PHASE_TWO});"
FOUND_RELU = Found(
    "aclnnRelu",
    (
        Declared("void*", "workspace"),
        Declared("uint64_t", "workspaceSize"),
        Declared("aclOpExecutor*", "executor"),
        Declared("aclrtStream", "stream"),
    ),
    "x.h",
)
PREFIXES = [
    "",
    "ACLNN_API ",
    '__attribute__((visibility("default")))\n',
    '__attribute__((visibility("default"))) ',
    '__attribute__((visibility("default")))',
    'extern "C" ',
    'ACL_DEPRECATED_MESSAGE("old") ACLNN_API ',
    'ACL_DEPRECATED_MESSAGE("use V2 (or V3); it has more, and is faster")\nACLNN_API ',
    'ACL_DEPRECATED_MESSAGE("one, "\n                       "two; ("\n "three)") ',
    'ACL_DEPRECATED_MESSAGE("half \\" a word; aclnnStatus aclnnOld(int x);") ',
    'ACL_DEPRECATED_MESSAGE("see http://x /* not a comment") ',
    "static const char quote = '\"'; ",
    "static const char quote = '\\''; ",
]
COMMENTS = [
    "/** @brief 计算 aclnnStatus aclnnFake(int x); */",
    '/* two lines,\n aclnnStatus aclnnFake(int x);\n * and a quote " */',
    "// aclnnStatus aclnnFake(int x);",
    "// it's \"quoted",
    "// spliced \\\n aclnnStatus aclnnFake(int x);",
    "/* in // one */",
    "// one /* in another",
]
DIRECTIVES = [
    '#include "aclnn_util.h"',
    "  #  pragma once",
    "#define ACLNN_API __attribute__((visibility(default)))",
    "#define DECLARE(name) \\\n  aclnnStatus name##GetWorkspaceSize(  \\\n  int x);",
    "#define DECLARE \\\r\n aclnnStatus aclnnFake(int x);",
    "#error don't",
    "\t #define DECLARE aclnnStatus aclnnFake(int x);",
]
NO_DECLARATIONS = [
    "return aclnnRelu(workspace, size, executor, stream);",
    "aclnnStatus status = aclnnRelu(workspace, size, executor, stream);",
    "aclnnStatus aclnnRelu(int x) { return 0; }",
    "typedef aclnnStatus (*Relu)(int x);",
    "aclError aclInit(const char *path);",
    "aclTensor *aclCreateTensor(int x);",
    "myaclnnStatus aclnnRelu(int x);",
    "aclnnStatus otherRelu(int x);",
    "aclnnStatus aclnn算子(int x);",
    "aclnnStatus aclnnRelu(int x)",
    "ACLNN_API",
    "",
]
SPELLINGS = [
    "const aclTensor *self",
    "const aclTensor* self",
    "const aclTensor * self",
    "const aclTensor*self",
    "aclTensor const *self",
    "const aclTensor *const self",
    "const struct aclTensor *self",
    "const\n    aclTensor\t*self",
    "const aclTensor /* a, b */ *self // c, d\n",
    "\r\n  const aclTensor *self\r\n",
]
C_TYPES = [
    "const aclTensor*", "aclTensor*", "int64_t", "const int64_t", "const aclIntArray*",
    "aclIntArray*", "const aclTensorList*", "aclTensorList*", "const aclScalar*", "aclScalar*",
    "bool", "const bool", "double", "const double", "const char*", "char*", "float", "const float",
    "int8_t", "const int8_t", "int", "int32_t", "const int32_t", "aclDataType",
    "const aclDataType", "const aclScalarList*", "const aclBoolArray*", "uint64_t",
    "aclFloatArray*", "const aclFloatArray*", "uint64_t*", "aclOpExecutor**",
]  # fmt: skip
WITHOUT_NAMES = {
    "aclTensor *": "aclTensor*",
    "uint64_t": "uint64_t",
    "int64_t dim = 0": "int64_t dim = 0",
    "int64_t dims[3]": "int64_t dims [ 3 ]",
    "aclTensor &self": "aclTensor & self",
    "unsigned int dim": "unsigned int dim",
    "void (*done)(int)": "void ( * done ) ( int )",
    "...": ". . .",
    "int x算": "int x算",
}


def parameters(listed: str) -> list[tuple[str, str]]:
    (found,) = parse(f"aclnnStatus aclnnRelu({listed});", "x.h")
    return [(parameter.c_type, parameter.name) for parameter in found.parameters]


def test_a_function_is_found_behind_every_prefix() -> None:
    assert [p for p in PREFIXES if parse(p + RELU, "x.h") != [FOUND_RELU]] == []


def test_comments_and_preprocessor_lines_declare_nothing_and_hide_nothing() -> None:
    around = [*COMMENTS, *DIRECTIVES]
    wrong = [text for text in around if parse(f"{text}\n{RELU}\n{text}\n", "x.h") != [FOUND_RELU]]
    assert wrong == []


def test_what_is_no_declaration_of_an_operator_is_left_alone() -> None:
    assert [text for text in NO_DECLARATIONS if parse(text, "x.h")] == []


def test_a_parameter_is_read_in_every_spelling_and_type() -> None:
    expected = [("const aclTensor*", "self")]
    assert [text for text in SPELLINGS if parameters(text) != expected] == []
    wrong = [c for c in C_TYPES if parameters(f"{c} a, {c} b") != [(c, "a"), (c, "b")]]
    assert wrong == []


def test_a_parameter_that_is_more_or_less_than_a_type_and_a_name_has_no_name() -> None:
    found = {text: parameters(f"bool first, {text}")[1:] for text in WITHOUT_NAMES}
    assert found == {text: [(read, "")] for text, read in WITHOUT_NAMES.items()}


def test_a_function_may_have_no_parameters() -> None:
    assert [len(parameters(listed)) for listed in ("", " \n ", "void")] == [0, 0, 1]


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
FAKE = "aclnnStatus aclnnFake(int x);"
TEXTS = st.lists(st.sampled_from([*"ab ,;()*\"'#{}算", FAKE]), max_size=8).map("".join)
GAPS = st.lists(
    st.sampled_from([" ", "\n", "\t", "\r\n", " \\\n "])
    | TEXTS.map(lambda text: f"/* {text} */")
    | TEXTS.map(lambda text: f"// {text}\n"),
    min_size=1,
    max_size=3,
).map("".join)
BETWEEN = st.lists(
    GAPS
    | st.sampled_from([f"\n#define X \\\n {FAKE}\n", 'extern "C" {', "}"])
    | st.sampled_from(["ACLNN_API ", f'ACL_DEPRECATED_MESSAGE("(;" "{FAKE}") ']),
    max_size=3,
).map(" ".join)


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


@settings(max_examples=40)
@given(headers())
def test_whatever_is_declared_is_read_back_in_its_order_however_it_is_written(
    header: tuple[list[Found], str],
) -> None:
    functions, text = header
    assert parse(text, "x.h") == functions


PIECES = ["aclnnStatus ", "aclnnX", "(", ")", ";", ",", "/*", "*/", "//", '"', "'", "\\", "\n", "#",
          "const ", "*", "\0", "\ufffd", "算", " "]  # fmt: skip
OFTEN = ["/*", '"', "'", "\\", "#", " ", "\n ", "aclnnStatus ", "aclnnStatus aclnnX",
         "aclnnStatus aclnnX(", "aclnnStatus aclnnX((", "aclnnStatus aclnnX()",
         "aclnnStatus aclnnX(,", "*", "()", "const ", "'\\", '"\\', "/*\n#"]  # fmt: skip


@given(st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_garbage_is_read_without_an_error(text: str) -> None:
    assert all(found.name.startswith("acl") for found in parse(text, "x.h"))


def test_a_quarter_of_a_megabyte_of_one_piece_is_read_at_once() -> None:
    # Patterns that try again from every place would take hours for this.
    starts = ("", "aclnnStatus aclnnX(")
    texts = [start + piece * (2**18 // len(piece)) for start in starts for piece in OFTEN]
    assert [text[:30] for text in texts if parse(text, "x.h")] == []
