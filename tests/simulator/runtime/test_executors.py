"""Executors of the phase-one cache that every thread has, and those that never ran."""

from collections.abc import Callable

import pytest

from .helpers import in_thread, native_end
from .raw import FLOATS, Cann


def hits(cann: Cann) -> int:
    """Phase ones answered from a cache so far."""
    found: int = cann.counters()["cache_hits"]
    return found


def test_the_same_call_again_is_answered_from_the_cache_once_it_ran(cann: Cann) -> None:
    *_, source, target = cann.relu()
    cann.planned("aclnnRelu", source, target)
    cann.relu_once()
    assert hits(cann) == 0
    cann.relu_once()
    assert hits(cann) == 1


def one_tensor_twice(cann: Cann) -> None:
    (tensor,) = cann.tensors(1)
    cann.planned("aclnnRelu", tensor, tensor)


def deterministic(cann: Cann) -> None:
    cann.ok(cann.aclrtSetSysParamOpt(0, 1))
    cann.relu_once()


def another_thread(cann: Cann) -> None:
    in_thread(lambda: (cann.ok(cann.aclrtSetDevice(0)), cann.relu_once()))


@pytest.mark.parametrize(
    "work", [lambda cann: cann.relu_once(9), one_tensor_twice, deterministic, another_thread],
    ids=["shape", "one descriptor twice", "deterministic", "thread"],
)  # fmt: skip
def test_another_call_or_thread_is_another_entry(cann: Cann, work: Callable[[Cann], None]) -> None:
    cann.relu_once()
    work(cann)
    assert hits(cann) == 0


def test_the_cache_can_be_switched_off_and_limited(
    cann: Cann, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("DISABLE_L2_CACHE", "1")
        cann.relu_once()
        cann.relu_once()
        assert cann.aclDestroyAclOpExecutor(cann.planned_relu()[0]) == 0
        assert (hits(cann), cann.counters()["dead_plans"]) == (0, 0)
    monkeypatch.setenv("ACLNN_CACHE_LIMIT", "1")
    for size in (8, 9, 8):
        cann.relu_once(size)
    assert hits(cann) == 0


def test_an_executor_of_the_cache_launches_with_the_addresses_of_its_call(cann: Cann) -> None:
    cann.relu_once()
    source, _, *tensors = cann.relu()
    executor = cann.planned("aclnnRelu", *tensors).executor
    assert cann.aclSetAclOpExecutorRepeatable(executor) == 561000
    cann.ok(cann.aclrtFree(source))
    cann.aclnnRelu(None, 0, executor, None)
    assert cann.violations() == [f"aclnnRelu: self ({source:#x}) is in memory that was freed"]


def test_an_executor_of_a_cache_whose_thread_ended_is_a_violation(cann: Cann) -> None:
    executors = []

    def run() -> None:
        cann.ok(cann.aclrtSetDevice(0))
        cann.relu_once()
        executors.append(cann.planned_relu()[0])

    native_end(run)
    cann.aclnnRelu(None, 0, executors[0], None)
    assert cann.violations() == [
        "aclnnRelu: the thread of phase one, whose cache holds the executor, has ended"
    ]


# --- Executors that never ran: what stays of them in the cache of their thread --------------------

SIZE = 8
BEFORE = b"\x01\x02\x03\x04" * SIZE
Unrun = Callable[..., None]


@pytest.fixture
def unrun(cann: Cann, again: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Unrun:
    """Says what becomes of them."""

    def choose(kind: str, **variables: str) -> None:
        for name, value in {"NPUCALL_SIM_UNRUN": kind, **variables}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NPUCALL_SIM_KERNELS", "python")
        again()

    return choose


def plan_alone(cann: Cann) -> int:
    """A first phase whose executor is destroyed; the status of that."""
    status: int = cann.aclDestroyAclOpExecutor(cann.planned_relu()[0])
    return status


def written(cann: Cann) -> bool:
    """Whether a run of the same call writes its output."""
    source, target = cann.upload(bytes(SIZE * FLOATS)), cann.upload(BEFORE)
    tensors = cann.tensor(source, [SIZE]), cann.tensor(target, [SIZE])
    cann.ok(cann.run("aclnnRelu", cann.planned("aclnnRelu", *tensors)))
    cann.ok(cann.aclrtSynchronizeStream(None))
    return cann.download(target, SIZE * FLOATS) != BEFORE


@pytest.mark.parametrize(
    ("kind", "status", "runs", "left"),
    [("unguarded", 0, False, 1), ("guarded", 0, True, 3), ("refused", 561000, True, 1)],
)
def test_a_run_after_a_plan_launches_nothing_where_there_is_no_guard(
    unrun: Unrun, cann: Cann, kind: str, status: int, runs: bool, left: int
) -> None:
    unrun(kind)
    assert plan_alone(cann) == status
    assert written(cann) == runs
    assert hits(cann) == (kind == "unguarded")
    unrun(kind)
    for _ in range(3):
        plan_alone(cann)
    assert cann.counters()["dead_plans"] == left


def test_what_ran_before_it_was_planned_runs_again(unrun: Unrun, cann: Cann) -> None:
    unrun("unguarded")
    assert written(cann)
    assert plan_alone(cann) == 0
    assert written(cann)


def test_an_executor_that_is_refused_stays_and_its_call_is_not_cached(
    unrun: Unrun, cann: Cann
) -> None:
    unrun("refused")
    plan_alone(cann)
    cann.relu_once()
    cann.relu_once()
    assert (cann.live_objects()["aclOpExecutor"], hits(cann)) == (1, 0)


def test_dead_entries_are_pushed_out_by_others_and_go_with_their_thread(
    unrun: Unrun, cann: Cann
) -> None:
    unrun("guarded", ACLNN_CACHE_LIMIT="2")
    plan_alone(cann)
    plan_alone(cann)
    cann.relu_once()
    assert cann.counters()["dead_plans"] == 1
    unrun("guarded")
    counts = []

    def run() -> None:
        cann.ok(cann.aclrtSetDevice(0))
        plan_alone(cann)
        counts.append(cann.counters()["dead_plans"])

    native_end(run)
    assert [*counts, cann.counters()["dead_plans"]] == [1, 0]
