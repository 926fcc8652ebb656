"""aclnnLstmBackward [src:lstm-backward]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32, INT64
from npucall.errors import PARAM_NULLPTR, ArgumentError, AttributeValueError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements import _recurrent as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import integers, normal, uniform
from npucall_conformance.stating.parts import In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import on

KEPT = ("i", "g", "f", "o", "h", "c", "tanhc")
OPEN, AROUND = uniform(0.05, 0.95), uniform(-0.9, 0.9)
DOMAINS = (OPEN, AROUND, OPEN, OPEN, AROUND, normal(), AROUND)
UPSTREAM = ("dy", "dh", "dc")
STATES = ("dx_out", "dh_prev_out", "dc_prev_out")
PARAMS = ("params[0]", "params[1]", "dparams_out[0]", "dparams_out[1]")
OLDER = ("Ascend910B", "Ascend910_93")


def step(k: dict[str, Any], minus: int, grads: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    (dh, dc), i, f, g, o, t = grads, *(k[name] for name in ("i", "f", "g", "o", "tanhc"))
    c = dh * o * (1 + minus * t * t) + dc
    gates = [
        c * g * i * (1 - i), c * k["c0"] * f * (1 - f), c * i * (1 + minus * g * g),
        dh * t * o * (1 - o),
    ]  # fmt: skip
    return gates, gates, [0.0, c * f]


LSTM = shared.Recurrence(
    4, KEPT, ("dh", "dc"), lambda k: list(k["hx"]), ("h", "c"), step,
    lambda states: dict.fromkeys(("hx[0]", "hx[1]"), states),
)  # fmt: skip


def several(note: str, base: Shape, sizes: list[int], layers: int, both: int) -> Setup:
    """A call that says how many items each step has."""
    time, items, hidden = base
    rows = {"input": (time * items, hidden + 1), "dy": (time * items, both * hidden)}
    fields = {
        "shapes": rows,
        "values": {"batch_sizes": np.array(sizes)},
        "products": OLDER,
        "telling": both == 2,
    }
    return LSTM.more(note, base, layers, both, bias=True, output_mask=None, setup=fields)


PACKED = several("", (3, 2, 4), [2, 1, 1], 1, 1)
BOTH = LSTM.more("", (3, 2, 4), 1, 2, bias=False)
ONE = Setup(attributes={"batch_first": False})
OUTPUTS = (
    Out("dx_out", "input", "input"),
    Out("dh_prev_out", "hx[0]", "input"),
    Out("dc_prev_out", "hx[1]", "input"),
    *shared.of_parameters(),
)


def faint(k: Arguments) -> tuple[str, ...]:
    """Without a gradient from above there is none."""
    if any(k.values.get(name) is not None for name in UPSTREAM):
        return ()
    return tuple(each.name for each in OUTPUTS)


LSTM_BACKWARD = Statement(
    "aclnnLstmBackward",
    prototype=(
        "const aclTensor* input, const aclTensorList* hx, const aclTensorList* params, "
        "const aclTensor* dy, const aclTensor* dh, const aclTensor* dc, const aclTensorList* i, "
        "const aclTensorList* g, const aclTensorList* f, const aclTensorList* o, "
        "const aclTensorList* h, const aclTensorList* c, const aclTensorList* tanhc, "
        "const aclTensor* batchSizesOptional, bool hasBias, int64_t numLayers, double dropout, "
        "bool train, bool bidirectional, bool batchFirst, const aclBoolArray* outputMask, "
        "aclTensor* dxOut, aclTensor* dhPrevOut, aclTensor* dcPrevOut, aclTensorList* dparamsOut"
    ),
    takes={**on(OLDER, FLOAT, FLOAT16), **on(ONLY_950, *FLOATS)},
    legacy=(),
    formats_by_rank=True,
    defaults={**shared.DEFAULTS, "dropout": 0.0, "train": True, "output_mask": None},
    inputs=(
        In("input", normal()),
        *(In(f"hx[{place}]", normal()) for place in (0, 1)),
        *shared.members("params", shared.PARAMS, normal(0.5), 2),
        *(In(name, normal(), optional=True) for name in UPSTREAM),
        *LSTM.inputs(DOMAINS),
        In("batch_sizes", integers(1, 2), dtypes=(INT64,), optional=True, refused=True, own=True),
    ),
    outputs=OUTPUTS,
    faint=faint,
    loops=LSTM.loops,
    arrays=LSTM.arrays,
    shapes=LSTM.shapes,
    kernel=dtype_of("input"),
    dtypes=FLOATS,
    sprinkled=False,
    attributes={**shared.ATTRIBUTES, "dropout": (0.0,), "train": (True,),
                "output_mask": (None, [True, True, True, False])},
    npu="torch_npu has its own operator for LSTMs",
    base_shapes=((3, 2, 4), (1, 3, 2), (5, 1, 1)),
    layout_shape=(2, 3, 4),
    rank_shapes=((2, 3, 1),),
    empty_shapes=((2, 0, 3), (2, 3, 0)),
    empty=(
        Setup("no-steps", (0, 2, 3), products=OLDER),
        Setup("no-width", (3, 2, 2), {"input": (3, 2, 0), "params[0]": (8, 0)},
              attributes={"batch_first": False}),
    ),
    sized=lambda count: (3, max(count // 12, 1), 4),
    chunked=(3, 110_000, 4),
    large_shape=(3, 4_001, 9),
    large=(
        LSTM.more("many-items", (2, 25_013, 2), 1, 1, bias=True),
        Setup("many-steps", (301, 83, 4)),
    ),
    edges=(
        LSTM.more("bias", (3, 2, 2), 1, 1, bias=True),
        LSTM.more("layers", (3, 2, 2), 2, 1, bias=False, batch_first=True, output_mask=None,
                  setup={"telling": True}),
        LSTM.more("ways", (3, 2, 2), 1, 2, bias=True, setup={"products": OLDER}),
        LSTM.more("layers-and-ways", (2, 2, 2), 2, 2, bias=True, setup={"products": OLDER}),
        several("lengths", (4, 3, 2), [3, 3, 1, 0], 1, 1),
        several("lengths-and-ways", (3, 3, 2), [3, 2, 1], 2, 2),
        LSTM.more("dropped", (3, 2, 2), 2, 1, bias=False, dropout=0.5, train=False,
                  setup={"products": OLDER}),
        Setup("ends", (1, 1, 2), values={"i[0]": [[[0.0, 1]]], "f[0]": [[[1.0, 0]]],
                                         "o[0]": [[[1.0, 0]]], "g[0]": [[[1.0, -1]]],
                                         "tanhc[0]": [[[1.0, -1]]]}),
    ),
    defaulted=LSTM.more("", (3, 2, 2), 1, 1, bias=True),
    invalid=(
        *defects.nulls("input", "hx", "params", *KEPT, *STATES, "dparams_out"),
        *(Invalid(f"num_layers-{value}", {"num_layers": value}, ("num_layers",),
                  AttributeValueError, PARAM_NULLPTR) for value in (0, -1)),
        *(Invalid(f"no-{name}", {name: ()}, (name,), ShapeError, PARAM_NULLPTR)
          for name in ("hx", *KEPT, "params", "dparams_out")),
        *defects.dtypes("input", found=DOUBLE),
        *(row for name in (*UPSTREAM, *STATES)
          for found in (DOUBLE, FLOAT16) for row in defects.dtypes(name, found=found)),
        *defects.dtypes("batch_sizes", found=INT32, base=PACKED, alone=True, products=OLDER),
        *(row for names in (("hx[0]", "hx[1]"), PARAMS[:2], PARAMS[2:],
                            *((f"{name}[0]",) for name in KEPT))
          for found in (DOUBLE, FLOAT16) for row in defects.dtypes(*names, found=found)),
        *defects.shapes("i[0]", (6, 4)),
        *defects.shapes("input", (6, 5)),
        *defects.shapes("input", (3, 2, 5), base=PACKED, alone=True, products=OLDER),
        *defects.shapes("batch_sizes", (3, 1), base=PACKED, alone=True, products=OLDER),
        *defects.shapes("input", (2, 2, 5), base=ONE),
        *(row for place in (0, 1)
          for row in defects.shapes(f"hx[{place}]", (2, 3, 4), (1, 2, 4), (3, 4))),
        *defects.shapes("dx_out", (3, 2, 5)),
        *(row for name in STATES[1:] for row in defects.shapes(name, (3, 4))),
        *defects.shapes("dy", (2, 3, 5), (6, 4)),
        *(row for name in UPSTREAM[1:] for row in defects.shapes(name, (2, 3, 4), (3, 4))),
        *defects.shapes("params[0]", (16, 4), (5, 16)),
        *defects.shapes("dparams_out[0]", (16, 4)),
        *defects.shapes("params[1]", (16, 5)),
        *defects.shapes("dparams_out[1]", (4, 16)),
        *(row for name in KEPT[1:] for row in defects.shapes(f"{name}[0]", (3, 2, 4), (6, 4))),
        *defects.formats("input", *UPSTREAM, *STATES, found=Format.NCHW),
        *defects.formats("hx[0]", "hx[1]", found=Format.NCHW),
        *defects.formats(*PARAMS[:2], found=Format.NCL),
        *defects.formats(*(f"{name}[0]" for name in KEPT), found=Format.NCHW),
        *defects.formats(*PARAMS[2:], found=Format.NCL),
        Invalid("batch-sizes", {"batch_sizes": {"shape": (3,)}}, ("batch_sizes",), ArgumentError,
                base=PACKED, alone=True, products=ONLY_950),
        *defects.values("bidirectional", *(True,), base=BOTH, alone=True, products=ONLY_950),
        *defects.values("dropout", 0.5, -0.5, products=ONLY_950),
        *defects.values("train", *(False,), products=ONLY_950),
        *defects.shapes("input", (0, 3, 5), base=Setup(base=(0, 3, 4)), alone=True,
                        products=ONLY_950),
    ),
)  # fmt: skip
