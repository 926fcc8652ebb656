"""Exceptions of torch: the NPU's own status, or a refusal by torch before the NPU was called."""

from __future__ import annotations

import re

from npucall.errors import (
    PARAM_INVALID,
    PARAM_NULLPTR,
    ArgumentError,
    DeviceError,
    DeviceLostError,
    NpucallError,
    OutOfMemoryError,
)
from npucall_conformance.running.not_judged import NotJudgedError

_STATUS = re.compile(r"error code is (\d{6})")
"""In torch_npu's texts: ``call aclnnSilu failed, error code is 161002``."""
_LOST = range(507000, 507100)
"""Statuses of the runtime after which a device answers nothing more in this process."""
_PASSING = (507005, 507006, 507023, 507046, 507047)
"""Those of these statuses after which the device is still usable."""


def error_of(raised: Exception, *, valid: bool) -> NpucallError:
    """The error that a server would have answered.

    Raises NotJudgedError if torch itself refused the call; ``valid``: it should not have done so.
    """
    text = str(raised)
    found = _STATUS.search(text)
    if type(raised).__name__ == "OutOfMemoryError":
        return OutOfMemoryError(text)
    if found is None:
        first = text.strip().partition("\n")[0] or type(raised).__name__
        said = f": {first}" if valid else ""
        raise NotJudgedError(f"torch refuses it before the NPU is asked{said}", lowers=valid)
    status = int(found[1])
    if status in (PARAM_NULLPTR, PARAM_INVALID):
        return ArgumentError(text, aclnn_status=status)
    if status in _LOST and status not in _PASSING:
        return DeviceLostError(text, aclnn_status=status)
    return DeviceError(text, aclnn_status=status)
