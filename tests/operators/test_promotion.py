"""Promotion [src:promotion] and casts [src:can-cast], typed a second time from their sources."""

from __future__ import annotations

from itertools import product

from tests.rows import each

from npucall import dtypes
from npucall.dtypes import DTYPES, can_cast, promote

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
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
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
UNSIGNED = ("u16", "u32", "u64")
COMPLEX = [
    *((other, "c64", "c64") for other in ("f32", "f16", "s8", "u8", "s16", "s32", "s64", "bool")),
    ("f64", "c64", "c128"),
    ("c64", "c64", "c64"),
    ("c64", "c128", "c128"),
    *((other, "c128", "c128") for other in ("f32", "f16", "f64", "bf16", "s8", "s64", "bool")),
]
FLOATING = {"FLOAT", "FLOAT16", "DOUBLE", "BF16"}
COMPLEXES = {"COMPLEX64", "COMPLEX128"}
INTEGERS = {"INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"}


def dtype(short: str) -> dtypes.DType:
    found: dtypes.DType = getattr(dtypes, NAMES[short])
    return found


def test_the_table_has_a_cell_for_every_pair() -> None:
    assert len(CELLS) == 100
    assert {row for row, _, _ in CELLS} == {column for _, column, _ in CELLS}


@each("first second result", CELLS)
def test_two_types_promote_as_the_table_says(first: str, second: str, result: str) -> None:
    assert promote(dtype(first), dtype(second)) is dtype(result)


@each("unsigned", UNSIGNED)
def test_wide_unsigned_integers_promote_only_with_themselves(unsigned: str) -> None:
    others = [name for name in (*ROWS[0][1:], *UNSIGNED) if name != unsigned]
    assert promote(dtype(unsigned), dtype(unsigned)) is dtype(unsigned)
    assert [promote(dtype(unsigned), dtype(other)) for other in others] == [None] * 12
    assert [promote(dtype(other), dtype(unsigned)) for other in others] == [None] * 12


@each("first second result", COMPLEX)
def test_complex_types_promote_as_the_document_says(first: str, second: str, result: str) -> None:
    assert promote(dtype(first), dtype(second)) is dtype(result)
    assert promote(dtype(second), dtype(first)) is dtype(result)


@each("each", DTYPES)
def test_every_type_promotes_with_itself(each: dtypes.DType) -> None:
    assert promote(each, each) is each


@each("source", sorted(FLOATING | COMPLEXES | INTEGERS | {"BOOL"}))
def test_a_type_can_be_cast_as_the_document_says(source: str) -> None:
    forbidden = set()
    if source in COMPLEXES:
        forbidden |= FLOATING | INTEGERS | {"BOOL"}
    if source in FLOATING:
        forbidden |= INTEGERS
    if source != "BOOL":
        forbidden |= {"BOOL"}
    every = FLOATING | COMPLEXES | INTEGERS | {"BOOL"}
    refused = {t for t in every if not can_cast(getattr(dtypes, source), getattr(dtypes, t))}
    assert refused == forbidden


def test_acl_codes_are_those_of_the_documents() -> None:
    codes = {
        "FLOAT": 0, "FLOAT16": 1, "INT8": 2, "INT32": 3, "UINT8": 4, "INT16": 6, "UINT16": 7,
        "UINT32": 8, "INT64": 9, "UINT64": 10, "DOUBLE": 11, "BOOL": 12, "COMPLEX64": 16,
        "COMPLEX128": 17, "BF16": 27,
    }  # fmt: skip
    assert {name: getattr(dtypes, name).acl for name in codes} == codes


def test_promotion_does_not_depend_on_the_order() -> None:
    for first, second in product(DTYPES, repeat=2):
        assert promote(first, second) is promote(second, first)
