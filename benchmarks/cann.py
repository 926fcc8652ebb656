"""``make bench-cann``: what our code costs round CANN's, on the simulator, whose kernels do nothing.

An NPU's own times are not measured: nothing of a simulator's speed says anything about hardware.

**Host time of a call.** Every C function that the device has bound is exchanged for one that looks
at the clock, calls it and looks again (``cann_clock.cpp``), so time in C is known to the call. What
is left of ``device.run``, from entry to return, is ours: Python, ctypes and its taking the
interpreter lock again, the two changes of thread. Two looks at the clock a call are in it too.
``empty`` is the cross-check: the same calls while every C function returns 0 at once; it leaves out
what waiting does to caches. The table of steps cuts the same time where methods begin and end
(``cann_steps.py``).

**Lanes.** Eight calls come 40 ms apart to one, two and four lanes, with a simulated bandwidth and
time of kernels; a trace says what ran when. Each lane of the simulator copies and computes at full
speed, whatever the others do: the figure says that lanes keep out of each other's way on the host,
not how much faster hardware gets.

**Server.** Calls to a server process on a simulated NPU and on the CPU device, in turn.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cann_boundary import Boundary
from cann_device import Simulator, opened, runtime_library, use_simulator
from cann_picture import picture_of
from cann_service import compare
from cann_steps import STEPS, Steps, medians
from cann_timeline import event_clock, overlap_of, spans_of, trace_of
from rich.console import Console
from rich.table import Table

