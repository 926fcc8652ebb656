"""BLAS has one thread while blocks of a formula are computed, and then as many as before."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from npucall import ops
from npucall.compute import blas, blocks, evaluate
from npucall.compute.helpers import UNLIMITED, Helpers, Sharing

library = blas._library()
if library is None:
    pytest.skip("NumPy has no OpenBLAS", allow_module_level=True)
MANY = 2


@pytest.fixture(autouse=True)
def _has_two_threads() -> Iterator[None]:
    """Also where the machine, or its environment, gives BLAS one."""
    own = library.get()
    library.set(MANY)
    yield
    library.set(own)


@pytest.mark.parametrize("count", [0, 1], ids=["alone", "with a helper"])
def test_blocks_of_a_formula_have_one_thread_of_blas_each(count: int) -> None:
    helpers, seen = Helpers(count), []
    Sharing(UNLIMITED, helpers).each(
        range(8), lambda _: library.get(), lambda _, found: seen.append(found)
    )
    helpers.close()
    assert (seen, library.get()) == ([1] * 8, MANY)


def test_a_block_that_fails_gives_the_threads_back() -> None:
    def fail(block: int) -> None:
        raise ArithmeticError(block)

    with pytest.raises(ArithmeticError):
        Sharing(UNLIMITED).each(range(2), fail, lambda *_: None)
    assert library.get() == MANY


def test_of_calls_at_the_same_time_the_last_one_gives_them_back() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with blas.one_thread():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with blas.one_thread():
        thread.start()
        entered.wait()
    beside = library.get()
    leave.set()
    thread.join()
    assert (beside, library.get()) == (1, MANY)


@pytest.mark.parametrize(("worth_two", "threads"), [(9, 1), (8, MANY)])
def test_a_small_product_has_one_thread_and_a_large_one_all(
    monkeypatch: pytest.MonkeyPatch, worth_two: int, threads: int
) -> None:
    seen, own = [], np.matmul

    def matmul(*factors: Any, **more: Any) -> Any:
        seen.append(library.get())
        return own(*factors, **more)

    monkeypatch.setattr(np, "matmul", matmul)
    monkeypatch.setattr(blocks, "_WORTH_TWO", worth_two)
    evaluate.compute(ops.matmul, np.eye(2, dtype=np.float32), np.ones((2, 2), np.float32), 0)
    assert (seen, library.get()) == ([threads], MANY)
