"""What simple activations have in common: floats, on newer products and by source on older ones."""

from __future__ import annotations

from typing import Any

from npucall.declare import Input, Output
from npucall.dtypes import FLOATS, HALF_AND_SINGLE
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950

NEWER: dict[str, Any] = {"products": dict.fromkeys((A2, A3, ASCEND_950), FLOATS)}
ALL: dict[str, Any] = {**NEWER, "legacy": dict.fromkeys((ASCEND_910, ASCEND_310P), HALF_AND_SINGLE)}
SELF = Input("self", "any numbers")
OUT = Output("out", "the activations", shape="self", dtype="self")
UPSTREAM = Input("grad_output", "gradient of the loss with respect to the forward result")
GONE_IN = Input("self", "what went into the forward operator")
BOTH = ("grad_output", "self")
