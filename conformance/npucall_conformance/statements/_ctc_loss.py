"""What gradients of the CTC loss are [src:ctc-loss]: by loops, and by arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16
from npucall_conformance.stating import reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.tables import OLDER, WITH_BFLOAT16, on

TAKES = {**on(WITH_BFLOAT16, FLOAT, DOUBLE, FLOAT16, BF16), **on(OLDER, FLOAT, DOUBLE)}
INF, NAN = reals.INFINITY, reals.NAN


def states_of(call: Arguments | Mapping[str, Any], item: int) -> list[int]:
    """The classes of an item's states: its labels, blanks around them and between."""
    lengths, targets = call["target_lengths"], call["targets"]
    start = sum(lengths[:item])
    row = targets[item] if targets.ndim > 1 else targets[start:]
    states = [call["blank"]]
    for label in row[: lengths[item]].tolist():
        states += [int(label), call["blank"]]
    return states


def log_sum(terms: list[float]) -> float:
    """The logarithm of the sum of the exponentials, of which there may be none."""
    top = max(terms, default=-INF)
    if top == -INF:
        return -INF if all(t == -INF for t in terms) else NAN
    if top == INF and not any(map(math.isnan, terms)):
        return INF
    return top + math.log(math.fsum(math.exp(t - top) for t in terms))


def reachable(states: list[int], blank: int, s: int) -> list[int]:
    """The states after state ``s``: itself, the next, and a label's next label if it is another."""
    ahead = [s, s + 1]
    if s + 2 < len(states) and states[s] not in (blank, states[s + 2]):
        ahead.append(s + 2)
    return [each for each in ahead if each < len(states)]


def loops(k: Arguments) -> Any:
    steps, items, classes = k["log_probs"].shape
    log_probs, alpha = k["log_probs"].tolist(), k["log_alpha"].tolist()
    result = np.zeros((steps, items, classes))
    for n in range(items):
        loss = float(k["neg_log_likelihood"][n])
        if k["zero_infinity"] and loss == INF:
            continue
        states = states_of(k, n)
        beta = [-INF] * len(states)
        for t in reversed(range(k["input_lengths"][n])):
            lp = log_probs[t][n]
            if t == k["input_lengths"][n] - 1:
                last = len(states) - 2
                beta = [lp[c] if s >= last else -INF for s, c in enumerate(states)]
            else:
                after = [
                    [beta[s] for s in reachable(states, k["blank"], i)] for i in range(len(states))
                ]
                beta = [lp[c] + log_sum(after[s]) for s, c in enumerate(states)]
            for c in range(classes):
                paths = [alpha[n][t][s] + beta[s] for s, own in enumerate(states) if own == c]
                part = reals.exp(log_sum(paths) + loss - lp[c])
                result[t, n, c] = float(k["grad_out"][n]) * (reals.exp(lp[c]) - part)
    return result


def arrays(k: Arguments) -> Terms:
    lp = k["log_probs"]
    value, size = np.zeros(lp.shape), np.zeros(lp.shape)
    for n, steps in enumerate(k["input_lengths"]):
        loss = k["neg_log_likelihood"][n]
        if k["zero_infinity"] and np.isposinf(loss):
            continue
        states = np.array(states_of(k, n))
        onward = transitions(states, k["blank"])
        emitted = lp[:, n][:, states]
        beta = np.full((steps, states.size), -np.inf)
        for t in range(steps - 1, -1, -1):
            if t == steps - 1:
                beta[t, -2:] = emitted[t, -2:]
            else:
                beta[t] = emitted[t] + np.logaddexp.reduce(beta[t + 1] + onward, axis=1)
        through = k["log_alpha"][n, :steps, : states.size] + beta
        paths = np.full((steps, lp.shape[2]), -np.inf)
        for c in np.unique(states):
            paths[:, c] = np.logaddexp.reduce(through[:, states == c], axis=1)
        own, g = lp[:steps, n], k["grad_out"][n]
        part = np.exp(paths + loss - own)
        value[:steps, n] = g * (np.exp(own) - part)
        # What is inside the exponential comes from steps that each round numbers of that size.
        inside = np.abs(np.where(part > 0, paths, 0)) + np.abs(loss) + np.abs(own)
        size[:steps, n] = np.abs(g) * (np.exp(own) + part * (1 + inside))
    return Terms(value, size)


def transitions(states: Any, blank: int) -> Any:
    """0 where a state may follow a state, -inf elsewhere: rows are from, columns to."""
    count = states.size
    allowed = np.eye(count, dtype=bool) | np.eye(count, k=1, dtype=bool)
    other = (states[:, None] != states[None, :]) & (states != blank)[:, None]
    allowed |= np.eye(count, k=2, dtype=bool) & other
    return np.where(allowed, 0.0, -np.inf)
