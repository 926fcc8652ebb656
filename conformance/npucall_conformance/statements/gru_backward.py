"""aclnnGRUBackward [src:gru-backward]."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT64
from npucall.errors import ArgumentError, ShapeError
from npucall.tensors import Format
from npucall_conformance.statements import _recurrent as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.domains import integers, normal, uniform
from npucall_conformance.stating.parts import In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on

GATES = ("r", "z", "n", "h_n", "h")
DOMAINS = (*[uniform(0.05, 0.95)] * 2, uniform(-0.9, 0.9), normal(), uniform(-0.9, 0.9))
OUTPUTS = ("dx_out", "dh_prev_out", "dparams_out[0]", "dparams_out[1]")


def step(k: dict[str, Any], minus: int, grads: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    (d,), r, z, n = grads, k["r"], k["z"], k["n"]
    dn = d * (1 - z) * (1 + minus * n * n)
    dz = d * (k["h0"] + minus * n) * z * (1 - z)
    dr = dn * k["h_n"] * r * (1 - r)
    return [dr, dz, dn], [dr, dz, dn * r], [d * z]


GRU = shared.Recurrence(
    3, GATES, ("dh",), lambda k: [k["hx"]], ("h",), step, lambda states: {"hx": states}
)
GRU_BACKWARD = Statement(
    "aclnnGRUBackward",
    prototype=(
        "const aclTensor* input, const aclTensorList* params, const aclTensor* hx, "
        "const aclTensor* dy, const aclTensor* dh, const aclTensorList* r, "
        "const aclTensorList* z, const aclTensorList* n, const aclTensorList* h_n, "
        "const aclTensorList* h, const aclTensor* batchSizes, bool hasBias, int64_t numLayers, "
        "bool bidirectional, bool batchFirst, aclTensor* dxOut, aclTensor* dhPrevOut, "
        "aclTensorList* dparamsOut"
    ),
    takes=on(("Ascend910B", "Ascend910_93"), FLOAT, FLOAT16),
    legacy=(),
    defaults=shared.DEFAULTS,
    inputs=(
        In("input", normal()),
        *shared.members("params", shared.PARAMS, normal(0.5), 2),
        *(In(name, normal()) for name in ("hx", "dy", "dh")),
        *GRU.inputs(DOMAINS),
        In("batch_sizes", integers(1, 2), dtypes=(INT64,), optional=True, refused=True),
    ),
    outputs=(
        Out("dx_out", "input", "input"),
        Out("dh_prev_out", "hx", "input"),
        *shared.of_parameters(),
    ),
    loops=GRU.loops,
    arrays=GRU.arrays,
    shapes=GRU.shapes,
    kernel=dtype_of("input"),
    dtypes=(FLOAT, FLOAT16),
    sprinkled=False,
    attributes=shared.ATTRIBUTES,
    npu="torch_npu has its own operator for GRUs",
    base_shapes=((3, 2, 4), (1, 3, 2), (5, 1, 1)),
    layout_shape=(2, 3, 4),
    rank_shapes=((2, 3, 1),),
    empty_shapes=(),
    sized=lambda count: (3, max(count // 12, 1), 4),
    chunked=(3, 110_000, 4),
    large_shape=(3, 4_001, 9),
    large=(
        GRU.more("many-items", (2, 25_013, 2), 1, 1, bias=True),
        Setup("many-steps", (301, 83, 4)),
    ),
    edges=(
        GRU.more("bias", (3, 2, 2), 1, 1, bias=True),
        GRU.more("layers", (3, 2, 2), 2, 1, bias=False, batch_first=True),
        GRU.more("ways", (3, 2, 2), 1, 2, bias=True),
        GRU.more("layers-and-ways", (2, 2, 2), 2, 2, bias=True, setup={"telling": True}),
        Setup("ends", (1, 1, 2), values={"r[0]": [[[0.0, 1]]], "z[0]": [[[1.0, 0]]],
                                         "n[0]": [[[1.0, -1]]]}),
    ),
    defaulted=GRU.more("", (3, 2, 2), 1, 1, bias=True),
    invalid=(
        *defects.nulls("input", "hx", "params", "dy", "dh", *GATES, *OUTPUTS[:2], "dparams_out"),
        *(row for names in (("input",), ("hx",), ("dy",), ("dh",), OUTPUTS[:1], OUTPUTS[1:2],
                            ("params[0]", "params[1]"), *((f"{gate}[0]",) for gate in GATES),
                            OUTPUTS[2:])
          for row in (*defects.dtypes(*names, found=DOUBLE),
                      *(defects.dtypes(*names, found=FLOAT16) if names != ("input",) else ()),
                      *defects.formats(*names, found=Format.NCHW))),
        Invalid("batch-sizes", {"batch_sizes": {"shape": (2,)}}, ("batch_sizes",), ArgumentError,
                base=Setup(shapes={"batch_sizes": (2,)}), alone=True),
        *defects.shapes("input", (6, 5)),
        *defects.shapes("input", (0, 3, 5), blames=("input", "hx")),
        *defects.shapes("hx", (1, 3, 0), blames=("input", "hx")),
        *defects.values("num_layers", 0, -1),
        Invalid("two-layers", {"num_layers": 2}, ("hx",), ShapeError),
        *defects.shapes("hx", (2, 3, 4), (1, 2, 4)),
        *defects.shapes("dy", (2, 3, 5), (6, 4)),
        *defects.shapes("dh", (2, 3, 4), (3, 4)),
        *(row for gate in GATES
          for row in (Invalid(f"no-{gate}", {gate: ()}, (gate,), ShapeError),
                      *defects.shapes(f"{gate}[0]", (3, 2, 4), (6, 4)))),
        Invalid("no-params", {"params": ()}, ("params",), ShapeError),
        *defects.shapes("params[0]", (12, 4), (5, 12)),
        *defects.shapes("params[1]", (12, 5)),
        *defects.shapes("dx_out", (3, 2, 5)),
        *defects.shapes("dh_prev_out", (3, 4)),
        *defects.shapes("dparams_out[0]", (12, 4)),
        *defects.shapes("dparams_out[1]", (4, 12)),
    ),
)  # fmt: skip
