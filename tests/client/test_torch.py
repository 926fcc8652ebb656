"""Tensors of torch as inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import npucall_client
from npucall.errors import DTypeError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client import arrays

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

if TYPE_CHECKING:
    from npucall_client import Client

VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def run(client: Client, tensor: Any) -> Any:
    ones = torch.ones_like(tensor)
    return client.run(kl_div_backward, ones, self=ones, target=tensor, reduction=0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bfloat16", ml_dtypes.bfloat16),
        ("float16", np.float16),
        ("float32", np.float32),
        ("float64", np.float64),
        ("int8", np.int8),
        ("int64", np.int64),
        ("uint8", np.uint8),
        ("bool", np.bool_),
        ("complex64", np.complex64),
        ("float8_e5m2", ml_dtypes.float8_e5m2),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu),
    ],
)
def test_a_tensor_is_read_in_its_own_type_and_memory(name: str, expected: Any) -> None:
    tensor = torch.tensor([1.0, 2.0]).to(getattr(torch, name))
    array = arrays.as_array("x", tensor)
    assert array.dtype == expected
    assert array.ctypes.data == tensor.data_ptr()
    np.testing.assert_array_equal(array, np.array([1.0, 2.0]).astype(expected))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_operator_takes_tensors(client: Client, dtype: str) -> None:
    result = run(client, torch.tensor(VALUES, dtype=getattr(torch, dtype)))
    assert result.dtype is getattr(torch, dtype)
    np.testing.assert_array_equal(result.float(), -np.array(VALUES, np.float32))


def test_a_tensor_with_a_gradient_is_taken(client: Client) -> None:
    result = run(client, torch.tensor(VALUES, requires_grad=True))
    np.testing.assert_array_equal(result, -np.array(VALUES, np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tensor_that_is_not_contiguous_is_taken(client: Client, dtype: str) -> None:
    result = run(client, torch.tensor(VALUES, dtype=getattr(torch, dtype)).t()[::2])
    np.testing.assert_array_equal(result.float(), [[-1, -4], [-3, -6]])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tensor_of_rank_0_is_taken(client: Client, dtype: str) -> None:
    assert run(client, torch.tensor(3.0, dtype=getattr(torch, dtype))) == -3


def test_a_tensor_that_torch_negates_lazily_is_taken_negated(client: Client) -> None:
    lazy = torch.tensor([1 + 2j]).conj().imag
    assert lazy.is_neg()
    np.testing.assert_array_equal(run(client, lazy), [2.0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_output_may_be_a_tensor_of_any_layout(client: Client, dtype: str) -> None:
    base = torch.full((3, 4), 99.0, dtype=getattr(torch, dtype), requires_grad=False)
    out = base[:, :2].t()
    ones = torch.ones(2, 3, dtype=out.dtype)
    target = torch.tensor(VALUES, dtype=out.dtype)
    options = client.options(outputs={"out": out})
    options.run(kl_div_backward, ones, self=ones, target=target, reduction=0)
    assert base.float().tolist() == [[-1, -4, 99, 99], [-2, -5, 99, 99], [-3, -6, 99, 99]]


def test_an_output_may_be_a_tensor_of_rank_0(client: Client) -> None:
    out, one = torch.tensor(0.0, dtype=torch.bfloat16), torch.tensor(1.0, dtype=torch.bfloat16)
    client.options(outputs={"out": out}).run(kl_div_backward, one, self=one, target=one)
    assert out.item() == -1


def test_an_output_that_torch_negates_lazily_is_refused(client: Client) -> None:
    lazy, one = torch.tensor([1 + 2j]).conj().imag, torch.ones(1)
    with pytest.raises(TypeError, match=r"out: expected a NumPy array .* or a torch tensor"):
        client.options(outputs={"out": lazy}).run(kl_div_backward, one, self=one, target=one)


@pytest.mark.parametrize("role", ["input", "output"])
def test_a_tensor_on_another_device_is_refused(client: Client, role: str) -> None:
    one, elsewhere = torch.ones(1), torch.ones(1, device="meta")
    options = client.options(outputs={"out": elsewhere} if role == "output" else {})
    target = elsewhere if role == "input" else one
    with pytest.raises(TypeError, match="expected a tensor in CPU memory, found one on meta"):
        options.run(kl_div_backward, one, self=one, target=target)


def test_a_sparse_tensor_is_refused(client: Client) -> None:
    dense, sparse = torch.ones(2, 2), torch.ones(2, 2).to_sparse()
    with pytest.raises(TypeError):
        client.run(kl_div_backward, dense, self=dense, target=sparse)


# --- Tensors come back where tensors came in ------------------------------------------------------

DTYPES = ["float32", "float16", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ["run", "execute", "pipeline"])
def test_results_are_tensors_where_inputs_were_tensors(
    client: Client, method: str, dtype: str
) -> None:
    tensor = torch.tensor(VALUES, dtype=getattr(torch, dtype))
    ones = torch.ones_like(tensor)
    given: dict[str, Any] = {"self": ones, "target": tensor, "reduction": 0}
    if method == "pipeline":
        with client.pipeline() as pipeline:
            found = pipeline.submit(kl_div_backward, ones, **given).result()
    elif method == "execute":
        result = client.execute(kl_div_backward, ones, **given)
        found = result.value
        assert all(isinstance(each, torch.Tensor) for each in result.outputs.values())
    else:
        found = client.run(kl_div_backward, ones, **given)
    assert isinstance(found, torch.Tensor)
    assert found.dtype is tensor.dtype
    assert found.float().tolist() == (-np.array(VALUES)).tolist()
    found += 1  # memory of its own, which can be written


def test_one_tensor_among_arrays_is_enough_and_arrays_alone_stay_arrays(client: Client) -> None:
    ones = np.ones((2, 3), np.float32)
    call: dict[str, Any] = {"self": ones, "reduction": 0}
    assert isinstance(client.run(kl_div_backward, ones, target=ones, **call), np.ndarray)
    mixed = client.run(kl_div_backward, ones, target=torch.ones(2, 3), **call)
    assert isinstance(mixed, torch.Tensor)


def test_a_tensor_that_was_given_for_an_output_is_what_comes_back(client: Client) -> None:
    ones, out = np.ones((2, 3), np.float32), torch.empty(2, 3)
    options = client.options(outputs={"out": out})
    assert options.run(kl_div_backward, ones, self=ones, target=ones) is out
    own = np.empty((2, 3), np.float32)
    options = client.options(outputs={"out": own})
    assert options.run(kl_div_backward, torch.ones(2, 3), self=ones, target=ones) is own


def test_a_session_fetches_tensors_where_tensors_came_in(client: Client) -> None:
    with client.session() as session:
        tensor = torch.ones(2, 3, dtype=torch.bfloat16)
        result = session.run(kl_div_backward, tensor, self=tensor, target=tensor)
        fetched = result.fetch()
    assert isinstance(fetched, torch.Tensor)
    assert fetched.dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", DTYPES)
def test_plan_takes_tensors_without_data(client: Client, dtype: str) -> None:
    meta = torch.ones(2**11, 2**10, dtype=getattr(torch, dtype), device="meta")
    (spec,) = client.plan(kl_div_backward, meta, self=meta, target=meta).outputs.values()
    assert (spec.shape, str(spec.dtype.numpy)) == ((2**11, 2**10), dtype)


def test_plan_takes_a_shape_and_a_dtype_alone(client: Client) -> None:
    empty = npucall_client.Empty((2, 3), "float16")
    (spec,) = client.plan(kl_div_backward, empty, self=empty, target=empty).outputs.values()
    assert (spec.shape, str(spec.dtype.numpy)) == ((2, 3), "float16")


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_meta_tensor_of_a_dtype_that_no_operator_takes_is_refused_by_its_name(
    client: Client,
) -> None:
    meta = torch.empty(2, dtype=torch.complex32, device="meta")
    with pytest.raises(DTypeError, match=r"self: no operator takes torch\.complex32"):
        client.plan(kl_div_backward, torch.ones(2), self=meta, target=torch.ones(2))
