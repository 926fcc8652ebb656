"""Makes calls at the far end of a wire, one for each line of its input; says how attempts ended.

A line is a number of elements of each tensor. Arguments: the target, and the timeout in seconds.
"""

import json
import sys
import time

import numpy as np

import npucall_client
from npucall.errors import NpucallError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.sending import attempts
from npucall_client.sending.follow_ups import Follows, follows

ONE = np.ones((), np.float32)


def say(what: str, began: float, error: Exception | None = None) -> None:
    told = {"what": what, "seconds": time.monotonic() - began, "error": str(error or "")}
    print(json.dumps(told), flush=True)


def main(target: str, timeout: str) -> None:
    began = time.monotonic()

    def told(error: NpucallError) -> Follows:
        say("attempt", began, error)
        return follows(error)

    attempts.follows = told
    client = npucall_client.connect(target, timeout=float(timeout), connect_timeout=30.0)
    say("ready", began)
    for line in sys.stdin:
        array = np.ones((int(line) // 64, 64), np.float32)
        began = time.monotonic()
        try:
            answer = client.run(l1_loss_backward, ONE, array, array - 1, reduction=2)
        except NpucallError as error:
            say(type(error).__name__, began, error)
        else:
            say("right" if (answer == 1).all() else "wrong", began)


if __name__ == "__main__":
    main(*sys.argv[1:])
