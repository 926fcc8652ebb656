"""What an LSTM cell does behind its two matrix products, and its gradient.

Gates stand one behind the other along the second dimension of (B, 4H): i, f, g, o.
"""

from collections.abc import Sequence

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.declare.prepare import Prepared
from npucall.dtypes import DOUBLE, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import PARAM_NULLPTR, ArgumentError
from npucall.operators._norms import no_zero
from npucall.operators._numerics import sigmoid
from npucall.products import A2, A3
from npucall.tensors import Format, Shape

GATES, CELL = 4, 2
GIVEN = ("grad_hy", "grad_c", "cx", "cy", "storage")
GRADIENTS = ("grad_gates_out", "grad_cx_out", "grad_bias_out")


def shapes_of(state: str) -> tuple[rules.Rule, ...]:
    """Finds the shapes of what there is of all gates, ``gates`` and ``of_gates``."""

    def gates(draft: Draft) -> Shape:
        items, hidden = draft.shape(state)
        return (items, GATES * hidden)

    return (
        rules.shape_of(state, into="gates", make=gates),
        rules.shape_of(state, into="of_gates", make=lambda draft: gates(draft)[1:]),
    )


def gates_are(*names: str) -> tuple[rules.Rule, ...]:
    """Each has the four gates of the state."""
    return tuple(rules.same_shape(name, "gates", "(B, 4H)") for name in names)


def has_bias(draft: Draft) -> bool:
    """Whether the gradient of the biases is asked for."""
    return bool(draft.attribute("has_bias"))


def without_bias(call: Prepared) -> float | None:
    """The gradient of biases that are not there."""
    return None if call.attributes["has_bias"] else 0.0


def _places(index: tuple[slice, ...], hidden: int) -> list[tuple[slice, ...]]:
    """Where the gates of a block of the state stand."""
    items, some = index
    starts = range(some.start, GATES * hidden, hidden)
    return [(items, slice(start, start + some.stop - some.start)) for start in starts]


def _blocks(facts: Facts, state: str) -> Sequence[tuple[slice, ...]]:
    return cut(facts.shapes[state], BLOCK // GATES)


def cell_back(
    gates: Sequence[AnyArray], before: AnyArray, tanh: AnyArray, of_hy: AnyArray, of_cy: AnyArray
) -> tuple[AnyArray, ...]:
    """The gradient of the state of the cell before, then those of the gates i, f, g, o.

    ``tanh`` is that of the state of the cell; the last two are the gradients of both states.
    """
    i, f, g, o = gates
    of_c = of_hy * o * (1 - tanh * tanh) + of_cy
    return (
        of_c * f,
        of_c * g * (i * (1 - i)),
        of_c * before * (f * (1 - f)),
        of_c * i * (1 - g * g),
        of_hy * tanh * (o * (1 - o)),
    )


@operator(
    "aclnnThnnFusedLstmCell",
    Input("input_gates", "the gates of the input, (B, 4H): input times its weights"),
    Input("hidden_gates", "those of the hidden state"),
    Input("cx", "the state of the cell before, (B, H)"),
    Input("input_bias", "added to the gates, (4H,)", optional=True, c_name="inputBiasOptional"),
    Input("hidden_bias", "as the other one", optional=True, c_name="hiddenBiasOptional"),
    Output("hy_out", "the hidden state", "cx", "cx"),
    Output("cy_out", "the state of the cell", "cx", "cx"),
    Output("storage_out", "the activated gates", "input_gates", "cx"),
    products=dict.fromkeys((A2, A3), HALF_AND_SINGLE),
    checks=(
        rules.present("input_gates", "hidden_gates", "cx"),
        *rules.with_status(
            PARAM_NULLPTR,
            rules.requires(
                "both biases, or none",
                "hidden_bias",
                "input_bias",
                holds=lambda draft: draft.absent("hidden_bias") == draft.absent("input_bias"),
                found=lambda _: "one",
                error=ArgumentError,
            ),
        ),
        rules.present("hy_out", "cy_out", "storage_out"),
        rules.succeed_if_empty("input_gates"),
        *(rules.rank_is(name, 2) for name in ("input_gates", "hidden_gates", "cx")),
        *(rules.rank_is(name, 1) for name in ("input_bias", "hidden_bias")),
        *(rules.rank_is(name, 2) for name in ("hy_out", "cy_out", "storage_out")),
        *shapes_of("cx"),
        *gates_are("input_gates", "hidden_gates"),
        *(
            rules.same_shape(name, "of_gates", "one for each gate")
            for name in ("input_bias", "hidden_bias")
        ),
        *(rules.same_shape(name, "cx") for name in ("hy_out", "cy_out")),
        *gates_are("storage_out"),
        rules.supported("input_gates"),
        rules.same_dtype(
            "hidden_gates", "cx", "input_bias", "hidden_bias", "hy_out", "cy_out", "storage_out",
            as_="input_gates",
        ),
    ),
    kernel_dtype=rules.dtype_of("input_gates"),
    over=at_once(),
    sample=Sample(
        {
            **dict.fromkeys(("input_gates", "hidden_gates"), (2, 12)),
            **dict.fromkeys(("input_bias", "hidden_bias"), (12,)),
        }
    ),
    area="recurrent networks",
    torch="nn.LSTMCell",
    source="ops-nn rnn/thnn_fused_lstm_cell: page aclnnThnnFusedLstmCell, its checks",
)  # fmt: skip
def thnn_fused_lstm_cell(
    facts: Facts,
    input_gates: Array,
    hidden_gates: Array,
    cx: Array,
    input_bias: Array | None = None,
    hidden_bias: Array | None = None,
) -> tuple[AnyArray, ...]:
    """The step of an LSTM cell behind its matrix products.

    With the sum of both gates and both biases cut into i, f, g, o along its second dimension::

        i, f, o = sigmoid(i), sigmoid(f), sigmoid(o)        g = tanh(g)
        cy = f * cx + i * g
        hy = o * tanh(cy)

    ``storage_out`` has the activated gates, for the gradient. Everything is computed in float32 and
    rounded once. Products other than Atlas A2 and A3 do not have the operator.

    As what ``torch.nn.LSTMCell`` does behind its two products.
    """
    hidden = cx.shape[1]
    hy, cy = (facts.output(name, cx.shape) for name in ("hy_out", "cy_out"))
    storage = facts.output("storage_out", input_gates.shape)
    biases = [bias for bias in (input_bias, hidden_bias) if bias is not None]

    def compute(index: tuple[slice, ...]) -> None:
        gates = []
        for number, place in enumerate(_places(index, hidden)):
            gate = facts.read(input_gates, place) + facts.read(hidden_gates, place)
            if biases:
                gate += sum(facts.read(bias, place[1:]) for bias in biases)
            gates.append(np.tanh(gate) if number == CELL else sigmoid(gate))
            storage[place] = gates[-1]
        i, f, g, o = gates
        state = f * facts.read(cx, index) + i * g
        cy[index] = state
        hy[index] = o * np.tanh(state)

    facts.each(_blocks(facts, "cx"), compute)
    return hy, cy, storage


@operator(
    "aclnnThnnFusedLstmCellBackward",
    Input("grad_hy", "gradient of the hidden state, (B, H)", c_name="gradHyOptional"),
    Input("grad_c", "gradient of the state of the cell", c_name="gradCOptional"),
    Input("cx", "the state of the cell before"),
    Input("cy", "the state of the cell"),
    Input("storage", "the activated gates, (B, 4H)"),
    Attribute("has_bias", Kind.BOOL, "whether the gradient of the biases is computed"),
    Output(GRADIENTS[0], "of the gates before their activation", "storage", "storage"),
    Output(GRADIENTS[1], "of the state of the cell before", "cx", "cx"),
    Output(GRADIENTS[2], "of each bias, (4H,)", "of_gates", "cx"),
    products=dict.fromkeys((A2, A3), HALF_AND_SINGLE),
    checks=(
        rules.present(*GIVEN, "grad_gates_out", "grad_cx_out", "grad_bias_out"),
        rules.supported("grad_hy"),
        rules.same_dtype(
            *GIVEN[1:], "grad_gates_out", "grad_bias_out", "grad_cx_out", as_="grad_hy"
        ),
        rules.rank_is("grad_hy", 2),
        *no_zero("grad_hy"),
        *shapes_of("grad_hy"),
        *(rules.same_shape(name, "grad_hy") for name in ("grad_c", "cx", "cy")),
        *gates_are("storage", "grad_gates_out"),
        rules.same_shape("grad_cx_out", "grad_hy"),
        rules.when(
            has_bias,
            rules.same_shape("grad_bias_out", "of_gates", "one for each gate"),
            "with has_bias",
        ),
        *(
            rules.format_in(name, Format.ND)
            for name in (*GIVEN, "grad_gates_out", "grad_bias_out", "grad_cx_out")
        ),
    ),
    kernel_dtype=rules.dtype_of("grad_hy"),
    over=at_once(holds=lambda facts, _: facts.count("of_gates") * DOUBLE.itemsize),
    unwritten={"grad_bias_out": without_bias},
    sample=Sample({"storage": (2, 12)}, attributes={"has_bias": True}),
    area="recurrent networks",
    torch="nn.LSTMCell",
    source="ops-nn rnn/thnn_fused_lstm_cell_grad: page aclnnThnnFusedLstmCellBackward, its checks",
)  # fmt: skip
def thnn_fused_lstm_cell_backward(
    facts: Facts,
    grad_hy: Array,
    grad_c: Array,
    cx: Array,
    cy: Array,
    storage: Array,
    has_bias: bool = True,
) -> tuple[AnyArray, ...]:
    """Gradients of ``thnn_fused_lstm_cell`` with respect to its gates, its state and its biases.

    With i, f, g, o the quarters of ``storage`` along its second dimension and t = tanh(cy)::

        c = grad_hy * o * (1 - t^2) + grad_c
        grad_gates = c * g * i * (1 - i), c * cx * f * (1 - f), c * i * (1 - g^2),
                     grad_hy * t * o * (1 - o)
        grad_cx    = c * f
        grad_bias  = sum of grad_gates over the first dimension

    Everything is computed in float32 and rounded once, the sums in float64. ``grad_bias_out`` must
    be given without ``has_bias`` too; it is 0 then, and a device leaves it as it was. Tensors
    without elements are refused.

    As the gradient of ``torch.nn.LSTMCell`` behind its two products.
    """
    hidden = cx.shape[1]
    gates = facts.output(GRADIENTS[0], storage.shape)
    of_cx = facts.output(GRADIENTS[1], cx.shape)
    sums = np.zeros(GATES * hidden, DOUBLE.numpy)

    def compute(index: tuple[slice, ...]) -> list[AnyArray]:
        places = _places(index, hidden)
        stored = [facts.read(storage, place) for place in places]
        state = np.tanh(facts.read(cy, index))
        of_hy, of_c, before = (facts.read(each, index) for each in (grad_hy, grad_c, cx))
        of_cx[index], *found = cell_back(stored, before, state, of_hy, of_c)
        for place, each in zip(places, found, strict=True):
            gates[place] = each
        return [each.sum(0, dtype=DOUBLE.numpy) for each in found] if has_bias else []

    def add(index: tuple[slice, ...], parts: list[AnyArray]) -> None:
        for place, part in zip(_places(index, hidden), parts, strict=False):
            sums[place[1]] += part

    facts.each(_blocks(facts, "cx"), compute, add)
    return gates, of_cx, sums
