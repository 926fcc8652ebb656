"""Tensors of torch as inputs and outputs."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.client.conftest import EVERY_CLIENT
from tests.rows import each

import npucall_client
from npucall.errors import DTypeError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client
from npucall_client.calls import arrays

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def run(client: Client, tensor: Any) -> Any:
    ones = torch.ones_like(tensor)
    return client.run(kl_div_backward, ones, self=ones, target=tensor, reduction=0)


@each(
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


DTYPES = ["float32", "float16", "bfloat16"]


@EVERY_CLIENT
@each("dtype", DTYPES)
def test_an_operator_takes_tensors_of_any_layout(client: Client, dtype: str) -> None:
    kind = getattr(torch, dtype)
    result = run(client, torch.tensor(VALUES, dtype=kind))
    assert result.dtype is kind
    np.testing.assert_array_equal(result.float(), -np.array(VALUES, np.float32))
    parts = run(client, torch.tensor(VALUES, dtype=kind).t()[::2])
    np.testing.assert_array_equal(parts.float(), [[-1, -4], [-3, -6]])
    assert run(client, torch.tensor(3.0, dtype=kind)) == -3


def test_a_tensor_whose_gradient_would_be_lost_is_refused(client: Client) -> None:
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(
        ValueError, match=r"^target: .*use npucall.torch.functional, .* target.detach\(\)"
    ):
        run(client, weight)
    with torch.no_grad():  # here torch asks for none
        assert run(client, weight).tolist() == run(client, weight.detach()).tolist() == [-1, -1]


def test_a_tensor_that_torch_negates_lazily_is_taken_negated(client: Client) -> None:
    lazy = torch.tensor([1 + 2j]).conj().imag
    assert lazy.is_neg()
    np.testing.assert_array_equal(run(client, lazy), [2.0])


@each("dtype", ["float32", "bfloat16"])
def test_an_output_may_be_a_tensor_of_any_layout(client: Client, dtype: str) -> None:
    base = torch.full((3, 4), 99.0, dtype=getattr(torch, dtype), requires_grad=False)
    out = base[:, :2].t()
    ones = torch.ones(2, 3, dtype=out.dtype)
    target = torch.tensor(VALUES, dtype=out.dtype)
    options = client.options(outputs={"out": out})
    options.run(kl_div_backward, ones, self=ones, target=target, reduction=0)
    assert base.float().tolist() == [[-1, -4, 99, 99], [-2, -5, 99, 99], [-3, -6, 99, 99]]
    number, one = torch.zeros((), dtype=out.dtype), torch.ones((), dtype=out.dtype)
    client.options(outputs={"out": number}).run(kl_div_backward, one, self=one, target=one)
    assert number.item() == -1


def test_what_has_no_memory_of_its_own_here_is_refused(client: Client) -> None:
    lazy, one = torch.tensor([1 + 2j]).conj().imag, torch.ones(1)
    elsewhere, sparse = torch.ones(1, device="meta"), torch.ones(1).to_sparse()
    for out, said in (lazy, r"out: expected a NumPy array .* or a torch"), (elsewhere, ELSEWHERE):
        with pytest.raises(TypeError, match=said):
            client.options(outputs={"out": out}).run(kl_div_backward, one, self=one, target=one)
    for target, said in (sparse, "."), (elsewhere, ELSEWHERE):
        with pytest.raises(TypeError, match=said):
            client.run(kl_div_backward, one, self=one, target=target)


ELSEWHERE = "expected a tensor in CPU memory, found one on meta"


# Tensors come back where tensors came in.


@EVERY_CLIENT
@each("dtype", DTYPES)
@each("method", ["run", "execute", "pipeline"])
def test_results_are_tensors_where_inputs_were(client: Client, method: str, dtype: str) -> None:
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


@each("dtype", DTYPES)
def test_plan_takes_tensors_without_data(client: Client, dtype: str) -> None:
    meta = torch.ones(2**11, 2**10, dtype=getattr(torch, dtype), device="meta")
    (spec,) = client.plan(kl_div_backward, meta, self=meta, target=meta).outputs.values()
    assert (spec.shape, str(spec.dtype.numpy)) == ((2**11, 2**10), dtype)
    empty = npucall_client.Empty((2, 3), "float16")  # a shape and a dtype alone
    (spec,) = client.plan(kl_div_backward, empty, self=empty, target=empty).outputs.values()
    assert (spec.shape, str(spec.dtype.numpy)) == ((2, 3), "float16")


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_meta_tensor_of_a_dtype_that_nobody_takes_is_refused_by_name(client: Client) -> None:
    meta = torch.empty(2, dtype=torch.complex32, device="meta")
    with pytest.raises(DTypeError, match=r"self: no operator takes torch\.complex32"):
        client.plan(kl_div_backward, torch.ones(2), self=meta, target=torch.ones(2))


KEPT = ["float32", "float16", "bfloat16", "float64", "int32", "int64", "bool", "float8_e5m2"]


@each("dtype", KEPT)
def test_what_was_put_comes_back_as_a_tensor(client: Client, dtype: str) -> None:
    tensor = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    with client.session() as session:
        back = session.put(tensor).fetch()
    assert isinstance(back, torch.Tensor)
    assert back.dtype == tensor.dtype
    assert back.view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()


@EVERY_CLIENT
def test_results_of_tensors_are_tensors_and_of_arrays_arrays(client: Client) -> None:
    tensor, one = torch.linspace(-1, 1, 6), np.ones((), np.float32)
    array = tensor.numpy()
    with client.session() as session:
        from_tensor = session.run(l1_loss_backward, one, tensor, array)
        from_array = session.run(l1_loss_backward, one, array, array)
        with session.program() as program:
            behind = program.run(l1_loss_backward, one, from_tensor, array)
            beside = program.run(l1_loss_backward, one, from_array, array)
        kinds = [type(each.fetch()) for each in (from_tensor, behind, from_array, beside)]
        assert kinds == [torch.Tensor, torch.Tensor, np.ndarray, np.ndarray]
        assert isinstance(beside.torch(), torch.Tensor)
        assert isinstance(behind.numpy(), np.ndarray)
