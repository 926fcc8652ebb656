"""Tensors of torch in, tensors of torch out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from npucall.operators.l1_loss_backward import l1_loss_backward

if TYPE_CHECKING:
    from npucall_client import Session

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

DTYPES = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "bool", "float8_e5m2"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_was_put_comes_back_as_a_tensor(session: Session, dtype: str) -> None:
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    back = session.put(tensor).fetch()
    assert isinstance(back, torch.Tensor)
    assert back.dtype == tensor.dtype
    assert back.view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()


def test_results_of_tensors_are_tensors_and_of_arrays_arrays(session: Session) -> None:
    tensor = torch.linspace(-1, 1, 6)
    array = tensor.numpy()
    one = np.ones((), np.float32)
    from_tensor = session.run(l1_loss_backward, one, tensor, array)
    from_array = session.run(l1_loss_backward, one, array, array)
    with session.program() as program:
        behind = program.run(l1_loss_backward, one, from_tensor, array)
        beside = program.run(l1_loss_backward, one, from_array, array)
    assert isinstance(from_tensor.fetch(), torch.Tensor)
    assert isinstance(behind.fetch(), torch.Tensor)
    assert isinstance(from_array.fetch(), np.ndarray)
    assert isinstance(beside.fetch(), np.ndarray)
    assert isinstance(beside.torch(), torch.Tensor)
    assert isinstance(behind.numpy(), np.ndarray)
