"""All faults of the trial."""

from __future__ import annotations

from . import (
    checks,
    places,
    says,
    serves,
    values_classes,
    values_dtypes,
    values_elementwise,
    values_reduced,
)

FAULTS = (
    *values_elementwise.FAULTS,
    *values_dtypes.FAULTS,
    *values_reduced.FAULTS,
    *values_classes.FAULTS,
    *places.FAULTS,
    *checks.FAULTS,
    *says.FAULTS,
    *serves.FAULTS,
)
BY_ID = {fault.id: fault for fault in FAULTS}
