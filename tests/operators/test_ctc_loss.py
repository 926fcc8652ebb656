"""aclnnCtcLoss: prototype, values against all paths and against torch, what products differ in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.compute.evaluate import compute
from npucall.declare.cuts import BLOCK
from npucall.errors import ArgumentError
from npucall.operators.ctc_loss import ctc_loss
from npucall.operators.ctc_loss_backward import ctc_loss_backward
from npucall.products import ASCEND_310P, ASCEND_910

from .arrangements import SOCS
from .ctc import by_paths, forward_variables, in_a_row, log_softmax, rounded
from .ctc_table import FORWARD, FORWARD_950, FORWARD_TENSORS
from .gradients import FLOATS, INF, LOCAL, title
from .subject import THREE, WITH_BF16, Subject
from .ulp import assert_within, ulp

# Repetitions, one label, none, the shortest path that there is, unused steps.
LABELS = ([1, 1, 2], [3], [], [2, 1, 3, 1], [1, 2])
STEPS = (5, 3, 2, 4, 5)
ASCEND_950 = npucall_client.connect("local:", soc="Ascend950PR_9589")
IMPOSSIBLE = ([1, 1, 1], [1, 2])
"""Three equal labels need 5 steps, two blanks between them included."""


def of(labels: Any, steps: Any, classes: int = 4, blank: int = 0) -> dict[str, Any]:
    """The arguments of a call in float64; targets behind an item's labels are no class."""
    targets = np.full((len(labels), max(map(len, labels))), 77)
    for row, item in zip(targets, labels, strict=True):
        row[: len(item)] = item
    return {
        "log_probs": log_softmax((max(steps), len(labels), classes)),
        "targets": targets,
        "input_lengths": tuple(steps),
        "target_lengths": tuple(map(len, labels)),
        "blank": blank,
    }


def made(kind: Any) -> dict[str, Any]:
    arguments = rounded(of(LABELS, STEPS), kind)
    return {name: arguments[name] for name in ("log_probs", "targets")}


def run(arguments: dict[str, Any], client: Any = LOCAL, **more: Any) -> Any:
    return client.run(ctc_loss, **{**arguments, **more})


SUBJECT = Subject(
    FORWARD,
    # From the header [src:cann-headers], and the header aclnn_ctc_loss.h for targetlengths
    (
        "const aclTensor* logProbs, const aclTensor* targets, const aclIntArray* inputLengths, "
        "const aclIntArray* targetlengths, int64_t blank, bool zeroInfinity, "
        "aclTensor* negLogLikelihoodOut, aclTensor* logAlphaOut"
    ),
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE",
    older="FLOAT DOUBLE",
    typed=FORWARD_TENSORS,
    tables=(FORWARD_950,),
    attributes={
        "input_lengths": STEPS,
        "target_lengths": tuple(map(len, LABELS)),
        "blank": 0,
    },
    made=made,
)


# --- Values ---------------------------------------------------------------------------------------


def test_the_worked_example_comes_out(client: Any) -> None:
    # F8 of [src:worked-examples]
    log_probs = np.log([[[0.5, 0.3, 0.2]], [[0.4, 0.4, 0.2]], [[0.6, 0.1, 0.3]]])
    alpha = [
        [-0.69314718, -1.20397280, -INF],
        [-1.60943791, -1.13943428, -2.12026354],
        [-2.12026354, -2.95651156, -1.33180618],
    ]
    arguments: Any = {"targets": np.array([[1]]), "input_lengths": (3,), "target_lengths": (1,)}
    loss, log_alpha = compute(ctc_loss, log_probs, **arguments)
    np.testing.assert_allclose(loss, [1.15201307], atol=5e-9, rtol=0)
    np.testing.assert_allclose(log_alpha[0, :, :3], alpha, atol=5e-9, rtol=0)
    assert (log_alpha[:, :, 3:] == -INF).all()
    single = {"log_probs": log_probs.astype(np.float32), **arguments}
    for found, width in ((run(single, client), 8), (run(single, ASCEND_950), 3)):
        np.testing.assert_allclose(found[0], [1.15201307], rtol=2e-7)
        assert found[1].shape == (1, 3, width)
        np.testing.assert_allclose(found[1][0, :, :3], alpha, rtol=2e-7)
    impossible = {"targets": np.array([[1, 1]]), "input_lengths": (2,), "target_lengths": (2,)}
    assert run(single | impossible, client)[0] == INF


@pytest.mark.parametrize("blank", [0, 1, 3])
def test_in_float64_the_loss_is_that_of_all_paths(blank: int) -> None:
    names = np.roll(np.arange(4), blank)  # label 0 is never used, so it can stand for the blank
    labels = [[int(np.flatnonzero(names == label)[0]) for label in item] for item in LABELS]
    arguments = of(labels, STEPS, blank=int(np.flatnonzero(names == 0)[0]))
    losses, alpha = compute(ctc_loss, **arguments)
    for n, (steps, item) in enumerate(zip(STEPS, labels, strict=True)):
        log_probs = arguments["log_probs"][:steps, n]
        expected, _ = by_paths(log_probs, item, arguments["blank"])
        assert losses[n] == pytest.approx(expected, rel=1e-12)
        variables = forward_variables(log_probs, item, arguments["blank"])
        whole = np.full(alpha[n].shape, -INF)
        whole[:steps, : 2 * len(item) + 1] = variables
        np.testing.assert_allclose(alpha[n], whole, rtol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("blank", [0, 2])
def test_in_float64_loss_and_gradient_one_behind_the_other_are_autograds(blank: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(8)
    counts, steps = (40, 0, 25, 12, 30), (120, 50, 60, 3, 0)
    names = np.array([label for label in range(30) if label != blank])
    arguments = of([names[random.integers(0, 29, n)].tolist() for n in counts], steps, 30, blank)
    arguments["targets"] = np.minimum(arguments["targets"], 29)  # torch looks at all
    for zero_infinity in (False, True):
        loss, alpha = compute(ctc_loss, **arguments)
        g = np.random.default_rng(1).uniform(-2, 2, len(counts))
        tail = {"neg_log_likelihood": loss, "log_alpha": alpha, "zero_infinity": zero_infinity}
        found = compute(ctc_loss_backward, g, **arguments, **tail)
        leaf = torch.tensor(arguments["log_probs"], requires_grad=True)
        given = leaf, torch.tensor(arguments["targets"]), *map(torch.tensor, (steps, counts))
        options = {"reduction": "none", "blank": blank, "zero_infinity": zero_infinity}
        of_torch = torch.nn.functional.ctc_loss(*given, **options)
        (expected,) = torch.autograd.grad(of_torch, leaf, torch.tensor(g))
        infinite = np.where(np.isinf(loss) & zero_infinity, 0, loss)
        np.testing.assert_allclose(infinite, of_torch.detach(), rtol=1e-12)
        some = np.array(steps) > 0  # of an item without steps torch's gradient is what memory had
        np.testing.assert_allclose(found[:, some], expected[:, some], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_rounded_the_loss_is_within_an_ulp_of_the_exact_one(kind: Any) -> None:
    arguments = rounded(of(LABELS, STEPS), kind)
    exact = compute(
        ctc_loss,
        **rounded(arguments, kind) | {"log_probs": arguments["log_probs"].astype(np.float64)},
    )
    for found, wide in zip(run(arguments), exact, strict=True):
        assert found.dtype == kind
        finite = np.isfinite(wide)
        np.testing.assert_array_equal(found[~finite].astype(np.float64), wide[~finite])
        assert_within(found[finite], wide[finite], ulp(wide[finite], kind))


def test_double_is_computed_in_double() -> None:
    arguments = of(LABELS, STEPS)
    for found, expected in zip(run(arguments), compute(ctc_loss, **arguments), strict=True):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)


def test_log_probs_of_rank_2_are_of_one_item() -> None:
    arguments = rounded(of([[1, 1, 2]], (5,)), np.float32)
    loss, alpha = run(arguments)
    for targets in (arguments["targets"], arguments["targets"][0]):
        found = run(arguments, log_probs=arguments["log_probs"][:, 0], targets=targets)
        assert found[0].shape == ()
        np.testing.assert_array_equal(found[0], loss[0])
        np.testing.assert_array_equal(found[1], alpha)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float32, np.float16])
def test_targets_of_every_dtype_mean_the_same(kind: Any) -> None:
    arguments = rounded(of(LABELS, STEPS), np.float32)
    found = run(arguments, targets=arguments["targets"].astype(kind))
    np.testing.assert_array_equal(found[0], run(arguments)[0])


def test_targets_of_bool_are_classes_0_and_1() -> None:
    arguments = rounded(of([[0, 0]], (4,), classes=2, blank=1), np.float32)
    found = run(arguments, targets=arguments["targets"].astype(bool))
    np.testing.assert_array_equal(found[0], run(arguments)[0])


def test_targets_one_behind_the_other_mean_the_same_as_rows() -> None:
    arguments = rounded(of(LABELS, STEPS), np.float32)
    for one, other in zip(run(in_a_row(arguments)), run(arguments), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_item_of_more_states_than_a_block_is_computed_in_pieces() -> None:
    count = BLOCK // 2 + 5
    labels = np.resize([1, 1, 2, 3], count)
    log_probs = log_softmax((3, 1, 4))
    loss, alpha = compute(ctc_loss, log_probs, labels, (3,), (count,))
    assert loss == INF
    few, expected = compute(ctc_loss, log_probs, labels[:4], (3,), (4,))
    assert few == INF
    np.testing.assert_array_equal(alpha[:, :, :6], expected[:, :, :6])
    assert (alpha[:, :, 6:] == -INF).all()
    certain = np.zeros((4, 1, 4))  # no probabilities, but every path counts once
    _, alpha = compute(ctc_loss, certain, labels, (4,), (count,))
    assert np.exp(alpha[0, 3, :8]).round(9).tolist() == counted(labels)


def counted(labels: Any) -> list[float]:
    """How many ways of 4 steps lead to each of the first states."""
    states = [0, *(s for label in labels[:5].tolist() for s in (label, 0))]
    ways = [1.0, 1.0] + [0.0] * (len(states) - 2)
    for _ in range(3):
        ways = [
            ways[s]
            + (ways[s - 1] if s else 0)
            + (ways[s - 2] if s > 1 and states[s] != states[s - 2] else 0)
            for s in range(len(states))
        ]
    return ways[:8]


# --- What products differ in, and items that cannot be --------------------------------------------


@pytest.mark.parametrize("soc", SOCS[:-1])
def test_an_infinite_loss_is_zeroed_but_not_on_an_ascend_950(soc: str) -> None:
    client = npucall_client.connect("local:", soc=soc)
    arguments = rounded(of(IMPOSSIBLE, (4, 4)), np.float32)
    plain, zeroed = run(arguments, client), run(arguments, client, zero_infinity=True)
    assert plain[0][0] == INF
    assert zeroed[0][0] == (INF if "950" in soc else 0)
    assert plain[0][1] == zeroed[0][1] < INF
    np.testing.assert_array_equal(plain[1], zeroed[1])
    assert plain[1].shape == (2, 4, 7 if "950" in soc else 8)


def test_the_gradient_of_a_zeroed_loss_is_wrong_and_of_an_infinite_one_right() -> None:
    arguments = rounded(of(IMPOSSIBLE, (4, 4)), np.float32)
    arguments["targets"] = np.minimum(arguments["targets"], 2)
    gradients = []
    for early in (True, False):
        loss, alpha = run(arguments, zero_infinity=early)
        tail = {"neg_log_likelihood": loss, "log_alpha": alpha, "zero_infinity": True}
        ones = np.ones(2, np.float32)
        gradients.append(LOCAL.run(ctc_loss_backward, ones, **arguments, **tail))
    trapped, right = gradients
    np.testing.assert_allclose(trapped[:, 0], np.exp(arguments["log_probs"][:, 0]), rtol=3e-7)
    assert not right[:, 0].any()
    np.testing.assert_array_equal(trapped[:, 1], right[:, 1])


def test_an_item_without_steps_is_certain_or_impossible(client: Any) -> None:
    arguments = rounded(of(([], [1], [2]), (0, 0, 3)), np.float32)
    loss, alpha = run(arguments, client)
    assert loss[:2].tolist() == [0, INF]
    assert (alpha[:2] == -INF).all()
    assert (alpha[2, :, :3] > -INF).sum() == 8  # all but the last state of the first step
    assert run(arguments, client, zero_infinity=True)[0][:2].tolist() == [0, 0]


def test_steps_behind_an_items_own_have_no_forward_variables(client: Any) -> None:
    arguments = rounded(of(LABELS, STEPS), np.float32)
    _, alpha = run(arguments, client)
    for n, (steps, item) in enumerate(zip(STEPS, LABELS, strict=True)):
        assert (alpha[n, steps:] == -INF).all()
        assert (alpha[n, :, 2 * len(item) + 1 :] == -INF).all()
        assert (alpha[n, 0, 0]) > -INF


@pytest.mark.parametrize("label", [4, -1, 2**40, -(2**63)])
@pytest.mark.parametrize("arranged", [dict, in_a_row])
def test_a_label_that_is_no_class_is_refused_when_its_value_is_seen(
    arranged: Any, label: int
) -> None:
    arguments = rounded(of(LABELS, STEPS), np.float32)
    arguments["targets"][3, 3] = label
    with pytest.raises(ArgumentError, match=f"labels from 0 to 3, found {label}") as caught:
        run(arranged(arguments))
    assert (caught.value.aclnn_status, caught.value.parameters) == (161002, ("targets",))
    assert caught.value.details["phase"] == "run"


@pytest.mark.parametrize("targets", [(0, 3), (0,)])
def test_no_items_give_empty_outputs(targets: tuple[int, ...]) -> None:
    log_probs, labels = np.zeros((5, 0, 4), np.float16), np.zeros(targets, np.int32)
    loss, alpha = LOCAL.run(ctc_loss, log_probs, labels, (), ())
    assert (loss.shape, alpha.shape) == ((0,), (0, 5, 8))
