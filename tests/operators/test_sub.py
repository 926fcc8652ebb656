"""aclnnSub: prototype, values against torch; what it shares with aclnnAdd is tried there."""

from __future__ import annotations

import numpy as np

from npucall.operators.sub import sub
from npucall.products import ASCEND_310B, ASCEND_910

from .arithmetic import (
    DIFFERENCES,
    NEWER,
    OLDER,
    PAIR,
    PROTOTYPE,
    STRETCHED,
    scaled,
    summands,
    torch_of,
)
from .gradients import FLOATS
from .subject import WITH_BF16, Cells, Subject, every

SUBJECT = Subject(
    scaled(sub),
    PROTOTYPE,
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310B),
    newer=NEWER,
    older=OLDER,
    typed=(*PAIR, "out"),
    attributes={"alpha": 1.0},
    cells=Cells("alpha self other", DIFFERENCES),
    torch=torch_of("sub"),
    calls=every(*STRETCHED, alpha=(1.0, -0.75)),
    noise=summands,
    casts=(*FLOATS, np.float64, np.complex64),
    stretches=True,
)
