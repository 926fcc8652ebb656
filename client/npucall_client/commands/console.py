"""What all commands share: how they take their target, and tables that never cut a text.

At a terminal a table is as wide as the terminal. In a pipe or a log it has 160 columns, or as many
as the environment variable COLUMNS says, no colours and no blanks at the ends of lines.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from npucall.operators import CATALOGUE

_LOG = (160, 24)
"""Columns and lines if there is no terminal."""
_GAP = 2
"""Blanks between columns."""
_LEAST = 24
"""A column of prose is not made narrower than this."""
_KINDS = "HOST:PORT, unix:PATH, local:, or pool: and its members"
_DEFAULT = "Default: NPUCALL_TARGET, or 127.0.0.1:50051."


def operator_names() -> list[str]:
    """The names that a shell completes."""
    return sorted({operator.name.removeprefix("aclnn") for operator in CATALOGUE})


Target = Annotated[
    str | None,
    typer.Argument(metavar="TARGET", help="The target; --target TARGET means the same."),
]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", "-t", metavar="TARGET", help=f"{_KINDS}. {_DEFAULT}"),
]
TargetOrLocal = Annotated[
    str | None,
    typer.Option(
        "--target", "-t", metavar="TARGET", help=f"{_KINDS}. Default: NPUCALL_TARGET, or local:."
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="TARGET", help="The targets; --target TARGET means the same."),
]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", metavar="TARGET", help=f"{_KINDS}. Give it again for more. {_DEFAULT}"
    ),
]
OperatorName = Annotated[
    str,
    typer.Argument(
        metavar="OPERATOR",
        help="Its name: aclnnKlDiv or KlDiv.",
        autocompletion=operator_names,
    ),
]
Variant = Annotated[str, typer.Option(metavar="VARIANT", help="Which variant of the operator.")]
Soc = Annotated[
    str,
    typer.Option(
        metavar="SOC",
        help="With local:, the SoC whose rules hold. With a pool, the SoC of the members to call.",
    ),
]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    number: bool = False
    """Aligned to the right."""
    prose: bool = False
    """May be broken into lines; other columns are as wide as their widest cell."""


def the_target(argument: str | None, option: str | None) -> str | None:
    """The target of a command, which takes it as an argument or as an option.

    Raises ValueError if it is given twice.
    """
    if argument is not None and option is not None:
        raise ValueError(f"target: give it once; found {argument} and --target {option}")
    return option if argument is None else argument


def output() -> Console:
    """Standard output."""
    if sys.stdout.isatty():
        return Console()
    return Console(width=shutil.get_terminal_size(_LOG).columns)


def show(console: Console, *shown: RenderableType) -> None:
    """Prints things below each other; if there is no terminal, without blanks at line ends."""
    if console.is_terminal:
        console.print(*shown, sep="\n")
        return
    with console.capture() as captured:
        console.print(*shown, sep="\n")
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Text]],
    width: int,
    title: str = "",
) -> RenderableType:
    """A table of at most that width, in which no text is cut.

    If it is too wide, the cells of the first column get lines of their own. If it is still too
    wide, each row becomes lines of HEADING VALUE. Texts are read as rich's markup.
    """
    cells = [[_text(cell) for cell in _filled(row, len(columns))] for row in rows]
    parts: list[RenderableType] = [Text(title, "bold")] if title else []
    if (widths := _fitting(columns, cells, width)) is not None:
        parts.append(_grid(columns, cells, widths, header=True))
    elif (widths := _fitting(columns[1:], _rests(cells), width - _GAP)) is not None:
        parts += _grouped(columns, cells, widths)
    else:
        parts += _records(columns, cells, width)
    return Group(*parts)


def facts(rows: dict[str, str], width: int) -> RenderableType:
    """Names and values, a line for each that has a value; values are plain text."""
    given = [[Text(name), Text(value)] for name, value in rows.items() if value]
    first = max((name.cell_len for name, _ in given), default=0)
    columns = [Column(""), Column("", prose=True)]
    return _grid(columns, given, [first, max(width - first - _GAP, 1)], header=False)


def _text(cell: str | Text) -> Text:
    return Text.from_markup(cell) if isinstance(cell, str) else cell


def _filled(row: Sequence[str | Text], count: int) -> Sequence[str | Text]:
    return [*row, *[""] * (count - len(row))]


def _rests(cells: list[list[Text]]) -> list[list[Text]]:
    return [row[1:] for row in cells]


def _fitting(columns: Sequence[Column], cells: list[list[Text]], width: int) -> list[int] | None:
    """The widths of the columns; None if the table cannot be made that narrow."""
    widths = [
        max(len(column.heading), *(_width(row[index]) for row in cells), 0)
        for index, column in enumerate(columns)
    ]
    prose = [index for index, column in enumerate(columns) if column.prose]
    room = width - _GAP * (len(columns) - 1)
    while sum(widths) > room:
        widest = max(prose, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _LEAST:
            return None
        widths[widest] -= 1
    return widths


def _width(cell: Text) -> int:
    return max((line.cell_len for line in cell.split()), default=0)


def _grid(
    columns: Sequence[Column], cells: list[list[Text]], widths: list[int], *, header: bool
) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=header)
    for column, width in zip(columns, widths, strict=True):
        grid.add_column(
            column.heading, width=width, justify="right" if column.number else "left",
            no_wrap=not column.prose, overflow="fold", header_style="bold",
        )  # fmt: skip
    for row in cells:
        grid.add_row(*row)
    return grid


def _grouped(
    columns: Sequence[Column], cells: list[list[Text]], widths: list[int]
) -> Iterator[RenderableType]:
    """The first column as headings, and below each the other columns."""
    yield Text(columns[0].heading, "bold")
    yield Padding(_grid(columns[1:], [], widths, header=True), (0, 0, 0, _GAP), expand=False)
    named = ""
    for row in cells:  # an empty cell stands for the one above it
        if row[0].plain and row[0].plain != named:
            named = row[0].plain
            yield row[0]
        yield Padding(_grid(columns[1:], [row[1:]], widths, header=False), (0, 0, 0, _GAP))


def _records(
    columns: Sequence[Column], cells: list[list[Text]], width: int
) -> Iterator[RenderableType]:
    """A line for each cell."""
    first = max(len(column.heading) for column in columns)
    room = [first, max(width - first - _GAP, 1)]
    both = [Column(""), Column("", prose=True)]
    for index, row in enumerate(cells):
        named = zip(columns, row, strict=True)
        lines = [[Text(column.heading, "dim"), cell] for column, cell in named if cell.plain]
        yield Padding(_grid(both, lines, room, header=False), (int(index > 0), 0, 0, 0))
