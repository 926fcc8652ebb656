"""The C of headers: every spelling of a declaration is read, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from npucall_server.devices.cann.header_grammar import Declared, Found, parse

PHASE_TWO = "void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream"
FOUND_RELU = Found(
    "aclnnRelu",
    (
        Declared("void*", "workspace"),
        Declared("uint64_t", "workspaceSize"),
        Declared("aclOpExecutor*", "executor"),
        Declared("aclrtStream", "stream"),
    ),
    "aclnn_relu.h",
)


def parameters(listed: str) -> list[tuple[str, str]]:
    (found,) = parse(f"aclnnStatus aclnnRelu({listed});", "aclnn_relu.h")
    return [(parameter.c_type, parameter.name) for parameter in found.parameters]


@pytest.mark.parametrize(
    "prefix",
    [
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
    ],
)
def test_a_function_is_found_behind_every_prefix(prefix: str) -> None:
    assert parse(f"{prefix}aclnnStatus aclnnRelu({PHASE_TWO});", "aclnn_relu.h") == [FOUND_RELU]


@pytest.mark.parametrize(
    "comment",
    [
        "/** @brief 计算 aclnnStatus aclnnFake(int x); */",
        '/* two lines,\n aclnnStatus aclnnFake(int x);\n * and a quote " */',
        "// aclnnStatus aclnnFake(int x);",
        "// it's \"quoted",
        "// spliced \\\n aclnnStatus aclnnFake(int x);",
        "/* in // one */",
        "// one /* in another",
    ],
)
def test_comments_hold_no_functions_and_hide_none(comment: str) -> None:
    text = f"{comment}\naclnnStatus aclnnRelu({PHASE_TWO});\n{comment}\n"
    assert parse(text, "aclnn_relu.h") == [FOUND_RELU]


@pytest.mark.parametrize(
    "directive",
    [
        '#include "aclnn_util.h"',
        "  #  pragma once",
        "#define ACLNN_API __attribute__((visibility(default)))",
        "#define DECLARE(name) \\\n  aclnnStatus name##GetWorkspaceSize(  \\\n  int x);",
        "#define DECLARE \\\r\n aclnnStatus aclnnFake(int x);",
        "#error don't",
        "\t #define DECLARE aclnnStatus aclnnFake(int x);",
    ],
)
def test_preprocessor_lines_declare_nothing_and_hide_nothing(directive: str) -> None:
    text = f"{directive}\naclnnStatus aclnnRelu({PHASE_TWO});\n{directive}\n"
    assert parse(text, "aclnn_relu.h") == [FOUND_RELU]


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_what_is_no_declaration_of_an_operator_is_left_alone(text: str) -> None:
    assert parse(text, "aclnn_relu.h") == []


@pytest.mark.parametrize(
    "spelling",
    [
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
    ],
)
def test_a_parameter_is_read_in_every_spelling(spelling: str) -> None:
    assert parameters(spelling) == [("const aclTensor*", "self")]


@pytest.mark.parametrize(
    "c_type",
    ["const aclTensor*", "aclTensor*", "int64_t", "const int64_t", "const aclIntArray*",
     "aclIntArray*", "const aclTensorList*", "aclTensorList*", "const aclScalar*", "aclScalar*",
     "bool", "const bool", "double", "const double", "const char*", "char*", "float", "const float",
     "int8_t", "const int8_t", "int", "int32_t", "const int32_t", "aclDataType",
     "const aclDataType", "const aclScalarList*", "const aclBoolArray*", "uint64_t",
     "aclFloatArray*", "const aclFloatArray*", "uint64_t*", "aclOpExecutor**"],
)  # fmt: skip
def test_every_type_of_the_headers_is_kept(c_type: str) -> None:
    assert parameters(f"{c_type} first, {c_type} second") == [(c_type, "first"), (c_type, "second")]


@pytest.mark.parametrize(
    ("parameter", "read"),
    [
        ("aclTensor *", "aclTensor*"),
        ("uint64_t", "uint64_t"),
        ("int64_t dim = 0", "int64_t dim = 0"),
        ("int64_t dims[3]", "int64_t dims [ 3 ]"),
        ("aclTensor &self", "aclTensor & self"),
        ("unsigned int dim", "unsigned int dim"),
        ("void (*done)(int)", "void ( * done ) ( int )"),
        ("...", ". . ."),
        ("int x算", "int x算"),
    ],
)
def test_a_parameter_that_is_more_or_less_than_a_type_and_a_name_has_no_name(
    parameter: str, read: str
) -> None:
    assert parameters(f"bool first, {parameter}") == [("bool", "first"), (read, "")]


@pytest.mark.parametrize(("listed", "count"), [("", 0), (" \n ", 0), ("void", 1)])
def test_a_function_may_have_no_parameters(listed: str, count: int) -> None:
    assert len(parameters(listed)) == count


def test_functions_come_in_the_order_of_the_header() -> None:
    text = "aclnnStatus aclnnB(int x); aclnnStatus aclStft(int x);\naclnnStatus aclnnA(int x);"
    assert [found.name for found in parse(text, "x.h")] == ["aclnnB", "aclStft", "aclnnA"]
