"""Reads documents of aclnn operators: which parameters they call inputs, and which outputs.

A document is Markdown, with tables of Markdown or HTML whose header says ``输入/输出`` or
``Input/Output``, or with lists such as ``- self（aclTensor*，计算输入）``. It is Chinese or
English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser

from npucall_server.devices.cann.header_grammar import Found, parse
from npucall_server.devices.cann.header_roles import TensorRole

Row = list[str]
Stated = dict[str, TensorRole]
"""Roles by the name of a parameter."""

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"^[^\S\n]*(```|~~~)[^\n]*\n(.*?)^[^\S\n]*\1", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[^\S\n]+(.*)$", re.MULTILINE)
_OPERATOR = re.compile(r"aclnn[A-Za-z]\w*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_IS_INPUT = re.compile(r"输入|入参|\bin(?:put)?\b", re.IGNORECASE)
_IS_OUTPUT = re.compile(r"输出|出参|\bout(?:put)?\b", re.IGNORECASE)
_NAMES = re.compile(r"参数|parameter|name", re.IGNORECASE)
_LISTED = re.compile(r"[-*+]\s+[*`]*([A-Za-z_]\w*)[*`]*\s*[（(]([^（）()]*)[）)]", re.ASCII)
_BAR = re.compile(r"(?<!\\)\|")


def stated_in(text: str) -> dict[str, Stated]:
    """What a document says, by operator.

    What stands below a heading without an operator is said of those that the title names.
    """
    said: dict[str, Stated] = {}
    title: list[str] = []
    for heading, body in _sections(_CODE.sub("", _COMMENT.sub("", text))):
        named = _operators(heading)
        title = title or named
        for operator in named or title:
            known = said.setdefault(operator, {})
            for name, role in _stated(body):
                known.setdefault(name, role)
    return {operator: roles for operator, roles in said.items() if roles}


def prototypes_in(text: str, source: str) -> list[Found]:
    """The functions that its code declares, mostly without the semicolon that C wants."""
    code = [match[2] for match in _CODE.finditer(text)]
    return [found for block in code for found in parse(f"{block.rstrip().rstrip(';')};", source)]


def role_from(text: str) -> TensorRole | None:
    """The role that words such as ``输入/输出`` or ``output`` mean."""
    reads, writes = _IS_INPUT.search(text), _IS_OUTPUT.search(text)
    if writes:
        return TensorRole.IN_OUT if reads else TensorRole.OUTPUT
    return TensorRole.INPUT if reads else None


def _operators(heading: str) -> list[str]:
    names = [name.removesuffix("GetWorkspaceSize") for name in _OPERATOR.findall(heading)]
    return list(dict.fromkeys(names))


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Every heading, and what stands between it and the next."""
    pieces = _HEADING.split(text)
    yield from zip(["", *pieces[1::2]], pieces[::2], strict=True)


def _stated(body: str) -> Iterator[tuple[str, TensorRole]]:
    for table in [*_html_tables(body), *_markdown_tables(body)]:
        yield from _stated_by_table(table)
    for line in body.splitlines():
        if (found := _LISTED.match(line.strip())) and (role := role_from(found[2])):
            yield found[1], role


def _stated_by_table(table: Sequence[Row]) -> Iterator[tuple[str, TensorRole]]:
    """The names and roles of a table that has a column of each; its first row is the header."""
    header = table[0] if table else []
    names = next((i for i, cell in enumerate(header) if _NAMES.search(cell)), None)
    roles = next((i for i, cell in enumerate(header) if role_from(cell) is TensorRole.IN_OUT), None)
    if names is None or roles is None:
        return
    for row in table[1:]:
        role = role_from(row[roles]) if len(row) > max(names, roles) else None
        own = re.split(r"[（(]", row[names])[0] if role and row else ""
        for name in _NAME.findall(own):
            if role:
                yield name, role


def _markdown_tables(body: str) -> Iterator[list[Row]]:
    table: list[Row] = []
    for line in [*body.splitlines(), ""]:
        if line.strip().startswith("|"):
            table.append([cell.strip() for cell in _BAR.split(line.strip().strip("|"))])
        elif table:
            yield table
            table = []


def _html_tables(body: str) -> list[list[Row]]:
    parser = _Tables()
    parser.feed(body)
    parser.close()
    return parser.tables


class _Tables(HTMLParser):
    """The cells of all tables; a cell that spans rows stands in each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[Row]] = []
        self._cell: list[str] | None = None
        self._rows = 1
        self._spanning: dict[int, tuple[int, str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._end_cell(tag)
        if tag == "table":
            self.tables.append([])
            self._spanning = {}
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
            self._span()
        elif tag in {"td", "th"}:
            self._cell, self._rows = [], int(dict(attrs).get("rowspan") or 1)

    def handle_endtag(self, tag: str) -> None:
        self._end_cell(tag)

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def _end_cell(self, tag: str) -> None:
        if self._cell is None or tag not in {"td", "th", "tr", "table", "tbody", "thead"}:
            return
        text, self._cell = " ".join("".join(self._cell).split()), None
        if self.tables and self.tables[-1]:
            row = self.tables[-1][-1]
            if self._rows > 1:
                self._spanning[len(row)] = (self._rows - 1, text)
            row.append(text)
            self._span()

    def _span(self) -> None:
        """Adds the cells of rows above that reach into this one, up to the next of its own."""
        row = self.tables[-1][-1]
        while (found := self._spanning.pop(len(row), None)) is not None:
            left, text = found
            if left > 1:
                self._spanning[len(row)] = (left - 1, text)
            row.append(text)
