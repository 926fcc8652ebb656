"""What the simulated device computes for the operators that npucall declares."""

import json

import pytest
from tests.rows import each

from npucall.errors import DTypeError
from npucall.operators import CATALOGUE

from .generic_kernels import FORMULAS
from .kernels import run
from .prototypes import read_prototypes


@each(
    ("operator", "dtype", "error", "says"),
    [
        ("aclnnExp2", 0, ValueError, "expected 8 bytes of storage, found 4"),
        ("aclnnTanh", 27, DTypeError, "self"),  # BF16, by the rules of the SoC
    ],
)
def test_a_short_storage_and_a_type_that_the_soc_has_not_fail(
    operator: str, dtype: int, error: type[Exception], says: str
) -> None:
    tensor = {"address": 0, "bytes": 4, "dtype": dtype, "shape": [2], "strides": [1], "offset": 0}
    value = {**tensor, "storage_shape": [2], "format": 2}
    arguments = [
        {"name": name, "kind": "Tensor", "output": name == "out", "value": value}
        for name in ("self", "out")
    ]
    launched = {"operator": operator, "package": "builtin", "soc": "Ascend910A"}
    with pytest.raises(error, match=says):
        run(json.dumps({**launched, "arguments": arguments}))


def test_an_operator_has_a_declaration_or_a_formula() -> None:
    assert not {operator.name for operator in CATALOGUE} & set(FORMULAS)
    assert set(FORMULAS) <= {prototype.name for prototype in read_prototypes()}
