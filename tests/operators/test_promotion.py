"""Promotion [src:promotion], typed a second time from its source."""

from itertools import product

from tests.rows import each

from npucall import dtypes
from npucall.dtypes import DTYPES, promote

NAMES = {
    "f32": "FLOAT",
    "f16": "FLOAT16",
    "f64": "DOUBLE",
    "bf16": "BF16",
    "s8": "INT8",
    "u8": "UINT8",
    "s16": "INT16",
    "s32": "INT32",
    "s64": "INT64",
    "bool": "BOOL",
    "c64": "COMPLEX64",
    "c128": "COMPLEX128",
}
TABLE = """
|      | f32 | f16 | f64 | bf16 | s8   | u8   | s16  | s32  | s64  | bool |
| f32  | f32 | f32 | f64 | f32  | f32  | f32  | f32  | f32  | f32  | f32  |
| f16  | f32 | f16 | f64 | f32  | f16  | f16  | f16  | f16  | f16  | f16  |
| f64  | f64 | f64 | f64 | f64  | f64  | f64  | f64  | f64  | f64  | f64  |
| bf16 | f32 | f32 | f64 | bf16 | bf16 | bf16 | bf16 | bf16 | bf16 | bf16 |
| s8   | f32 | f16 | f64 | bf16 | s8   | s16  | s16  | s32  | s64  | s8   |
| u8   | f32 | f16 | f64 | bf16 | s16  | u8   | s16  | s32  | s64  | u8   |
| s16  | f32 | f16 | f64 | bf16 | s16  | s16  | s16  | s32  | s64  | s16  |
| s32  | f32 | f16 | f64 | bf16 | s32  | s32  | s32  | s32  | s64  | s32  |
| s64  | f32 | f16 | f64 | bf16 | s64  | s64  | s64  | s64  | s64  | s64  |
| bool | f32 | f16 | f64 | bf16 | s8   | u8   | s16  | s32  | s64  | bool |
"""
ROWS = [[cell.strip() for cell in row.split("|")[1:-1]] for row in TABLE.split("\n")[1:-1]]
CELLS = [
    (row[0], column, result)
    for row in ROWS[1:]
    for column, result in zip(ROWS[0][1:], row[1:], strict=True)
]
COMPLEX = [
    *((other, "c64", "c64") for other in ("f32", "f16", "s8", "u8", "s16", "s32", "s64", "bool")),
    ("f64", "c64", "c128"),
    ("c64", "c64", "c64"),
    ("c64", "c128", "c128"),
    *((other, "c128", "c128") for other in ("f32", "f16", "f64", "bf16", "s8", "s64", "bool")),
]


def dtype(short: str) -> dtypes.DType:
    found: dtypes.DType = getattr(dtypes, NAMES[short])
    return found


def test_the_table_has_a_cell_for_every_pair() -> None:
    assert len(CELLS) == 100
    assert {row for row, _, _ in CELLS} == {column for _, column, _ in CELLS}


@each("first second result", CELLS)
def test_two_types_promote_as_the_table_says(first: str, second: str, result: str) -> None:
    assert promote(dtype(first), dtype(second)) is dtype(result)


@each("first second result", COMPLEX)
def test_complex_types_promote_as_the_document_says(first: str, second: str, result: str) -> None:
    assert promote(dtype(first), dtype(second)) is dtype(result)
    assert promote(dtype(second), dtype(first)) is dtype(result)


@each("each", DTYPES)
def test_every_type_promotes_with_itself(each: dtypes.DType) -> None:
    assert promote(each, each) is each


def test_promotion_does_not_depend_on_the_order() -> None:
    for first, second in product(DTYPES, repeat=2):
        assert promote(first, second) is promote(second, first)
