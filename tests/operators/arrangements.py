"""How tests arrange the tensors of a call in memory, and which dtypes a product takes for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import DTYPES
from npucall.errors import DTypeError
from npucall.products import PRODUCTS

from .faults import Fault, Table
from .gradients import LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.declare.declaration import Operator

GAP = 99
LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "every third row from the second": lambda a: np.repeat(a, 3, axis=0)[1::3],
    "backwards": lambda a: np.flip(np.flip(a).copy()),
    "behind a gap": lambda a: np.pad(a, 1)[(slice(1, -1),) * a.ndim],
}
# One SoC of each product: A2, A3, 950, and those without BF16.
NEWER = ("Ascend910B1", "Ascend910_9391", "Ascend950PR_9589")
ASCEND_910, ASCEND_310P, ASCEND_310B, ASCEND_310 = (
    "Ascend910A",
    "Ascend310P3",
    "Ascend310B1",
    "Ascend310",
)
SOCS = (*NEWER, ASCEND_910, ASCEND_310P, ASCEND_310B, ASCEND_310)
SOC_OF = dict(zip(PRODUCTS, SOCS, strict=True))


def results(answer: Any) -> list[Any]:
    """The outputs of a call, one or several."""
    return list(answer) if isinstance(answer, tuple | list) else [answer]


def assert_layout_does_not_show(
    operator: Operator[..., Any], tensors: Mapping[str, Any], layout: str, **attributes: Any
) -> None:
    """Each tensor alone, and all of them, sent dense and sent with their strides."""
    expected = [r.tobytes() for r in results(LOCAL.run(operator, **tensors, **attributes))]
    arranged = {n: LAYOUTS[layout](a) if a.ndim else a for n, a in tensors.items()}
    calls = [arranged, *({**tensors, name: array} for name, array in arranged.items())]
    for call in calls:
        for keep_layout in (False,) if layout == "backwards" else (False, True):
            client = LOCAL.options(keep_layout=keep_layout)
            found = results(client.run(operator, **call, **attributes))
            assert [r.tobytes() for r in found] == expected


def assert_gaps_survive(
    operator: Operator[..., Any], tensors: Mapping[str, Any], **attributes: Any
) -> None:
    """Outputs that are every second element, in Fortran's order, are written between the gaps."""
    expected = results(LOCAL.run(operator, **tensors, **attributes))
    names = [output.name for output in operator.outputs]
    for keep_layout in (False, True):
        memories = [np.full((*r.shape[::-1], 2), GAP, r.dtype) for r in expected]
        outputs = {n: m.T[0, ...] for n, m in zip(names, memories, strict=True)}
        client = LOCAL.options(outputs=outputs, keep_layout=keep_layout)
        client.run(operator, **tensors, **attributes)
        for name, memory, value in zip(names, memories, expected, strict=True):
            np.testing.assert_array_equal(outputs[name], value)
            assert (memory[..., 1] == GAP).all()


def dtypes_taken(table: Table, names: tuple[str, ...], soc: str) -> set[str]:
    """The dtypes that a product takes for all of these tensors."""
    taken = set()
    for dtype in DTYPES:
        fault = Fault({name: {"dtype": dtype} for name in names}, DTypeError, ())
        answer = table.refusal(fault, soc=soc)
        assert answer is None or answer[:2] == (DTypeError, 161002)
        if answer is None:
            taken.add(dtype.name)
    return taken
