"""The comparison of roles with documents, on headers and documents that exist only here."""

from pathlib import Path

from documents import prototypes_in, role_from, stated_in
from roles import EXTRA, IN_PLACE, LOST, NOT_SENT, SENT, Comparison, compare
from tests.rows import each

from npucall_server.devices.cann.header_roles import TensorRole

BEHIND = "uint64_t *workspaceSize, aclOpExecutor **executor"
IN, OUT, BOTH = TensorRole.INPUT, TensorRole.OUTPUT, TensorRole.IN_OUT
WORDS = {
    "输入": IN, "输出": OUT, "输入/输出": BOTH, "输入输出": BOTH, "Input": IN, "output": OUT,
    "Input/Output": BOTH, "in, out": BOTH, "aclTensor*，计算输入": IN, "出参": OUT, "必选": None,
    "-": None,
}  # fmt: skip


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


def test_words_tell_a_role() -> None:
    assert {text: role_from(text) for text in WORDS} == WORDS


HTML = """<table><thead><tr><th>Parameter</th><th>Input/Output</th><th>x</th></tr></thead>
  <tbody><tr><td><b>a</b></td><td rowspan="2">input</td><td>x<br>out</td></tr>
  <tr><td>b (aclTensor*)</td><td>x</td></tr>
  <tr><td rowspan=2>c</td><td>output<td>x</tr><tr><td>input</td><td>x</td></tr></table>"""
SAID: list[tuple[str, dict[str, TensorRole]]] = [
    (markdown(("`self`", "输入"), ("**out**（aclTensor*）", "输出"), ("minOut、maxOut", "输出")),
     {"self": IN, "out": OUT, "minOut": OUT, "maxOut": OUT}),
    (markdown(("out", "Output"), header="| Parameter | Input/Output | Description |"),
     {"out": OUT}),
    (HTML, {"a": IN, "b": IN, "c": OUT}),  # with cells that span rows
    ("- self（aclTensor*，计算输入）：x\n  * `out`(aclTensor*, 计算输出): x\n- n（必选）",
     {"self": IN, "out": OUT}),
    ("<!-- | 参数名 | 输入/输出 |\n|---|---|\n| x | 输入 | -->", {}),
    ("```cpp\n| 参数名 | 输入/输出 |\n|---|---|\n| x | 输入 |\n```", {}),
    ("| 返回值 | 描述 |\n|---|---|\n| x | 输入 |", {}),
    ("| 参数名 | 描述 |\n|---|---|\n| x | 输入 |", {}),
]  # fmt: skip


def test_tables_and_lists_are_read_and_nothing_else() -> None:
    found = [(body, stated_in(page("aclnnTwist", body)).get("aclnnTwist", {})) for body, _ in SAID]
    assert found == SAID


def test_a_table_is_about_the_operator_of_its_heading_or_those_of_the_title() -> None:
    text = page("aclnnA", markdown(("x", "输入"))) + page("aclnnB", markdown(("x", "输出")))
    assert stated_in(text) == {"aclnnA": {"x": IN}, "aclnnB": {"x": OUT}}
    text = f"# aclnnA&aclnnB\n## 参数\n{markdown(('x', '输入'))}\n"
    assert stated_in(text) == {"aclnnA": {"x": IN}, "aclnnB": {"x": IN}}


def test_code_of_a_document_declares_functions_though_it_lacks_semicolons() -> None:
    text = "x\n```Cpp\naclnnStatus aclnnA(int a)\n```\n```\naclnnStatus aclnnB(int b);\n```\n"
    assert [found.name for found in prototypes_in(text, "x")] == ["aclnnA", "aclnnB"]


# --- Comparison -----------------------------------------------------------------------------------

X_OUT = "const aclTensor *x, aclTensor *out"


def test_equal_roles_are_counted(tmp_path: Path) -> None:
    found = compared(tmp_path, X_OUT, ("x", "输入"), ("out", "输出"))
    assert found == Comparison(operators=1, compared=1, by_document=0, tensors=2, misses=())


@each(
    ("parameters", "row", "meaning"),
    [
        (X_OUT, ("x", "输出"), LOST),
        (X_OUT, ("x", "输入/输出"), LOST),
        (X_OUT, ("out", "输入/输出"), NOT_SENT),
        (X_OUT, ("out", "输入"), EXTRA),
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


def test_names_may_differ_in_their_spelling_and_documents_may_err(tmp_path: Path) -> None:
    found = compared(tmp_path, "const aclTensor *a_bOptional, aclTensor *out", ("aB", "输出"))
    assert [miss.tensor for miss in found.misses] == ["a_bOptional"]
    known = "aclnnConfusionTranspose"
    assert not compared(tmp_path, X_OUT, ("x", "输入/输出"), operator=known).misses


def test_an_operator_without_header_counts_as_its_document_declares_it(tmp_path: Path) -> None:
    code = f"aclnnStatus aclnnTwistGetWorkspaceSize(const aclTensor *x, {BEHIND})"
    text = page("aclnnTwist", f"```cpp\n{code}\n```\n{markdown(('x', '输出'))}")
    (tmp_path / "twist.md").write_text(text, encoding="utf-8")
    found = compare([tmp_path])
    assert (found.by_document, [miss.meaning for miss in found.misses]) == (1, [LOST])
