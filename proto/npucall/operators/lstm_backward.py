"""The gradient of an LSTM: of layers and directions, through time."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Fault, refuses
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, INT64, AnyArray, Array
from npucall.errors import PARAM_NULLPTR, ArgumentError, ShapeError
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
from npucall.operators.thnn_fused_lstm_cell import GATES, cell_back
from npucall.products import A2, A3, ASCEND_950
from npucall.tensors import Shape

KEPT = ("i", "g", "f", "o", "h", "c", "tanhc")
UPSTREAM = ("dy", "dh", "dc")
GRADIENTS = ("dx_out", "dh_prev_out", "dc_prev_out")
LISTS = ("hx", "params", *KEPT, "dparams_out")
EVERY = ("input", *LISTS[:2], *UPSTREAM, *KEPT, *GRADIENTS, "dparams_out")


def typed(*names: str) -> Iterator[rules.Rule]:
    """Each has the input's dtype, which the product takes."""
    for name in names:
        yield from (rules.supported(name), rules.same_dtype(name, as_="input"))


def of_other_lengths(draft: Draft) -> Iterator[Fault]:
    """Lists with more or fewer tensors than attributes say."""
    count = cells(draft)
    yield from of_length(draft, "hx", 2)
    for name in KEPT:
        yield from of_length(draft, name, count)
    for name in ("params", "dparams_out"):
        yield from of_length(draft, name, count * (4 if draft.attribute("has_bias") else 2))


def is_packed(draft: Draft) -> bool:
    """Whether the call says how many items each step has, so that its tensors are rows."""
    return draft.tensor("batch_sizes") is not None


def steps(draft: Draft) -> int:
    """How many there are."""
    if is_packed(draft):
        return draft.shape("batch_sizes")[0]
    return draft.shape("input")[1 if draft.attribute("batch_first") else 0]


def wanted(draft: Draft) -> Iterator[tuple[str, Shape]]:
    """Of each tensor the shape that it must have; those of lists by their own names."""
    _, items, hidden = draft.shape("i[0]")
    count, width, time = cells(draft), draft.shape("input")[-1], steps(draft)
    lead: Shape = (items, time) if draft.attribute("batch_first") else (time, items)
    if is_packed(draft):
        lead = (time * items,)
    states = (count, items, hidden)
    yield from (("input", (*lead, width)), ("hx[0]", states), ("hx[1]", states))
    yield from (("dx_out", (*lead, width)), ("dh_prev_out", states), ("dc_prev_out", states))
    yield from (("dy", (*lead, directions(draft) * hidden)), ("dh", states), ("dc", states))
    for place, shape in enumerate(parameters(draft, GATES, width, hidden)):
        yield f"params[{place}]", shape
        yield f"dparams_out[{place}]", shape
    for cell in range(count):
        yield from ((f"{name}[{cell}]", (time, items, hidden)) for name in KEPT)


def misshapen(draft: Draft) -> Iterator[Fault]:
    """Tensors of another shape."""
    for name, shape in wanted(draft):
        yield from of_shapes(draft, name, [shape])


def backward(
    kept: dict[str, AnyArray], cell: CellPass, ends: Sequence[AnyArray], live: Any, pause: Any
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Of one cell: gradients of the gates, all states before, gradients of both first states.

    ``ends``: gradients of both last states, and both first states. ``live``: for each step the
    items that are there, None for all.
    """
    upstream, times, hidden = cell.upstream, cell.times, cell.upstream.shape[2]
    gates = np.empty((*upstream.shape[:2], GATES * hidden), upstream.dtype)
    states = np.empty_like(upstream)
    of_h, of_c, first_h, first_c = ends
    for place in range(len(times) - 1, -1, -1):
        pause()
        now, last = times[place], times[place - 1]
        states[now], before = (kept["h"][last], kept["c"][last]) if place else (first_h, first_c)
        stored = [kept[name][now] for name in "ifgo"]
        found = cell_back(stored, before, kept["tanhc"][now], upstream[now] + of_h, of_c)
        gates[now] = np.concatenate(found[1:], -1)
        if live is None:
            of_c, of_h = found[0], gates[now] @ cell.w_hh
        else:
            there = live[now]
            gates[now] = np.where(there, gates[now], 0)
            of_c = np.where(there, found[0], of_c)
            of_h = np.where(there, gates[now] @ cell.w_hh, of_h)
    return gates, states, of_h, of_c


@operator(
    "aclnnLstmBackward",
    Input("input", "what the first layer got, (T, B, I), or (B, T, I) with batch_first"),
    Input("hx", "the first states, and those of the cells: (layers times directions, B, H) both",
          many=True),
    Input("params", "of each layer and direction w_ih, w_hh, and b_ih, b_hh with has_bias",
          many=True),
    Input("dy", "gradient of all states of the last layer; null: 0", optional=True),
    Input("dh", "gradient of the last states of all layers; null: 0", optional=True),
    Input("dc", "gradient of the last states of the cells; null: 0", optional=True),
    Input("i", "of each layer and direction the input gates, (T, B, H)", many=True),
    Input("g", "what they let in", many=True),
    Input("f", "the forget gates", many=True),
    Input("o", "the output gates", many=True),
    Input("h", "the states", many=True),
    Input("c", "the states of the cells", many=True),
    Input("tanhc", "tanh of these", many=True),
    Input("batch_sizes", "how many items each step has, (T,); input, dy and dx_out are rows then, "
          "(T B, ...)", optional=True, as_is=True, c_name="batchSizesOptional"),
    Attribute("has_bias", Kind.BOOL, "whether there are biases"),
    Attribute("num_layers", Kind.INT64, "how many layers there are"),
    Attribute("dropout", Kind.DOUBLE, "of no effect; 0 on Ascend 950"),
    Attribute("train", Kind.BOOL, "of no effect; true on Ascend 950"),
    Attribute("bidirectional", Kind.BOOL, "whether each layer also runs from the end"),
    Attribute("batch_first", Kind.BOOL, "input, dy and dx_out have B before T"),
    Attribute("output_mask", Kind.BOOL_ARRAY, "of no effect: all outputs are computed"),
    Output("dx_out", "gradient of input", "input", "input", format="input"),
    Output("dh_prev_out", "gradient of the first states", "states", "input"),
    Output("dc_prev_out", "gradient of the first states of the cells", "states", "input"),
    Output("dparams_out", "gradients of params", "params", "input", many=True),
    products={**dict.fromkeys((A2, A3), HALF_AND_SINGLE), ASCEND_950: FLOATS},
    formats_by_rank=True,
    checks=(
        rules.present("input", *LISTS[:-1], *GRADIENTS, "dparams_out"),
        *rules.with_status(
            PARAM_NULLPTR,
            rules.value_fits("1 or more", "num_layers", lambda value: value > 0),
            refuses(ShapeError, "lengths of lists follow from attributes", LISTS,
                    of_other_lengths),
        ),
        rules.supported("input"),
        *typed(*UPSTREAM, *GRADIENTS),
        rules.dtype_in("batch_sizes", INT64),
        *typed("hx", "params", "dparams_out", *KEPT),
        rules.rank_is("i[0]", 3),
        rules.when(is_packed, rules.rank_is("input", 2), "with batch_sizes"),
        rules.when(lambda draft: not is_packed(draft), rules.rank_is("input", 3),
                   "without batch_sizes"),
        rules.rank_is("batch_sizes", 1),
        refuses(ShapeError, "shapes follow from i, input and attributes", EVERY, misshapen),
        rules.format_of_rank("input", *UPSTREAM, *GRADIENTS, "batch_sizes", *LISTS[:-1],
                             "dparams_out"),
        *(
            rules.on((ASCEND_950,), rule)
            for rule in (
                rules.requires("null", "batch_sizes", holds=lambda draft: not is_packed(draft),
                               found=lambda _: "a tensor", error=ArgumentError),
                rules.value_fits("false", "bidirectional", lambda value: not value),
                rules.value_fits("0", "dropout", lambda value: value == 0),
                rules.value_fits("true", "train", bool),
                rules.requires("a step", "input", holds=lambda draft: steps(draft) > 0,
                               found=lambda draft: draft.shape("input")),
            )
        ),
        rules.shape_of("hx", into="states", make=lambda draft: draft.shape("hx[0]")),
        rules.succeed_if_empty("hx"),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=at_once(holds=held),
    sample=Sample(
        {"input": (2, 3, 4), "hx": ((1, 3, 2),) * 2, "params": ((8, 4), (8, 2), (8,), (8,)),
         "dy": (2, 3, 2), "dh": (1, 3, 2), "dc": (1, 3, 2),
         **dict.fromkeys(KEPT, ((2, 3, 2),))},
        attributes={"has_bias": True, "num_layers": 1, "bidirectional": False,
                    "batch_first": False, "train": True},
        without=("batch_sizes",), kept=("dy",),
    ),
    area="recurrent networks",
    torch="nn.LSTM",
    source="ops-nn rnn/single_layer_lstm_grad: page aclnnLstmBackward, order of checks in its "
    "source",
)  # fmt: skip
def lstm_backward(
    facts: Facts,
    input: Array,  # noqa: A002  # the operator's own name for it
    hx: Sequence[Array],
    params: Sequence[Array],
    dy: Array | None,
    dh: Array | None,
    dc: Array | None,
    i: Sequence[Array],
    g: Sequence[Array],
    f: Sequence[Array],
    o: Sequence[Array],
    h: Sequence[Array],
    c: Sequence[Array],
    tanhc: Sequence[Array],
    batch_sizes: Array | None = None,
    has_bias: bool = True,
    num_layers: int = 1,
    dropout: float = 0.0,
    train: bool = True,
    bidirectional: bool = False,
    batch_first: bool = False,
    output_mask: Sequence[bool] | None = None,
) -> tuple[Any, ...]:
    """Gradients of an LSTM with respect to its input, its first states and its parameters.

    Each step, from the last to the first, is that of ``thnn_fused_lstm_cell_backward``, with the
    gradient of its state h, which dy, dh and the step behind it give, and that of the state c of
    its cell, which dc and the step behind it give. With the gradients of its four gates::

        gradient of the state before = gates @ w_hh      gradient of the input = gates @ w_ih

    Those of weights are the gates' times what they were multiplied with, added over all steps; a
    layer's gradients of its input, of both directions, go to the layer below. Gates stand in the
    order i, f, g, o. Everything is computed in float32 and rounded once.

    With ``batch_sizes``, which Ascend 950 refuses, the items of step t from batch_sizes[t] on are
    padding: their gradients are 0, and those of the states pass unchanged. Without items, or with
    states that are 0 wide, all gradients are 0; no steps, or an input that is 0 wide, are computed
    as any other, where Atlas A2 and A3 write nothing. ``dropout``, ``train`` and ``output_mask``
    change no result.

    As the gradient of ``torch.nn.LSTM`` without dropout.
    """
    del dropout, train, output_mask
    (times, items, hidden), both = i[0].shape, 2 if bidirectional else 1
    flip = (1, 0, 2) if batch_first and batch_sizes is None else (0, 1, 2)
    live = None
    if batch_sizes is not None:
        sizes = np.asarray(facts.read(batch_sizes, ...))
        live = (np.arange(items) < sizes[:, None])[..., None]

    def given(array: Array | None, shape: Shape) -> AnyArray:
        zeros = np.zeros(shape, facts.dtype)
        return zeros if array is None else np.asarray(facts.read(array, ...), facts.dtype)

    def in_time(array: Array | None, width: int) -> AnyArray:
        whole = (times, items, width)
        lead = whole if flip[0] == 0 else (items, times, width)
        return given(array, lead).reshape(lead).transpose(flip)

    last = [given(each, hx[0].shape) for each in (dh, dc)]
    states = [np.empty(hx[0].shape, facts.dtype) for _ in hx]

    def back(cell: CellPass) -> tuple[AnyArray, AnyArray, AnyArray]:
        lists = zip(KEPT, (i, g, f, o, h, c, tanhc), strict=True)
        kept = {name: facts.read(each[cell.number], ...) for name, each in lists}
        ends = [each[cell.number] for each in last]
        ends += [facts.read(each, cell.number) for each in hx]
        gates, before, *found = backward(kept, cell, ends, live, facts.pause)
        for state, one in zip(states, found, strict=True):
            state[cell.number] = one
        return gates, gates, before

    network = Network(facts, params, h, num_layers, both, has_bias)
    down, grads = network.back(in_time(input, input.shape[-1]), in_time(dy, both * hidden), back)
    return down.transpose(flip).reshape(input.shape), *states, grads
