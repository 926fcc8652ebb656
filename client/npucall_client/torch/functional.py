"""``functional``: losses and activations with torch's signatures, their gradients by an NPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from npucall.errors import NpucallError
from npucall_client.client import Client
from npucall_client.sending.senders import shortened
from npucall_client.sessions.session import Session
from npucall_client.torch import activations, classes, images, layers, losses, planes, poolings
from npucall_client.torch.declarations import Function
from npucall_client.torch.library import define
from npucall_client.torch.places import Place

__tracebackhide__ = True  # in a red test pytest shows the line that called

P = ParamSpec("P")

FORWARDS = ("aclnn", "torch")


def functional(
    client: Client, *, session: Session | None = None, forward: str = "aclnn"
) -> Functional:
    """Functions to use in place of those of ``torch.nn.functional``.

    ``F = functional(client)``, then ``F.kl_div(input, target, reduction="batchmean").backward()``.
    They have torch's names and signatures, and take and return CPU tensors. If the operators of
    CANN differ from torch, the functions correct the result, or raise ValueError.

    client: where gradients are computed, and with ``forward="aclnn"`` the functions too: a server,
        or ``local:``, which also takes float64.
    session: a session of that client. The tensors that a backward needs stay there, and travel
        once. Without a session they travel with the forward and with the backward.
    forward: ``aclnn`` or ``torch``, which computes the functions themselves in this process.

    ``torch.compile`` sees one node for each function. There is no second derivative: it raises
    RuntimeError. Raises ValueError for another ``forward``.
    """
    if forward not in FORWARDS:
        raise ValueError(f"forward: expected 'aclnn' or 'torch', found {forward!r}")
    return Functional(Place(client, session), by_torch=forward == "torch")


def _method(function: Function[P]) -> Callable[Concatenate[Functional, P], Tensor]:
    operator = define(function)
    arguments = function.arguments
    constant = frozenset(arguments) - frozenset(function.gradients)

    def call(self: Functional, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        _check_no_tangent(args, kwargs)
        cast = [function.cast(each) for each in args]
        named = {name: function.cast(value) for name, value in kwargs.items()}
        given = {**dict(zip(arguments, cast)), **named}  # noqa: B905  # torch says what is wrong
        keep = False
        if torch.is_grad_enabled():
            for name, value in given.items():
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    keep = True
                    if name in constant:
                        raise ValueError(_no_gradient(function.name, name))
        try:
            result: Tensor = operator(self.number, self.by_torch, keep, *cast, **named)[0]
        except NpucallError as error:
            raise shortened(error)  # noqa: B904  # the same error
        return result

    call.__name__, call.__qualname__ = function.name, f"Functional.{function.name}"
    call.__doc__ = f"As ``torch``'s ``{function.name}``; its gradient by CANN's operator."
    return call


def _check_no_tangent(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Forward-mode derivatives would be lost: torch gives an operator of ours none to pass on."""
    if torch.compiler.is_compiling():  # no forward mode there
        return
    for each in (*args, *kwargs.values()):
        if isinstance(each, torch.Tensor) and unpack_dual(each).tangent is not None:
            raise RuntimeError(
                "expected a tensor without a tangent, found one of forward-mode differentiation; "
                "CANN has operators for backward gradients alone"
            )


def _no_gradient(function: str, name: str) -> str:
    return (
        f"{name}: expected a tensor that needs no gradient, found one with requires_grad; CANN has "
        f"no operator for this gradient of {function}: pass {name}.detach()"
    )


def _maxima(axes: int) -> Callable[..., Tensor]:
    def max_pool(  # noqa: PLR0913  # torch's signature
        self: Functional,
        input: Tensor,  # noqa: A002
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,  # noqa: FBT001, FBT002
        return_indices: bool = False,  # noqa: FBT001, FBT002
    ) -> Tensor:
        if return_indices:
            raise ValueError("return_indices: expected False, found True; the operator keeps them")
        told = [images.pair(each, axes) for each in (kernel_size, stride, padding, dilation)]
        result: Tensor = getattr(self, f"_max_pool{axes}d")(input, *told, ceil_mode)
        return result

    return _documented(max_pool, f"max_pool{axes}d", ", without indices")


def _averages(axes: int) -> Callable[..., Tensor]:
    def avg_pool(  # noqa: PLR0913  # torch's signature
        self: Functional,
        input: Tensor,  # noqa: A002
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,  # noqa: FBT001, FBT002
        count_include_pad: bool = True,  # noqa: FBT001, FBT002
        divisor_override: int | None = None,
    ) -> Tensor:
        told = [images.pair(each, axes) for each in (kernel_size, stride, padding)]
        more = (ceil_mode, count_include_pad, divisor_override)
        result: Tensor = getattr(self, f"_avg_pool{axes}d")(input, *told, *more)
        return result

    return _documented(avg_pool, f"avg_pool{axes}d")


def _adaptive(kind: str, axes: int) -> Callable[..., Tensor]:
    name = f"adaptive_{kind}_pool{axes}d"

    def adaptive(self: Functional, input: Tensor, output_size: Any) -> Tensor:  # noqa: A002
        each = [output_size] * axes if output_size is None else images.pair(output_size, axes)
        own = zip(each, input.shape[-axes:], strict=True)
        sizes = [n if wanted is None else wanted for wanted, n in own]
        result: Tensor = getattr(self, f"_{name}")(input, sizes)
        return result

    return _documented(adaptive, name, "; None: the extent of the input")


def _unpooled(axes: int) -> Callable[..., Tensor]:
    def max_unpool(  # noqa: PLR0913  # torch's signature
        self: Functional,
        input: Tensor,  # noqa: A002
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Tensor:
        kernel = images.pair(kernel_size, axes)
        steps = images.pair(stride, axes) or kernel
        around = images.pair(padding, axes)
        windows = zip(input.shape[-axes:], kernel, steps, around, strict=True)
        sizes = [(count - 1) * step - 2 * edge + own for count, own, step, edge in windows]
        if output_size is not None:
            sizes = list(output_size)[-axes:]
        result: Tensor = getattr(self, f"_max_unpool{axes}d")(
            input, indices, kernel, steps, around, sizes
        )
        return result

    return _documented(
        max_unpool, f"max_unpool{axes}d", "; any ``output_size`` that has the places"
    )


def _documented(method: Callable[..., Tensor], name: str, more: str = "") -> Callable[..., Tensor]:
    method.__name__, method.__qualname__ = name, f"Functional.{name}"
    method.__doc__ = f"As ``torch``'s ``{name}``{more}."
    return method


class Functional:
    """Made by ``functional``. Safe to use from several threads."""

    def __init__(self, place: Place, *, by_torch: bool) -> None:
        self._place = place
        self.number = place.number
        self.by_torch = by_torch

    def __repr__(self) -> str:
        return f"<Functional on {self._place.session or self._place.client!r}>"

    kl_div = _method(losses.kl_div)
    l1_loss = _method(losses.l1_loss)
    mse_loss = _method(losses.mse_loss)
    smooth_l1_loss = _method(losses.smooth_l1_loss)
    soft_margin_loss = _method(losses.soft_margin_loss)
    binary_cross_entropy = _method(losses.binary_cross_entropy)
    binary_cross_entropy_with_logits = _method(losses.binary_cross_entropy_with_logits)
    nll_loss = _method(classes.nll_loss)
    cross_entropy = _method(classes.cross_entropy)
    _ctc_loss = _method(classes.ctc_loss)
    softmax = _method(activations.softmax)
    log_softmax = _method(activations.log_softmax)
    gelu = _method(activations.gelu)
    silu = _method(activations.silu)
    sigmoid = _method(activations.sigmoid)
    tanh = _method(activations.tanh)
    relu = _method(activations.relu)
    relu6 = _method(activations.relu6)
    threshold = _method(activations.threshold)
    leaky_relu = _method(activations.leaky_relu)
    prelu = _method(activations.prelu)
    elu = _method(activations.elu)
    glu = _method(activations.glu)
    hardtanh = _method(activations.hardtanh)
    hardsigmoid = _method(activations.hardsigmoid)
    hardswish = _method(activations.hardswish)
    mish = _method(activations.mish)
    hardshrink = _method(activations.hardshrink)
    softshrink = _method(activations.softshrink)
    logsigmoid = _method(activations.logsigmoid)
    selu = _method(activations.selu)
    celu = _method(activations.celu)
    softplus = _method(activations.softplus)
    logit = _method(activations.logit)
    linear = _method(layers.linear)
    embedding = _method(layers.embedding)
    layer_norm = _method(layers.layer_norm)
    rms_norm = _method(layers.rms_norm)
    swiglu = _method(layers.swiglu)
    geglu = _method(layers.geglu)
    rotary_embedding = _method(layers.rotary_embedding)
    scaled_dot_product_attention = _method(layers.scaled_dot_product_attention)
    _dropout = _method(layers.dropout)

    _conv2d = _method(images.conv2d)
    _batch_norm = _method(images.batch_norm)
    group_norm = _method(images.group_norm)
    _max_pool2d = _method(poolings.max_pool2d)
    _max_pool3d = _method(poolings.max_pool3d)
    _avg_pool2d = _method(poolings.avg_pool2d)
    _avg_pool3d = _method(poolings.avg_pool3d)
    _adaptive_avg_pool2d = _method(poolings.adaptive_avg_pool2d)
    _adaptive_avg_pool3d = _method(poolings.adaptive_avg_pool3d)
    _adaptive_max_pool2d = _method(poolings.adaptive_max_pool2d)
    _adaptive_max_pool3d = _method(poolings.adaptive_max_pool3d)
    _max_unpool2d = _method(poolings.max_unpool2d)
    _max_unpool3d = _method(poolings.max_unpool3d)
    _unfold = _method(planes.unfold)
    _fold = _method(planes.fold)
    _interpolate = _method(planes.interpolate)
    _pad = _method(planes.pad)
    grid_sample = _method(planes.grid_sample)
    cdist = _method(losses.cdist)

    def dropout(
        self,
        input: Tensor,  # noqa: A002
        p: float = 0.5,
        training: bool = True,  # noqa: FBT001, FBT002
        inplace: bool = False,  # noqa: FBT001, FBT002
    ) -> Tensor:
        """As ``torch``'s ``dropout``: torch draws what stays, as it does for its own."""
        if not 0 <= p <= 1:
            raise ValueError(f"p: expected a number from 0 to 1, found {p}")
        if not training or p == 0 or not input.numel():
            return input
        stays = torch.zeros_like(input) if p == 1 else torch.empty_like(input).bernoulli_(1 - p)
        return self._dropout(input, p, training, inplace, stays)

    def conv2d(  # noqa: PLR0913  # torch's signature
        self,
        input: Tensor,  # noqa: A002
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        """As ``torch``'s ``conv2d``; ``padding`` in numbers."""
        steps, around, apart = (images.pair(each) for each in (stride, padding, dilation))
        return self._conv2d(input, weight, bias, steps, around, apart, groups)

    def batch_norm(  # noqa: PLR0913  # torch's signature
        self,
        input: Tensor,  # noqa: A002
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,  # noqa: FBT001, FBT002
        momentum: float = 0.1,
        eps: float = 1e-05,
    ) -> Tensor:
        """As ``torch``'s ``batch_norm``; torch itself updates the running numbers."""
        if not training:
            return self._batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
        result = self._batch_norm(input, None, None, weight, bias, training, momentum, eps)
        images.update_running(input, running_mean, running_var, momentum)
        return result

    max_pool2d, max_pool3d = _maxima(2), _maxima(3)
    avg_pool2d, avg_pool3d = _averages(2), _averages(3)
    adaptive_avg_pool2d, adaptive_avg_pool3d = _adaptive("avg", 2), _adaptive("avg", 3)
    adaptive_max_pool2d, adaptive_max_pool3d = _adaptive("max", 2), _adaptive("max", 3)
    max_unpool2d, max_unpool3d = _unpooled(2), _unpooled(3)

    def unfold(  # torch's signature
        self,
        input: Tensor,  # noqa: A002
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> Tensor:
        """As ``torch``'s ``unfold`` of ``nn.functional``."""
        told = [images.pair(each) for each in (kernel_size, dilation, padding, stride)]
        return self._unfold(input, *told)

    def fold(  # noqa: PLR0913  # torch's signature
        self,
        input: Tensor,  # noqa: A002
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> Tensor:
        """As ``torch``'s ``fold``."""
        told = [images.pair(e) for e in (output_size, kernel_size, dilation, padding, stride)]
        return self._fold(input, *told)

    def interpolate(  # noqa: PLR0913  # torch's signature
        self,
        input: Tensor,  # noqa: A002
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,  # noqa: FBT001
        recompute_scale_factor: bool | None = None,  # noqa: FBT001
        antialias: bool = False,  # noqa: FBT001, FBT002
    ) -> Tensor:
        """As ``torch``'s ``interpolate``, but for ``area``, which is ``adaptive_avg_pool2d``."""
        sizes, scales = (planes.several(each, input) for each in (size, scale_factor))
        return self._interpolate(
            input, sizes, scales, mode, align_corners, recompute_scale_factor, antialias
        )

    def pad(
        self,
        input: Tensor,  # noqa: A002
        pad: Any,
        mode: str = "constant",
        value: float | None = None,
    ) -> Tensor:
        """As ``torch``'s ``pad``; torch itself fills edges with a number."""
        if mode == "constant":
            result: Tensor = torch.nn.functional.pad(input, pad, mode, value)
            return result
        return self._pad(input, list(pad), mode)

    def ctc_loss(  # noqa: PLR0913  # torch's signature
        self,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,  # noqa: FBT001, FBT002
    ) -> Tensor:
        """As ``torch``'s ``ctc_loss``. In ``torch.compile`` lengths have to be lists of numbers."""
        return self._ctc_loss(
            log_probs,
            targets,
            _numbers(input_lengths),
            _numbers(target_lengths),
            blank,
            reduction,
            zero_infinity,
        )


def _numbers(lengths: Any) -> list[int]:
    return lengths.reshape(-1).tolist() if isinstance(lengths, torch.Tensor) else list(lengths)


FUNCTIONS = {
    function.name: function
    for module in (losses, classes, activations, layers, images, planes, poolings)
    for function in vars(module).values()
    if isinstance(function, Function)
}
"""The functions that a Functional has, by name."""
