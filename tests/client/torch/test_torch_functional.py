"""Functions with torch's signatures whose gradients the operators compute."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
    pytest.mark.filterwarnings("ignore:Using a target size"),
    pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight"),
]

from tests.rows import each  # noqa: E402

from npucall.errors import ShapeError  # noqa: E402
from npucall_client import Client  # noqa: E402
from npucall_client.torch import functional  # noqa: E402
from npucall_client.torch.functional import FUNCTIONS  # noqa: E402

LABELS = [1, 0, -100, 2]
# Scalars count as float32 in operators.
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-7}


class Case(NamedTuple):
    """A call; floating tensors of ``given`` are converted to a dtype, those named get gradients."""

    function: str
    given: dict[str, Any]

    @property
    def title(self) -> str:
        told = [f"{key}={value}" for key, value in self.given.items() if not tensor(value)]
        shapes = [str(tuple(value.shape)) for value in self.given.values() if tensor(value)]
        return " ".join([self.function, *shapes, *told])

    def made(self, dtype: Any) -> dict[str, Any]:
        """Arguments of their own memory."""
        differentiable = FUNCTIONS[self.function].gradients
        made = {}
        for key, value in self.given.items():
            new = value
            if tensor(value):
                new = value.to(dtype if value.is_floating_point() else value.dtype, copy=True)
                new.requires_grad_(key in differentiable and key != "target")
            made[key] = new
        return made


def tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _numbers(*shape: int) -> Any:
    """Apart from edges, where gradients jump and numeric ones go astray."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def _shares(*shape: int) -> Any:
    generator = torch.Generator().manual_seed(8)
    return torch.rand(*shape, generator=generator, dtype=torch.float64) * 0.8 + 0.1


def _activations() -> Iterator[Case]:
    x = _numbers(3, 4)
    for name in "gelu", "silu", "hardsigmoid", "hardswish", "relu", "relu6", "sigmoid", "tanh":
        yield Case(name, {"input": x})
    yield Case("gelu", {"input": x, "approximate": "tanh"})
    yield Case("gelu", {"input": _numbers(2, 3, 4).transpose(0, 2)})
    yield Case("sigmoid", {"input": _numbers(1)[0]})
    yield Case("threshold", {"input": x, "threshold": 0.2, "value": -3.0})
    yield Case("hardtanh", {"input": x})
    yield Case("hardtanh", {"input": x, "min_val": -0.3, "max_val": 0.4})
    yield Case("elu", {"input": x})
    yield Case("elu", {"input": x, "alpha": 0.5})
    yield Case("leaky_relu", {"input": x})
    yield Case("leaky_relu", {"input": x, "negative_slope": -0.5})
    for name in "mish", "hardshrink", "softshrink", "logsigmoid", "selu", "celu":
        yield Case(name, {"input": x})
    yield Case("hardshrink", {"input": x, "lambd": 0.25})
    yield Case("softshrink", {"input": x, "lambd": 0.25})
    yield Case("celu", {"input": x, "alpha": 0.5})
    yield Case("softplus", {"input": x})
    yield Case("softplus", {"input": x, "beta": 2.0, "threshold": 0.5})
    yield Case("logit", {"input": _shares(3, 4)})
    yield Case("logit", {"input": _shares(3, 4), "eps": 0.3})
    yield Case("glu", {"input": x})
    yield Case("glu", {"input": _numbers(4, 3), "dim": 0})
    yield Case("prelu", {"input": _numbers(2, 3, 2), "weight": _shares(3)})
    yield Case("prelu", {"input": x, "weight": _shares(1)})
    for name in "softmax", "log_softmax":
        yield Case(name, {"input": x, "dim": -1})
        yield Case(name, {"input": _numbers(2, 3, 2), "dim": 1})


def _pairs() -> Iterator[Case]:
    x, y = _numbers(3, 4), _shares(3, 4)
    reductions = "mean", "none", "sum"
    for reduction in (*reductions, "batchmean"):
        yield Case("kl_div", {"input": x, "target": y, "reduction": reduction})
        yield Case("kl_div", {"input": x[:1], "target": y, "reduction": reduction})
    logs = {"input": x, "target": y.log(), "reduction": "sum", "log_target": True}
    yield Case("kl_div", logs)
    for name in "l1_loss", "mse_loss", "smooth_l1_loss", "soft_margin_loss":
        for reduction in reductions:
            yield Case(name, {"input": x, "target": y, "reduction": reduction})
    yield Case("smooth_l1_loss", {"input": x, "target": y, "beta": 0.3})


def _entropies() -> Iterator[Case]:
    x, y, weight = _numbers(3, 4), _shares(3, 4), _shares(4)
    for reduction in "mean", "none", "sum":
        told = {"target": y, "reduction": reduction}
        yield Case("binary_cross_entropy", {"input": _shares(3, 4).flip(0), **told})
        yield Case("binary_cross_entropy_with_logits", {"input": x, **told})
    weighted = {"input": _shares(3, 4).flip(0), "target": y, "weight": weight}
    yield Case("binary_cross_entropy", weighted)
    both = {"input": x, "target": y, "weight": weight, "pos_weight": _shares(4).flip(0)}
    yield Case("binary_cross_entropy_with_logits", both)


def _classes() -> Iterator[Case]:
    labels, weight = torch.tensor(LABELS), _shares(3)
    image = torch.tensor(LABELS * 4).reshape(2, 2, 4)
    for name in "nll_loss", "cross_entropy":
        for reduction in "mean", "none", "sum":
            told = {"target": labels, "reduction": reduction}
            yield Case(name, {"input": _numbers(4, 3), **told})
            yield Case(name, {"input": _numbers(4, 3), "weight": weight, **told})
            told["target"] = image
            yield Case(name, {"input": _numbers(2, 3, 2, 4), "weight": weight, **told})
        own = {"target": torch.tensor(LABELS[:2]), "ignore_index": 0}
        yield Case(name, {"input": _numbers(2, 3), **own})
        yield Case(name, {"input": _numbers(3), "target": labels[0]})
        yield Case(name, {"input": _numbers(2, 3, 4), "target": image[:, 0], "reduction": "none"})


def _ctc() -> Iterator[Case]:
    logs = torch.log_softmax(_numbers(6, 2, 4), 2)
    told = {"input_lengths": [6, 5], "target_lengths": [2, 3]}
    for reduction in "mean", "none", "sum":
        targets = torch.tensor([[1, 2, 0], [3, 3, 1]])
        given = {"log_probs": logs, "targets": targets, **told, "reduction": reduction}
        yield Case("ctc_loss", given)
    joined = {"log_probs": logs, "targets": torch.tensor([1, 2, 3, 3, 1]), **told}
    yield Case("ctc_loss", joined)
    long = {**joined, "targets": torch.tensor([1, 2, 3, 3, 3, 3]), "target_lengths": [2, 4]}
    yield Case("ctc_loss", {**long, "zero_infinity": True, "reduction": "none"})
    alone = {"input_lengths": [6], "target_lengths": [2], "targets": torch.tensor([1, 2])}
    yield Case("ctc_loss", {"log_probs": logs[:, 0], **alone})


def _layers() -> Iterator[Case]:
    yield Case(
        "linear", {"input": _numbers(2, 3, 4), "weight": _numbers(5, 4), "bias": _numbers(5)}
    )
    yield Case("linear", {"input": _numbers(4), "weight": _shares(2, 4)})
    table = {"input": torch.tensor([[4, 0], [1, 4]]), "weight": _numbers(5, 3)}
    yield Case("embedding", table)
    yield Case("embedding", {**table, "padding_idx": -1, "scale_grad_by_freq": True})
    rows, weight = {"input": _numbers(2, 3, 4), "normalized_shape": [4]}, _shares(4)
    yield Case("rms_norm", {**rows, "weight": weight})
    yield Case("rms_norm", {**rows, "normalized_shape": [3, 4], "eps": 0.1})
    yield Case("layer_norm", {**rows, "weight": weight, "bias": _numbers(4)})
    yield Case("layer_norm", {**rows, "normalized_shape": [3, 4], "eps": 0.1})
    yield Case("swiglu", {"input": _numbers(3, 6)})
    yield Case("swiglu", {"input": _numbers(4, 3), "dim": 0})
    yield Case("geglu", {"input": _numbers(3, 6)})
    yield Case("geglu", {"input": _numbers(4, 3), "dim": 0, "approximate": "tanh"})
    yield Case("dropout", {"input": _numbers(3, 50), "p": 0.25})
    yield Case("dropout", {"input": _numbers(3, 4), "p": 1.0})
    yield Case("dropout", {"input": _numbers(3, 4), "training": False})
    turned = {
        "input": _numbers(2, 3, 4, 6),
        "cos": _shares(1, 1, 4, 6),
        "sin": _numbers(1, 1, 4, 6),
    }
    yield Case("rotary_embedding", turned)
    yield Case("rotary_embedding", {**turned, "interleaved": True})
    heads = {
        "query": _numbers(2, 4, 3, 6),
        "key": _shares(2, 4, 5, 6),
        "value": _numbers(2, 4, 5, 6),
    }
    yield Case("scaled_dot_product_attention", heads)
    yield Case("scaled_dot_product_attention", {**heads, "is_causal": True, "scale": 0.75})
    seen = _numbers(3, 5) > -0.5  # each row sees something
    yield Case("scaled_dot_product_attention", {**heads, "attn_mask": seen})
    shared = {**heads, "key": _shares(2, 2, 5, 6), "value": _numbers(2, 2, 5, 6)}
    yield Case("scaled_dot_product_attention", {**shared, "enable_gqa": True})
    image = {"input": _numbers(2, 4, 5, 6), "weight": _numbers(6, 2, 3, 2), "bias": _numbers(6)}
    told = {"stride": [2, 2], "padding": [1, 0], "dilation": [1, 1], "groups": 2}
    yield Case("conv2d", {**image, **told})
    images = {"input": _numbers(2, 3, 4, 5), "running_mean": None, "running_var": None}
    weights = {"weight": _shares(3), "bias": _numbers(3), "training": True}
    yield Case("batch_norm", {**images, **weights})
    running = {"running_mean": _numbers(3), "running_var": _shares(3)}
    yield Case("batch_norm", {**images, **running, "eps": 0.1})
    groups = {"input": _numbers(2, 6, 3), "num_groups": 3}
    yield Case("group_norm", {**groups, "weight": _shares(6), "bias": _numbers(6), "eps": 0.1})
    windows = {"kernel_size": [3, 2], "stride": [2, 1], "padding": [1, 0], "ceil_mode": True}
    yield Case("max_pool2d", {"input": _numbers(2, 3, 4, 5), **windows, "dilation": [1, 1]})
    counted = {"count_include_pad": False, "divisor_override": None}
    yield Case("avg_pool2d", {"input": _numbers(2, 3, 4, 5), **windows, **counted})
    counted = {"count_include_pad": True, "divisor_override": -3}
    yield Case("avg_pool2d", {"input": _numbers(3, 4, 5), **windows, **counted, "stride": []})
    yield Case("adaptive_avg_pool2d", {"input": _numbers(2, 3, 4, 5), "output_size": [3, 7]})
    yield Case("adaptive_max_pool2d", {"input": _numbers(2, 3, 4, 5), "output_size": [3, 7]})
    deep, sizes = {"input": _numbers(1, 2, 3, 4, 3)}, {"output_size": [2, 3, 1]}
    windows |= {"kernel_size": [2, 3, 2], "stride": [1, 2, 1], "padding": [1, 0, 1]}
    yield Case("max_pool3d", {**deep, **windows, "dilation": [1, 1, 1]})
    yield Case("avg_pool3d", {**deep, **windows, **counted})
    yield from (Case(f"adaptive_{kind}_pool3d", {**deep, **sizes}) for kind in ("avg", "max"))


def _planes() -> Iterator[Case]:
    row, plane = _numbers(1, 2, 3), _numbers(1, 1, 2, 3)
    yield Case("interpolate", {"input": row, "scale_factor": [1.7], "mode": "nearest"})
    aligned = {"size": [3, 2], "mode": "bilinear", "align_corners": True}
    yield Case("interpolate", {"input": plane, **aligned})
    yield Case("pad", {"input": row, "pad": [1, 0], "mode": "circular"})
    yield Case("pad", {"input": plane, "pad": [1, 0, 0, 1], "mode": "reflect"})
    for axes in (2, 3):
        told = {"kernel_size": [2] * axes, "stride": [2] * axes, "padding": [0] * axes}
        places = torch.arange(2**axes).reshape(1, *[2] * axes) * 2
        given = {"input": _numbers(1, *[2] * axes), "indices": places, "output_size": [4] * axes}
        yield Case(f"max_unpool{axes}d", {**given, **told})
    told = {"kernel_size": [2, 1], "dilation": [1, 2], "padding": [1, 0], "stride": [1, 2]}
    yield Case("unfold", {"input": plane, **told})
    yield Case("fold", {"input": _numbers(1, 4, 6), "output_size": [2, 3], **told})
    sampled = {"input": plane, "grid": _numbers(1, 2, 2, 2), "align_corners": False}
    yield Case("grid_sample", {**sampled, "padding_mode": "reflection"})


def _distances() -> Iterator[Case]:
    x, y = _numbers(2, 3, 4), _shares(5, 4)
    yield Case("cdist", {"x1": x, "x2": y})
    yield from (Case("cdist", {"x1": x[0], "x2": y, "p": p}) for p in (1.0, 3.0, float("inf")))


CASES = [
    *(*_activations(), *_pairs(), *_entropies(), *_classes(), *_ctc(), *_layers()),
    *(*_planes(), *_distances()),
]
"""Every function, with its reductions, options and shapes."""
ONE_OF_EACH = list({case.function: case for case in reversed(CASES)}.values())
"""The first case of each function."""


def run(function: Any, given: dict[str, Any]) -> list[Any]:
    """The result and the gradients of what has any, for an upstream gradient that differs."""
    leaves = {key: value for key, value in given.items() if getattr(value, "requires_grad", False)}
    torch.manual_seed(6)  # of what drops numbers
    result = function(**given)
    upstream = torch.linspace(0.5, 1.5, result.numel(), dtype=result.dtype).reshape(result.shape)
    return [result.detach(), *torch.autograd.grad(result, list(leaves.values()), upstream)]


def compare(case: Case, found: list[Any], expected: list[Any]) -> list[str]:
    """What differs."""
    wrong = []
    for mine, torchs in zip(found, expected, strict=True):
        tolerance = TOLERANCES[torchs.dtype]
        try:
            torch.testing.assert_close(mine, torchs, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            wrong.append(f"{case.title}: {error}")
    return wrong


def differences(functions: Any, dtype: Any) -> list[str]:
    wrong = []
    for case in CASES:
        torchs = FUNCTIONS[case.function].torch
        found = run(getattr(functions, case.function), case.made(dtype))
        wrong += compare(case, found, run(torchs, case.made(dtype)))
    return wrong


@each("dtype", [torch.float32, torch.float64])
def test_gradients_are_those_of_torch_where_torch_computes_the_function(
    local: Client, dtype: Any
) -> None:
    assert differences(functional(local, forward="torch"), dtype) == []


@each("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_have_the_gradients_of_torch(local: Client, dtype: Any) -> None:
    functions = functional(local, forward="torch")
    wrong = []
    for case in CASES:
        if case.function in ("ctc_loss", "avg_pool3d", "cdist"):  # torch has no short floats there
            continue
        exact = run(FUNCTIONS[case.function].torch, _widened(case.made(dtype)))
        found = run(getattr(functions, case.function), case.made(dtype))
        wrong += compare(case, found, [each.to(dtype) for each in exact])
    assert wrong == []


def _widened(given: dict[str, Any]) -> dict[str, Any]:
    """The same numbers as float32."""
    return {
        key: value.detach().float().requires_grad_(value.requires_grad)
        if tensor(value) and value.is_floating_point()
        else value
        for key, value in given.items()
    }


@pytest.mark.parametrize(
    "along_each_number", [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["along one direction", "along each number"],
)  # fmt: skip
def test_numeric_differentiation_in_float64_finds_the_same_gradients(
    local: Client, along_each_number: bool
) -> None:
    functions = functional(local)
    wrong = [case.title for case in CASES if not _agrees(functions, case, along_each_number)]
    assert wrong == []


def _agrees(functions: Any, case: Case, along_each_number: bool) -> bool:
    """Where operators narrow a scalar to float32, both sides do."""
    if "padding_idx" in case.given:  # its gradient is not the derivative, nor meant to be
        return True
    given = case.made(torch.float64)
    gradients = FUNCTIONS[case.function].gradients
    names = [name for name in gradients if name != "target" and name in given]

    def called(*leaves: Any) -> Any:
        own = dict(zip(names, leaves, strict=True))
        torch.manual_seed(6)
        if "log_probs" in own:  # the gradient counts on shares that sum to 1, as torch's
            own["log_probs"] = torch.log_softmax(own["log_probs"], -1)
        return getattr(functions, case.function)(**{**given, **own})

    leaves = [given[name] for name in names]
    return bool(torch.autograd.gradcheck(
        called, leaves, rtol=1e-4, atol=1e-6, raise_exception=False, fast_mode=not along_each_number
    ))  # fmt: skip


def test_a_target_of_a_symmetric_loss_and_of_kl_div_has_its_gradient_too(local: Client) -> None:
    functions = functional(local, forward="torch")
    wrong = []
    for case in CASES:
        if "target" not in FUNCTIONS[case.function].gradients:
            continue
        both = [case.made(torch.float32) for _ in range(2)]
        for given in both:
            given["target"].requires_grad_()
        found = run(getattr(functions, case.function), both[0])
        wrong += compare(case, found, run(FUNCTIONS[case.function].torch, both[1]))
    assert wrong == []


def test_what_was_stretched_gets_the_sum_of_its_gradients(local: Client) -> None:
    functions = functional(local, forward="torch")
    for name in "l1_loss", "mse_loss", "smooth_l1_loss", "kl_div":
        for shape in (3, 1), (4,), ():
            given = {"input": torch.randn(shape), "target": torch.rand(3, 4)}
            case = Case(name, given)
            found = run(getattr(functions, name), case.made(torch.float32))
            torchs = run(FUNCTIONS[name].torch, case.made(torch.float32))
            assert compare(case, found, torchs) == []


@each("forward", ["aclnn", "torch"])
@each("dtype", [torch.float32, torch.bfloat16])
def test_autocast_makes_the_dtypes_that_it_makes_of_torchs_own(
    local: Client, forward: str, dtype: Any
) -> None:
    functions = functional(local, forward=forward)
    wrong = []
    for case in ONE_OF_EACH:
        found, torchs = case.made(dtype), case.made(dtype)
        for given in found, torchs:  # weights are not short: a layer keeps them in float32
            for name in {"weight", "bias"} & given.keys():
                given[name] = given[name].detach().float().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mine = run(getattr(functions, case.function), found)
            expected = run(FUNCTIONS[case.function].torch, torchs)
        if [each.dtype for each in mine] != [each.dtype for each in expected]:
            wrong.append(case.title)
        else:
            short = [each.to(torch.bfloat16) for each in expected]
            wrong += compare(case, [each.to(torch.bfloat16) for each in mine], short)
    assert wrong == []


@each("name", ["nll_loss", "cross_entropy"])
@each(("shape", "labels", "wrong"), [((3, 4), [3, 4, -100], 4), ((1, 4, 2), [[0, -1]], -1)])
def test_a_label_out_of_range_is_an_index_error_as_in_torch(
    local: Client, name: str, shape: tuple[int, ...], labels: Any, wrong: int
) -> None:
    given = torch.randn(shape), torch.tensor(labels)
    with pytest.raises(IndexError):
        FUNCTIONS[name].torch(*given)
    with pytest.raises(
        IndexError, match=rf"labels from 0 to 3, or ignore_index -100, found {wrong}$"
    ):
        getattr(functional(local), name)(*given)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch itself calls it
def test_forward_mode_raises_where_it_would_lose_the_tangent(local: Client) -> None:
    gelu = functional(local).gelu
    with pytest.raises(RuntimeError, match="expected a tensor without a tangent"):
        torch.func.jvp(gelu, (torch.randn(3),), (torch.ones(3),))
    with torch.autograd.forward_ad.dual_level():
        assert gelu(torch.zeros(3)).sum() == 0


def test_an_error_of_a_function_has_no_frames_of_torch(local: Client) -> None:
    with pytest.raises(ShapeError) as failed:
        functional(local).kl_div(torch.ones(2, 3), torch.ones(4, 4))
    assert [frame.name for frame in failed.traceback] == [
        "test_an_error_of_a_function_has_no_frames_of_torch",
        "call",
    ]
