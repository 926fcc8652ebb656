"""Labels of classes: what the rules cannot check of them, since they do not see values."""

from __future__ import annotations

import numpy as np

from npucall.dtypes import AnyArray
from npucall.errors import PARAM_INVALID, ArgumentError


def check_labels(name: str, labels: AnyArray, classes: int) -> None:
    """Raises ArgumentError, blaming ``name``, for a label that is not 0 to classes - 1."""
    strangers = labels[(labels < 0) | (labels >= classes)]
    if np.size(strangers):
        raise ArgumentError(
            f"{name}: expected labels from 0 to {classes - 1}, found {strangers[0]}",
            parameter=name,
            aclnn_status=PARAM_INVALID,
        )
