"""Programs: many calls in one round trip, on ``local:`` and on a server."""

import numpy as np
import pytest

import npucall_client
from npucall.errors import ArgumentError, HandleEmptyError, ShapeError, TooLargeError
from npucall.operators.cross_entropy_loss_grad import cross_entropy_loss_grad
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.operators.prelu_backward import prelu_backward
from npucall.operators.softmax_backward import softmax_backward
from npucall_client import Client, Session

BOTH_SENDERS = pytest.mark.usefixtures("sender")

ONE = np.ones((), np.float32)
X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
Y = np.linspace(0.1, 0.9, 48, dtype=np.float32).reshape(6, 8)


@BOTH_SENDERS
def test_the_example_of_the_documentation_has_the_bits_of_single_calls(
    connected: Client, session: Session
) -> None:
    teacher = session.put(Y, constant=True)
    g = session.run(kl_div_backward, ONE, self=X, target=teacher)
    with session.program() as program:
        a = program.run(l1_loss_backward, g, X, teacher)
        b = program.run(softmax_backward, a, Y, dim=1)
        assert (a.shape, b.shape, b.dtype) == (X.shape, X.shape, X.dtype)
        assert "waits for its program" in repr(b)
    one = connected.run(kl_div_backward, ONE, X, Y)
    two = connected.run(l1_loss_backward, one, X, Y)
    assert a.numpy().tobytes() == two.tobytes()
    assert b.numpy().tobytes() == connected.run(softmax_backward, two, Y, dim=1).tobytes()
    assert "s old" in repr(b)


def test_what_nobody_has_any_more_is_not_kept(connected: Client) -> None:
    """100 intermediate results of 64 KiB each have no room in the session; one has."""
    with connected.session(budget=64 * 1024) as session:
        large = np.ones(16 * 1024, np.float32)
        with session.program() as program:
            result = program.run(l1_loss_backward, ONE, large, ONE)
            for _ in range(99):
                result = program.run(l1_loss_backward, result, large, ONE)
        assert result.numpy().shape == large.shape


@BOTH_SENDERS
def test_fetched_results_come_with_the_answer(session: Session) -> None:
    with session.program() as program:
        a = program.run(l1_loss_backward, ONE, X, Y)
        b = program.run(l1_loss_backward, a, X, Y)
        program.fetch(b)
    kept = b.numpy()
    assert np.array_equal(kept, session.run(l1_loss_backward, a, X, Y).numpy())
    kept[...] = 0
    assert b.numpy().any()
    assert session.run(l1_loss_backward, b, X, Y).numpy().shape == X.shape
    with pytest.raises(TypeError, match="a result of this program"):
        session.program().fetch(a)


def test_outputs_that_have_an_array_are_written_there_and_empty_stays(session: Session) -> None:
    gradient = np.zeros_like(X)
    outputs = {
        "grad_input": gradient,
        "grad_weight": npucall_client.Empty((8,), np.float32),
    }
    with session.program() as program:
        weight = np.full(8, 0.25, np.float32)
        found = program.run(prelu_backward.name, X, Y, weight, outputs=outputs)
        assert not gradient.any()
        outputs = {"grad_input": npucall_client.Empty(X.shape, np.float16)}
        short = program.run(l1_loss_backward.name, ONE, X, Y, outputs=outputs)
        assert short.dtype == np.float16
        single = session.run(l1_loss_backward.name, ONE, X, Y, outputs=outputs)
    assert (single.dtype, single.numpy().dtype) == (np.float16, np.float16)
    assert found.grad_input is gradient
    assert gradient.any()
    assert found.grad_weight.numpy().shape == (8,)
    assert short.numpy().dtype == np.float16


def test_a_wrong_call_fails_where_it_stands(connected: Client, session: Session) -> None:
    wrong = np.zeros((5, 5), np.float32)
    with pytest.raises(ShapeError) as alone:
        connected.run(l1_loss_backward, ONE, X, wrong)
    with pytest.raises(ShapeError) as kept:
        session.run(l1_loss_backward, ONE, session.put(X), wrong)
    with session.program() as program:
        good = program.run(l1_loss_backward, ONE, X, Y)
        with pytest.raises(ShapeError) as found:
            program.run(l1_loss_backward, ONE, X, wrong)
    assert str(found.value) == str(kept.value) == str(alone.value)
    assert kept.value.parameter == alone.value.parameter
    assert kept.value.details["soc"] == alone.value.details["soc"]
    assert good.numpy().shape == X.shape


def test_an_exception_in_the_block_sends_nothing(session: Session) -> None:
    results = []

    def broken() -> None:
        with session.program() as program:
            results.append(program.run(l1_loss_backward, ONE, X, Y))
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    (result,) = results
    with pytest.raises(HandleEmptyError, match="its program raised KeyError"):
        result.numpy()
    assert "empty" in repr(result)


@BOTH_SENDERS
def test_the_first_call_that_fails_names_its_step_and_nothing_is_kept(session: Session) -> None:
    log_prob, labels = np.zeros((2, 3), np.float32), np.array([0, 7])
    program = session.program()
    before = program.run(l1_loss_backward, ONE, X, Y)
    program.run(cross_entropy_loss_grad, ONE, log_prob, labels)
    with pytest.raises(ArgumentError) as found, program:
        pass
    assert found.value.details["step"] == "1"
    with pytest.raises(HandleEmptyError, match="its program failed"):
        before.numpy()


def test_no_result_is_used_before_its_program_has_run(connected: Client, session: Session) -> None:
    with session.program() as program:
        result = program.run(l1_loss_backward, ONE, X, Y)
        for use in (
            result.numpy,
            result.release,
            lambda: connected.run(l1_loss_backward, ONE, result, Y),
            lambda: session.program().run(l1_loss_backward, ONE, result, Y),
        ):
            with pytest.raises(HandleEmptyError, match="its program has not run"):
                use()
    assert result.numpy().shape == X.shape


def test_a_program_runs_once_and_has_a_most_of_calls(session: Session) -> None:
    with session.program() as program:
        assert len(program) == 0
        for _ in range(256):
            result = program.run(l1_loss_backward, ONE, ONE, ONE)
        with pytest.raises(TooLargeError, match="at most 256 calls"):
            program.run(l1_loss_backward, ONE, ONE, ONE)
    assert result.numpy().shape == ()
    with pytest.raises(ValueError, match="its block was left"):
        program.run(l1_loss_backward, ONE, X, Y)
    with session.program():
        pass  # without calls it does nothing


def test_a_plan_says_what_it_would_give_without_data(session: Session) -> None:
    there = session.put(X)
    with session.program() as program:
        a = program.run(l1_loss_backward, ONE, there, Y)
        program.run(softmax_backward, a, Y, dim=1)
        plan = program.plan()
        assert [
            step.outputs[name].shape
            for step, name in zip(plan.steps, ["grad_input", "out"], strict=True)
        ] == [X.shape, X.shape]
        assert plan.peak_device_bytes >= X.nbytes


def test_a_timeout_belongs_to_the_program(session: Session) -> None:
    with session.program(timeout=9.0) as program, pytest.raises(TypeError, match="timeout"):
        program.run(l1_loss_backward.name, ONE, X, Y, timeout=3.0)
