"""What the simulated device computes for the operators that npucall declares."""

import json

import numpy as np
import pytest

from npucall.errors import DTypeError
from npucall.operators import CATALOGUE

from .generic_kernels import FORMULAS
from .kernels import run
from .prototypes import read_prototypes


def test_a_type_that_the_soc_has_not_fails() -> None:
    tensor = {"dtype": 27, "shape": [2], "strides": [1], "offset": 0}  # BF16
    value = {**tensor, "storage_shape": [2], "format": 2}
    arguments = [
        {"name": name, "kind": "Tensor", "output": name == "out", "value": value}
        for name in ("self", "out")
    ]
    call = {"operator": "aclnnTanh", "package": "builtin", "arguments": arguments}
    place = np.zeros(2, np.uint16).ctypes.data
    launch = {"call": call, "soc": "Ascend910A", "saturates": False, "addresses": [place] * 2}
    with pytest.raises(DTypeError, match="self"):
        run(json.dumps(launch))


def test_an_operator_has_a_declaration_or_a_formula() -> None:
    assert not {operator.name for operator in CATALOGUE} & set(FORMULAS)
    assert set(FORMULAS) <= {prototype.name for prototype in read_prototypes()}
