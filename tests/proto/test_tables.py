"""npucall.dtypes and products: the tables of CANN; tests/operators has that of promotion."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.rows import each

from npucall import dtypes
from npucall.dtypes import BY_NUMPY, BY_WIRE, DTYPES, DType, can_cast, promote
from npucall.errors import ArgumentError
from npucall.products import DEFAULT_SOC, PRODUCTS, product_of, taken_for
from npucall.v1.tensor_pb2 import DataType

# aclDataType as the header lists it [src:data-types], without STRING, COMPLEX32, HIFLOAT8 (NumPy
# has none of them) and the packed types: code, bytes, NumPy type.
ACL: dict[str, tuple[int, int, Any]] = {
    "FLOAT": (0, 4, np.float32),
    "FLOAT16": (1, 2, np.float16),
    "INT8": (2, 1, np.int8),
    "INT32": (3, 4, np.int32),
    "UINT8": (4, 1, np.uint8),
    "INT16": (6, 2, np.int16),
    "UINT16": (7, 2, np.uint16),
    "UINT32": (8, 4, np.uint32),
    "INT64": (9, 8, np.int64),
    "UINT64": (10, 8, np.uint64),
    "DOUBLE": (11, 8, np.float64),
    "BOOL": (12, 1, np.bool_),
    "COMPLEX64": (16, 8, np.complex64),
    "COMPLEX128": (17, 16, np.complex128),
    "BF16": (27, 2, ml_dtypes.bfloat16),
    "FLOAT8_E5M2": (35, 1, ml_dtypes.float8_e5m2),
    "FLOAT8_E4M3FN": (36, 1, ml_dtypes.float8_e4m3fn),
    "FLOAT8_E8M0": (37, 1, ml_dtypes.float8_e8m0fnu),
}


# Short name, bits of the fraction, least exponent of a normal number, largest number: IEEE 754 and
# the formats of 8 bits; FLOAT8_E4M3FN has its NaN where the next number would be.
FLOATS: dict[str, tuple[str, int, int, float]] = {
    "FLOAT": ("f32", 23, -126, (2 - 2.0**-23) * 2.0**127),
    "FLOAT16": ("f16", 10, -14, 65504.0),
    "DOUBLE": ("f64", 52, -1022, (2 - 2.0**-52) * 2.0**1023),
    "BF16": ("bf16", 7, -126, (2 - 2.0**-7) * 2.0**127),
    "FLOAT8_E5M2": ("x8", 2, -14, 57344.0),
    "FLOAT8_E4M3FN": ("x8", 3, -6, 448.0),
    "FLOAT8_E8M0": ("x8", 0, -127, 2.0**127),
}


def named(name: str) -> DType:
    dtype: DType = getattr(dtypes, name)
    return dtype


def test_the_table_is_that_of_acl_and_the_proto_has_codes_that_are_one_more() -> None:
    assert {d.name: (d.acl, d.itemsize) for d in DTYPES} == {n: row[:2] for n, row in ACL.items()}
    assert all(BY_NUMPY[np.dtype(row[2])] is named(name) for name, row in ACL.items())
    listed = {name: value for name, value in DataType.items() if value}
    assert listed == {f"DATA_TYPE_{name}": row[0] + 1 for name, row in ACL.items()}
    assert listed == {f"DATA_TYPE_{dtype.name}": value for value, dtype in BY_WIRE.items()}
    assert all(BY_WIRE[dtype.wire] is dtype for dtype in DTYPES)


def test_what_a_float_holds_follows_from_its_row() -> None:
    found = {d.name: (d.short, d.fraction, d.least_exponent, d.largest) for d in map(named, FLOATS)}
    assert found == FLOATS
    others = [dtype for dtype in DTYPES if dtype.name not in FLOATS]
    assert {(dtype.fraction, dtype.largest) for dtype in others} == {(0, float("inf"))}
    shorts = "s8 s32 u8 s16 u16 u32 s64 u64 b8 c64 c128"
    assert " ".join(dtype.short for dtype in others) == shorts
    assert [dtype.name for dtype in DTYPES if dtype.is_short] == ["FLOAT16", "BF16"]


@each("name", ["UINT16", "UINT32", "UINT64", "FLOAT8_E5M2", "FLOAT8_E8M0"])
def test_a_type_outside_the_table_promotes_with_itself_alone(name: str) -> None:
    others = [dtype for dtype in DTYPES if dtype is not named(name)]
    assert promote(named(name), named(name)) is named(name)
    assert {promote(named(name), other) for other in others} == {None}


def test_casting_is_refused_from_complex_to_real_from_float_to_int_and_to_bool_alone() -> None:
    complexes = {"COMPLEX64", "COMPLEX128"}
    integers = {name for name in ACL if "INT" in name}
    floats = {name for name in ACL if name.startswith(("FLOAT", "BF16", "DOUBLE"))}
    refused = {
        (source, target)
        for source, target in itertools.product(ACL, ACL)
        if (source in complexes and target not in complexes)
        or (source in floats and target in integers)
        or (target == "BOOL" and source != "BOOL")
    }
    pairs = itertools.product(DTYPES, DTYPES)
    assert {(s.name, t.name) for s, t in pairs if not can_cast(s, t)} == refused


# Short SoC name: the strings that CANN's runtime gives, "..." of the table left out.
SOCS = {
    "Ascend910B": "Ascend910B1 Ascend910B2 Ascend910B2C Ascend910B3 Ascend910B4 Ascend910B4-1",
    "Ascend910_93": "Ascend910_93 Ascend910_9391 Ascend910_9392 Ascend910_9381 Ascend910_9382 "
    "Ascend910_9372 Ascend910_9362 Ascend910_9363",
    "Ascend950": "Ascend950 Ascend910_95 Ascend950PR_9589 Ascend950PR_9579 Ascend950PR_9599 "
    "Ascend950PR_957b Ascend950DT_9591 Ascend950DT_9581 Ascend950DT_9571 Ascend950DT_95A1",
    "Ascend910": "Ascend910 Ascend910A Ascend910B Ascend910ProA Ascend910ProB Ascend910PremiumA",
    "Ascend310P": "Ascend310P Ascend310P1 Ascend310P3 Ascend310P5 Ascend310P7",
    "Ascend310B": "Ascend310B Ascend310B1 Ascend310B2 Ascend310B3 Ascend310B4",
    "Ascend310": "Ascend310",
}
PAIRS = [(soc, product) for product, socs in SOCS.items() for soc in socs.split()]


@each(("soc", "product"), PAIRS)
def test_a_soc_string_belongs_to_its_product(soc: str, product: str) -> None:
    assert product_of(soc).soc == product
    assert taken_for(soc) == (product_of(soc), "")  # no guess


def test_the_products_are_those_of_the_table() -> None:
    assert sorted(product.soc for product in PRODUCTS) == sorted(SOCS)


def test_the_default_is_an_a2() -> None:
    assert product_of(DEFAULT_SOC).soc == "Ascend910B"


@each(
    "soc",
    ["", "ascend910B1", "910B1", "Ascend910B1\n", " Ascend910B1", "Ascend910B9", "Ascend910_9",
     "Ascend910B1x", "Ascend310P2", "Ascend610Lite"],
)  # fmt: skip
def test_an_unknown_string_is_refused_with_the_families_there_are(soc: str) -> None:
    with pytest.raises(ArgumentError, match="Ascend910_93") as caught:
        product_of(soc)
    assert caught.value.parameter == "soc"
    assert repr(soc) in str(caught.value)


@each(
    ("soc", "product"),
    [
        ("Ascend910B5", "Ascend910B"),
        ("Ascend910B4-2", "Ascend910B"),
        ("Ascend910_9361", "Ascend910_93"),
        ("Ascend910_5591", "Ascend950"),
        ("Ascend910_9691", "Ascend950"),
        ("Ascend350", "Ascend950"),
        ("Ascend950XX_1", "Ascend950"),
        ("Ascend910ProC", "Ascend910"),
        ("Ascend310P2", "Ascend310P"),
        ("Ascend310P4", "Ascend310P"),
        ("Ascend310B5", "Ascend310B"),
    ],
)
def test_a_name_of_a_host_that_is_unknown_is_taken_for_the_nearest_product(
    soc: str, product: str
) -> None:
    with pytest.raises(ArgumentError):
        product_of(soc)
    taken = taken_for(soc)
    assert taken.product.soc == product
    assert taken.guess.startswith(f"soc: npucall does not know {soc}, and guesses")
    assert f"guesses from its family that it is like {taken.product}" in taken.guess
    assert "npucall conform" in taken.guess


@each("soc", ["", "ascend910B5", "910B5", "Ascend910B5\n", "Ascend610Lite", "Ascend777X"])
def test_a_name_that_is_near_to_none_is_refused_as_before(soc: str) -> None:
    with pytest.raises(ArgumentError, match="Ascend910_93"):
        taken_for(soc)
