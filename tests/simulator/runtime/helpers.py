"""What many tests start from."""

from __future__ import annotations

from pathlib import Path
from threading import Thread, get_native_id
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .raw import Cann, Plan


def planned_mul(cann: Cann) -> tuple[Plan, list[int]]:
    """A plan that needs a workspace, and its descriptors."""
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(3)]
    return cann.planned("aclnnMul", *tensors), tensors


def planned_logit(cann: Cann) -> Plan:
    """A plan of the single-kernel family."""
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(2)]
    return cann.planned("aclnnLogit", tensors[0], 0.1, tensors[1])


def planned_relu(cann: Cann) -> tuple[int, list[int]]:
    """An executor that needs no workspace, and its descriptors."""
    *_, source, target = cann.relu()
    return cann.planned("aclnnRelu", source, target).executor or 0, [source, target]


def relu_once(cann: Cann, size: int = 8) -> None:
    """Both phases, on descriptors and memory of their own."""
    *_, source, target = cann.relu(size)
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))


def in_thread(run: Callable[[], object]) -> object:
    """What ``run`` answers in a new thread."""
    answers: list[object] = []
    thread = Thread(target=lambda: answers.append(run()))
    thread.start()
    thread.join()
    return answers[0]


def native_end(run: Callable[[], object]) -> None:
    """Runs this in a new thread, and returns when the system's thread has gone."""
    numbers: list[int] = []

    def work() -> None:
        numbers.append(get_native_id())
        run()

    in_thread(work)
    while Path(f"/proc/self/task/{numbers[0]}").exists():  # join does not wait for that
        pass
