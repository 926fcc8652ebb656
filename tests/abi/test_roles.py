"""The comparison of roles with documents, on headers and documents that exist only here."""

from __future__ import annotations

from pathlib import Path

import pytest

from npucall_server.devices.cann.header_roles import Role

from .documents import prototypes_in, role_from, stated_in
from .roles import EXTRA, IN_PLACE, LOST, NOT_SENT, SENT, Comparison, compare

BEHIND = "uint64_t *workspaceSize, aclOpExecutor **executor"
OUT = Role.OUTPUT


def page(operator: str, body: str) -> str:
    return f"# {operator}\n\n## {operator}GetWorkspaceSize\n\n{body}\n"


def markdown(*rows: tuple[str, str], header: str = "| 参数名 | 输入/输出 | 描述 |") -> str:
    lines = [f"  | {name} | {role} | x |" for name, role in rows]
    return "\n".join([f"  {header}", "  |---|:---:|---|", *lines])


def compared(folder: Path, parameters: str, *rows: tuple[str, str], **more: str) -> Comparison:
    """``aclnnTwist`` with these parameters in a header and these rows in a document."""
    operator = more.get("operator", "aclnnTwist")
    header = f"aclnnStatus {operator}GetWorkspaceSize({parameters}, {BEHIND});"
    (folder / "twist.h").write_text(header, encoding="utf-8")
    (folder / "twist.md").write_text(page(operator, markdown(*rows)), encoding="utf-8")
    return compare([folder])


# --- Documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "role"),
    [("输入", Role.INPUT), ("输出", OUT), ("输入/输出", Role.IN_OUT), ("输入输出", Role.IN_OUT),
     ("Input", Role.INPUT), ("output", OUT), ("Input/Output", Role.IN_OUT),
     ("in, out", Role.IN_OUT),
     ("aclTensor*，计算输入", Role.INPUT),
     ("出参", OUT), ("必选", None), ("-", None)],
)  # fmt: skip
def test_words_tell_a_role(text: str, role: Role | None) -> None:
    assert role_from(text) is role


def test_a_table_of_markdown_is_read() -> None:
    rows = (("`self`", "输入"), ("**out**（aclTensor*）", "输出"), ("minOut、maxOut", "输出"))
    assert stated_in(page("aclnnTwist", markdown(*rows))) == {
        "aclnnTwist": {"self": Role.INPUT, "out": OUT, "minOut": OUT, "maxOut": OUT}
    }


def test_a_table_in_english_is_read() -> None:
    table = markdown(("out", "Output"), header="| Parameter | Input/Output | Description |")
    assert stated_in(page("aclnnTwist", table)) == {"aclnnTwist": {"out": OUT}}


def test_a_table_of_html_is_read_with_cells_that_span_rows() -> None:
    table = """<table><thead><tr><th>Parameter</th><th>Input/Output</th><th>x</th></tr></thead>
      <tbody><tr><td><b>a</b></td><td rowspan="2">input</td><td>x<br>out</td></tr>
      <tr><td>b (aclTensor*)</td><td>x</td></tr>
      <tr><td rowspan=2>c</td><td>output<td>x</tr><tr><td>input</td><td>x</td></tr></table>"""
    roles = {"a": Role.INPUT, "b": Role.INPUT, "c": OUT}
    assert stated_in(page("aclnnTwist", table)) == {"aclnnTwist": roles}


def test_a_list_is_read() -> None:
    lines = "- self（aclTensor*，计算输入）：x\n  * `out`(aclTensor*, 计算输出): x\n- n（必选）"
    assert stated_in(page("aclnnTwist", lines)) == {"aclnnTwist": {"self": Role.INPUT, "out": OUT}}


def test_each_operator_of_a_document_has_its_own_table() -> None:
    text = page("aclnnA", markdown(("x", "输入"))) + page("aclnnB", markdown(("x", "输出")))
    assert stated_in(text) == {"aclnnA": {"x": Role.INPUT}, "aclnnB": {"x": OUT}}


def test_a_table_below_no_operators_heading_is_about_those_of_the_title() -> None:
    text = f"# aclnnA&aclnnB\n## 参数\n{markdown(('x', '输入'))}\n"
    assert stated_in(text) == {"aclnnA": {"x": Role.INPUT}, "aclnnB": {"x": Role.INPUT}}


@pytest.mark.parametrize(
    "body",
    [
        "<!-- | 参数名 | 输入/输出 |\n|---|---|\n| x | 输入 | -->",
        "```cpp\n| 参数名 | 输入/输出 |\n|---|---|\n| x | 输入 |\n```",
        "| 返回值 | 描述 |\n|---|---|\n| x | 输入 |",
        "| 参数名 | 描述 |\n|---|---|\n| x | 输入 |",
    ],
)
def test_other_text_says_nothing(body: str) -> None:
    assert stated_in(page("aclnnTwist", body)) == {}


def test_code_of_a_document_declares_functions_though_it_lacks_semicolons() -> None:
    text = "x\n```Cpp\naclnnStatus aclnnA(int a)\n```\n```\naclnnStatus aclnnB(int b);\n```\n"
    assert [found.name for found in prototypes_in(text, "x")] == ["aclnnA", "aclnnB"]


# --- Comparison -----------------------------------------------------------------------------------


def test_equal_roles_are_counted(tmp_path: Path) -> None:
    found = compared(tmp_path, "const aclTensor *x, aclTensor *out", ("x", "输入"), ("out", "输出"))
    assert found == Comparison(operators=1, compared=1, by_document=0, tensors=2, misses=())


@pytest.mark.parametrize(
    ("parameters", "row", "meaning"),
    [
        ("const aclTensor *x, aclTensor *out", ("x", "输出"), LOST),
        ("const aclTensor *x, aclTensor *out", ("x", "输入/输出"), LOST),
        ("const aclTensor *x, aclTensor *out", ("out", "输入/输出"), NOT_SENT),
        ("const aclTensor *x, aclTensor *out", ("out", "输入"), EXTRA),
        ("const aclTensor *x, aclTensor *state", ("state", "输出"), SENT),
        ("const aclTensor *x, aclTensor *state", ("state", "输入"), EXTRA),
        ("aclTensor *selfRef", ("selfRef", "输入"), IN_PLACE),
    ],
)
def test_a_difference_is_found(
    tmp_path: Path, parameters: str, row: tuple[str, str], meaning: str
) -> None:
    (miss,) = compared(tmp_path, parameters, row).misses
    assert (miss.operator, miss.tensor, miss.meaning) == ("aclnnTwist", row[0], meaning)


def test_names_may_differ_in_their_spelling(tmp_path: Path) -> None:
    found = compared(tmp_path, "const aclTensor *a_bOptional, aclTensor *out", ("aB", "输出"))
    assert [miss.tensor for miss in found.misses] == ["a_bOptional"]


def test_a_known_error_of_a_document_is_no_difference(tmp_path: Path) -> None:
    parameters, operator = "const aclTensor *x, aclTensor *out", "aclnnConfusionTranspose"
    assert not compared(tmp_path, parameters, ("x", "输入/输出"), operator=operator).misses


def test_an_operator_without_header_counts_as_its_document_declares_it(tmp_path: Path) -> None:
    code = f"aclnnStatus aclnnTwistGetWorkspaceSize(const aclTensor *x, {BEHIND})"
    text = page("aclnnTwist", f"```cpp\n{code}\n```\n{markdown(('x', '输出'))}")
    (tmp_path / "twist.md").write_text(text, encoding="utf-8")
    found = compare([tmp_path])
    assert (found.by_document, [miss.meaning for miss in found.misses]) == (1, [LOST])
