"""The loss of CTC: against all paths and torch, in each form of its targets, on each product."""

from typing import Any

import numpy as np
import pytest
from tests.rows import each

import npucall_client
from npucall.compute.evaluate import compute
from npucall.declare.cuts import BLOCK
from npucall.dtypes import BF16, BOOL, DTYPES, FLOAT, FLOAT16, INT32, INT64
from npucall.errors import PARAM_INVALID, DTypeError
from npucall.operators.ctc_loss import ctc_loss
from npucall.operators.ctc_loss_backward import ctc_loss_backward
from npucall.products import A2, A3, ASCEND_950

from .calls import INF, LOCAL, refusal, run
from .ctc import by_paths, forward_variables, in_a_row, log_softmax, rounded

# Repetitions, one label, none, the shortest path that there is, unused steps.
LABELS: Any = ([1, 1, 2], [3], [], [2, 1, 3, 1], [1, 2])
STEPS = (5, 3, 2, 4, 5)
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


@each("blank", [0, 1, 3])
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
@each("blank", [0, 2])
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


def test_double_is_computed_in_double() -> None:
    arguments = of(LABELS, STEPS)
    exact: Any = compute(ctc_loss, **arguments)
    for found, expected in zip(run(ctc_loss, arguments), exact, strict=True):
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)


def test_log_probs_of_rank_2_are_of_one_item() -> None:
    arguments = rounded(of([[1, 1, 2]], (5,)), np.float32)
    loss, alpha = run(ctc_loss, arguments)
    for targets in (arguments["targets"], arguments["targets"][0]):
        flat = {"log_probs": arguments["log_probs"][:, 0], "targets": targets}
        found = run(ctc_loss, {**arguments, **flat})
        assert found[0].shape == ()
        np.testing.assert_array_equal(found[0], loss[0])
        np.testing.assert_array_equal(found[1], alpha)


def test_targets_of_every_dtype_and_one_behind_the_other_mean_the_same() -> None:
    arguments = rounded(of(LABELS, STEPS), np.float32)
    loss, alpha = run(ctc_loss, arguments)
    for kind in (np.int32, np.float32, np.float16):
        converted = {**arguments, "targets": arguments["targets"].astype(kind)}
        np.testing.assert_array_equal(run(ctc_loss, converted)[0], loss)
    found = run(ctc_loss, in_a_row(arguments))
    np.testing.assert_array_equal(found[0], loss)
    np.testing.assert_array_equal(found[1], alpha)


def test_targets_of_bool_are_classes_0_and_1() -> None:
    arguments = rounded(of([[0, 0]], (4,), classes=2, blank=1), np.float32)
    found = run(ctc_loss, {**arguments, "targets": arguments["targets"].astype(bool)})
    np.testing.assert_array_equal(found[0], run(ctc_loss, arguments)[0])


def test_an_item_of_more_states_than_a_block_is_computed_in_pieces() -> None:
    count = BLOCK // 2 + 5
    labels = np.resize([1, 1, 2, 3], count)
    log_probs = log_softmax((3, 1, 4))
    loss, alpha = compute(ctc_loss, log_probs, labels, (3,), (count,))
    few, expected = compute(ctc_loss, log_probs, labels[:4], (3,), (4,))
    assert loss == few == INF
    np.testing.assert_array_equal(alpha[:, :, :6], expected[:, :, :6])
    assert (alpha[:, :, 6:] == -INF).all()
    certain = np.zeros((4, 1, 4))  # no probabilities, but every path counts once
    _, alpha = compute(ctc_loss, certain, labels, (4,), (count,))
    # How many ways of 4 steps lead to each of the first states of 0 1 0 1 0 2 0 3.
    assert np.exp(alpha[0, 3, :8]).round(9).tolist() == [1, 4, 6, 4, 1, 1, 0, 0]


# --- What products differ in, and items that cannot be --------------------------------------------


@each("soc", ["Ascend910B1", "Ascend950PR_9589", "Ascend910A", "Ascend310P3"])
def test_an_infinite_loss_is_zeroed_but_not_on_an_ascend_950(soc: str) -> None:
    arguments = rounded(of(IMPOSSIBLE, (4, 4)), np.float32)
    with npucall_client.connect("local:", soc=soc) as client:
        plain = run(ctc_loss, arguments, on=client)
        zeroed = run(ctc_loss, arguments, on=client, zero_infinity=True)
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
        loss, alpha = run(ctc_loss, arguments, zero_infinity=early)
        tail = {"neg_log_likelihood": loss, "log_alpha": alpha, "zero_infinity": True}
        ones = np.ones(2, np.float32)
        gradients.append(LOCAL.run(ctc_loss_backward, ones, **arguments, **tail))
    trapped, right = gradients
    np.testing.assert_allclose(trapped[:, 0], np.exp(arguments["log_probs"][:, 0]), rtol=3e-7)
    assert not right[:, 0].any()
    np.testing.assert_array_equal(trapped[:, 1], right[:, 1])


def test_an_item_without_steps_is_certain_or_impossible() -> None:
    arguments = rounded(of(([], [1], [2]), (0, 0, 3)), np.float32)
    loss, alpha = run(ctc_loss, arguments)
    assert loss[:2].tolist() == [0, INF]
    assert (alpha[:2] == -INF).all()
    assert (alpha[2, :, :3] > -INF).sum() == 8  # all but the last state of the first step
    assert run(ctc_loss, arguments, zero_infinity=True)[0][:2].tolist() == [0, 0]


def test_steps_behind_an_items_own_have_no_forward_variables() -> None:
    _, alpha = run(ctc_loss, rounded(of(LABELS, STEPS), np.float32))
    for n, (steps, item) in enumerate(zip(STEPS, LABELS, strict=True)):
        assert (alpha[n, steps:] == -INF).all()
        assert (alpha[n, :, 2 * len(item) + 1 :] == -INF).all()
        assert alpha[n, 0, 0] > -INF


@each("operator", [ctc_loss, ctc_loss_backward])
def test_targets_have_one_of_five_dtypes(operator: Any) -> None:
    changes = {kind: {"targets": {"dtype": kind}} for kind in DTYPES}
    taken = {kind for kind, change in changes.items() if refusal(operator, change) is None}
    assert taken == {INT32, INT64, BOOL, FLOAT, FLOAT16}


# C, N, the most labels, the states that they have: the most that there may be, and one more of
# each. The forward operator pads its states: 999 labels have 2000, 1000 have 2008.
LIMITS = [
    ((200_000, 8180, 999), True),
    ((200_001, 8180, 999), False),
    ((200_000, 8181, 999), False),
    ((200_000, 8180, 1001), False),
]


@each("kind", [FLOAT, FLOAT16, BF16])
@each("product", [A2, A3, ASCEND_950])
@each("extents small", LIMITS)
def test_short_floats_have_limits_on_atlas_a2_and_a3(
    extents: tuple[int, int, int], small: bool, product: Any, kind: Any
) -> None:
    classes, items, labels = extents
    states = 2 * labels + 1
    padded = states if product is ASCEND_950 else -(-states // 8) * 8
    shapes = {
        ctc_loss: {
            "log_probs": (5, items, classes),
            "neg_log_likelihood_out": (items,),
            "log_alpha_out": (items, 5, padded),
        },
        ctc_loss_backward: {
            **dict.fromkeys(("log_probs", "out"), (5, items, classes)),
            **dict.fromkeys(("grad_out", "neg_log_likelihood"), (items,)),
            "log_alpha": (items, 5, states),
        },
    }
    more = {"targets": {"shape": (items, labels)}, "input_lengths": (1,) * items}
    more["target_lengths"] = (labels,) * items
    passes = small or kind is FLOAT or product is ASCEND_950
    expected = None if passes else (DTypeError, PARAM_INVALID, ("log_probs",))
    for operator, tensors in shapes.items():
        changes = {name: {"dtype": kind, "shape": shape} for name, shape in tensors.items()}
        assert refusal(operator, {**changes, **more}, product) == expected, operator
