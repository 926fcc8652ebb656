"""The vocabulary of checks. An operator lists them in the order in which the device applies them.

A rule raises an error, lets the call pass, or ends the checks: then the call is done, and its
outputs are zeros. One module for each thing that rules look at.
"""

from npucall.declare.rules.attributes import (
    dim_of,
    not_negative,
    one_of,
    positive,
    value_fits,
    warn_unless,
)
from npucall.declare.rules.conditions import except_on, not_empty, not_given, on, when
from npucall.declare.rules.dtypes import (
    bfloat16_if_product_has,
    castable,
    dtype_from,
    dtype_in,
    dtype_row,
    float_of,
    promoted,
    real,
    same_dtype,
    supported,
)
from npucall.declare.rules.formats import (
    format_in,
    format_of_rank,
    public_format,
    same_format,
)
from npucall.declare.rules.kernel_dtypes import always, dtype_of, float16_if_all, short_if_all
from npucall.declare.rules.presence import (
    fill_if_empty,
    present,
    succeed_if_all_empty,
    succeed_if_empty,
)
from npucall.declare.rules.rule import EndOfChecks, Rule, requires, with_status
from npucall.declare.rules.shapes import (
    broadcast,
    expandable,
    one_element,
    one_for_each,
    rank_at_most,
    rank_is,
    same_extent,
    same_rank,
    same_shape,
    shape_of,
)

__all__ = [
    "EndOfChecks",
    "Rule",
    "always",
    "bfloat16_if_product_has",
    "broadcast",
    "castable",
    "dim_of",
    "dtype_from",
    "dtype_in",
    "dtype_of",
    "dtype_row",
    "except_on",
    "expandable",
    "fill_if_empty",
    "float16_if_all",
    "float_of",
    "format_in",
    "format_of_rank",
    "not_empty",
    "not_given",
    "not_negative",
    "on",
    "one_element",
    "one_for_each",
    "one_of",
    "positive",
    "present",
    "promoted",
    "public_format",
    "rank_at_most",
    "rank_is",
    "real",
    "requires",
    "same_dtype",
    "same_extent",
    "same_format",
    "same_rank",
    "same_shape",
    "shape_of",
    "short_if_all",
    "succeed_if_all_empty",
    "succeed_if_empty",
    "supported",
    "value_fits",
    "warn_unless",
    "when",
    "with_status",
]
