"""What is too large for its dtype is infinite, as IEEE has it: INFNAN, asked for in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .asked import declared

if TYPE_CHECKING:
    from .opened import Opened


def test_a_number_that_overflows_is_infinite(device: Opened) -> None:
    tensors = {
        "grad_output": np.array([2, 2, 2], np.float16),
        "self": np.zeros(3, np.float16),
        "target": np.array([60000, -60000, 1], np.float16),
    }
    asked = declared(device.device, "aclnnKlDivBackward", reduction=0, **tensors)
    (answer,) = device.answers(asked)
    assert np.frombuffer(answer, np.float16).tolist() == [-np.inf, np.inf, -2]
