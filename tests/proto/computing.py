"""Calls as a device computes them: with their storages, and turns that are counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from npucall.declare.call import Call
from npucall.declare.declaration import Operator
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import FLOAT, DType
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec


def call_of(
    operator: Operator[..., Any],
    *given: TensorSpec | tuple[int, ...],
    dtype: DType = FLOAT,
    **more: Any,
) -> Prepared:
    """A call with its first inputs, of which a shape is one of ``dtype``.

    An output in ``more`` comes with its storage.
    """
    specs = [one if isinstance(one, TensorSpec) else TensorSpec(dtype, one) for one in given]
    names = [parameter.name for parameter in operator.inputs][: len(specs)]
    stored = (*names, *(name for name, value in more.items() if isinstance(value, TensorSpec)))
    arguments = {**dict(zip(names, specs, strict=True)), **more}
    return prepare(Call(operator, arguments, stored), A2, CATALOGUE)


def storages_of(call: Prepared, seed: int = 0) -> dict[str, bytes]:
    """Numbers from -4 to 4, also in the gaps of what is sent."""
    random = np.random.default_rng(seed)
    return {
        name: random.uniform(-4, 4, spec.storage_elements).astype(spec.dtype.numpy).tobytes()
        for name, spec in {**call.inputs, **call.outputs}.items()
        if name in call.stored
    }


class Counted:
    """Gives as many turns as anybody wants, and counts them."""

    def __init__(self) -> None:
        self.taken = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.taken += 1
        yield

    def spare(self) -> Any:
        return self()

    def pause(self) -> None:
        pass
