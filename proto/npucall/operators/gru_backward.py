"""The gradient of a GRU: of layers and directions, through time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Fault, refuses
from npucall.dtypes import HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import ArgumentError, ShapeError
from npucall.operators._recurrent import (
    CellPass,
    Network,
    cells,
    directions,
    held,
    of_length,
    of_shapes,
    parameters,
)
from npucall.products import A2, A3
from npucall.tensors import Format, Shape

GATES = 3
KEPT = ("r", "z", "n", "h_n", "h")
ONE_BY_ONE = ("input", "hx", "dy", "dh", "dx_out", "dh_prev_out")
LISTS = ("params", *KEPT, "dparams_out")
SHAPED = ("hx", "dy", "dh", *KEPT, "params", "dx_out", "dh_prev_out", "dparams_out")


def wanted(draft: Draft) -> Iterator[tuple[str, list[Shape]]]:
    """Of each tensor, or list, the shapes that it must have."""
    first, second, width = draft.shape("input")
    time, items = (second, first) if draft.attribute("batch_first") else (first, second)
    hidden, count = draft.shape("hx")[-1], cells(draft)
    params = parameters(draft, GATES, width, hidden)
    states: list[Shape] = [(count, items, hidden)]
    kept: list[Shape] = [(time, items, hidden)]
    yield "hx", states
    yield "dy", [(first, second, directions(draft) * hidden)]
    yield "dh", states
    yield from ((name, kept * count) for name in KEPT)
    yield "params", params
    yield "dx_out", [(first, second, width)]
    yield "dh_prev_out", states
    yield "dparams_out", params


def misshapen(draft: Draft) -> Iterator[Fault]:
    """Tensors of another shape, and lists of another length."""
    for name, shapes in wanted(draft):
        yield from of_length(draft, name, len(shapes))
        yield from of_shapes(draft, name, shapes)


def has_zero(draft: Draft) -> bool:
    """Whether there is an extent of 0."""
    return 0 in draft.shape("input") or 0 in draft.shape("hx")[-1:]


def backward(
    kept: Mapping[str, AnyArray], cell: CellPass, last: AnyArray, before: AnyArray, pause: Any
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Of one cell: gradients of the gates on both sides, all states before, gradient of its first.

    ``last``: the gradient of its last state; ``before``: its first state.
    """
    upstream, times = cell.upstream, cell.times
    gates = np.empty((2, *upstream.shape[:2], GATES * upstream.shape[2]), upstream.dtype)
    states = np.empty_like(upstream)
    grad = last
    for place in range(len(times) - 1, -1, -1):
        pause()
        now = times[place]
        r, z, n, of_hidden = (kept[name][now] for name in KEPT[:4])
        states[now] = kept["h"][times[place - 1]] if place else before
        total = upstream[now] + grad
        of_n = total * (1 - z) * (1 - n * n)
        of_z = total * (states[now] - n) * (z * (1 - z))
        of_r = of_n * of_hidden * (r * (1 - r))
        gates[0, now] = np.concatenate([of_r, of_z, of_n], -1)
        gates[1, now] = np.concatenate([of_r, of_z, of_n * r], -1)
        grad = gates[1, now] @ cell.w_hh + total * z
    return gates[0], gates[1], states, grad


@operator(
    "aclnnGRUBackward",
    Input("input", "what the first layer got, (T, B, I), or (B, T, I) with batch_first"),
    Input("params", "of each layer and direction w_ih, w_hh, and b_ih, b_hh with has_bias",
          many=True),
    Input("hx", "the first states, (layers times directions, B, H)"),
    Input("dy", "gradient of all states of the last layer"),
    Input("dh", "gradient of the last states of all layers"),
    Input("r", "of each layer and direction the reset gates, (T, B, H)", many=True),
    Input("z", "the update gates", many=True),
    Input("n", "the new gates", many=True),
    Input("h_n", "what r was multiplied with: w_hn h + b_hn", many=True, c_name="h_n"),
    Input("h", "the states", many=True),
    Input("batch_sizes", "must be null", optional=True),
    Attribute("has_bias", Kind.BOOL, "whether there are biases"),
    Attribute("num_layers", Kind.INT64, "how many layers there are"),
    Attribute("bidirectional", Kind.BOOL, "whether each layer also runs from the end"),
    Attribute("batch_first", Kind.BOOL, "input, dy and dx_out have B before T"),
    Output("dx_out", "gradient of input", "input", "input"),
    Output("dh_prev_out", "gradient of hx", "hx", "input"),
    Output("dparams_out", "gradients of params", "params", "input", many=True),
    products=dict.fromkeys((A2, A3), HALF_AND_SINGLE),
    checks=(
        rules.present("input", "hx", "params", "dy", "dh", *KEPT, "dx_out", "dh_prev_out",
                      "dparams_out"),
        *(
            rule
            for name in (*ONE_BY_ONE, *LISTS)
            for rule in (
                rules.supported(name),
                rules.same_dtype(name, as_="input"),
                rules.format_in(name, Format.ND, Format.NCL),
            )[:: 2 if name == "input" else 1]
        ),
        rules.requires("null", "batch_sizes", holds=lambda draft: draft.absent("batch_sizes"),
                       found=lambda _: "a tensor", error=ArgumentError),
        rules.rank_is("input", 3),
        rules.requires("no extent of 0, and none of hx", "input", "hx",
                       holds=lambda draft: not has_zero(draft),
                       found=lambda d: f"{d.shape('input')} and {d.shape('hx')}"),
        rules.value_fits("1 or more", "num_layers", lambda value: value > 0),
        refuses(ShapeError, "shapes and lengths follow from input, hx and attributes", SHAPED,
                misshapen),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(holds=held),
    sample=Sample(
        {"input": (2, 3, 4), "params": ((6, 4), (6, 2), (6,), (6,)), "hx": (1, 3, 2),
         "dy": (2, 3, 2), "dh": (1, 3, 2), **dict.fromkeys(KEPT, ((2, 3, 2),))},
        attributes={"has_bias": True, "num_layers": 1, "bidirectional": False,
                    "batch_first": False},
        without=("batch_sizes",),
    ),
    area="recurrent networks",
    torch="nn.GRU",
    source="ops-nn rnn/gru_grad: page aclnnGRUBackward, order of checks in its source; "
    "assumed: what is kept of a direction from the end stands in the order of time",
)  # fmt: skip
def gru_backward(
    facts: Facts,
    input: Array,  # noqa: A002  # the operator's own name for it
    params: Sequence[Array],
    hx: Array,
    dy: Array,
    dh: Array,
    r: Sequence[Array],
    z: Sequence[Array],
    n: Sequence[Array],
    h_n: Sequence[Array],
    h: Sequence[Array],
    batch_sizes: Array | None = None,
    has_bias: bool = True,
    num_layers: int = 1,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> tuple[Any, ...]:
    """Gradients of a GRU with respect to its input, its first states and its parameters.

    Of each step, from the last to the first, with d the gradient of its state h, which dy, dh and
    the step behind it give, and h' the state before::

        dn = d * (1 - z) * (1 - n^2)     dz = d * (h' - n) * z * (1 - z)
        dr = dn * h_n * r * (1 - r)
        gradient of the gates: [dr, dz, dn] on the input's side, [dr, dz, dn * r] on the state's
        gradient of h' = [dr, dz, dn * r] @ w_hh + d * z

    Those of weights are the gates' times what they were multiplied with, added over all steps;
    those of a layer's input are [dr, dz, dn] @ w_ih, of both directions, and go to the layer below.
    Gates stand in the order r, z, n. Everything is computed in float32 and rounded once. The
    software does not compare the shapes of ``params``; here they must fit.

    As the gradient of ``torch.nn.GRU``, whose dropout this operator does not have.
    """
    del batch_sizes
    flip, both = (1, 0, 2), 2 if bidirectional else 1
    first, upstream = (np.asarray(facts.read(each, ...), facts.dtype) for each in (input, dy))
    if batch_first:
        first, upstream = first.transpose(flip), upstream.transpose(flip)
    states = np.empty(hx.shape, facts.dtype)

    def back(cell: CellPass) -> tuple[AnyArray, AnyArray, AnyArray]:
        lists = zip(KEPT, (r, z, n, h_n, h), strict=True)
        kept = {name: facts.read(each[cell.number], ...) for name, each in lists}
        last, before = (facts.read(each, cell.number) for each in (dh, hx))
        *found, states[cell.number] = backward(kept, cell, last, before, facts.pause)
        return found[0], found[1], found[2]

    network = Network(facts, params, h, num_layers, both, has_bias)
    down, grads = network.back(first, upstream, back)
    return down.transpose(flip) if batch_first else down, states, grads
