"""Calls of every way that travels, in a process of its own; prints who the server says it is.

Arguments: a target, and settings of ``connect`` as JSON.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import npucall_client
from npucall.errors import NpucallError

SMALL, LARGE = np.ones(4, np.float32), np.ones(2**21, np.float32)


def main(target: str, settings: str) -> None:
    with npucall_client.connect(target, **json.loads(settings)) as client:
        for array in (SMALL, LARGE):
            found = client.run("aclnnL1LossBackward", array, self=array, target=array)
            np.testing.assert_array_equal(found, np.zeros_like(array))
        with client.pipeline() as pipeline:
            pipeline.submit("aclnnL1LossBackward", SMALL, self=SMALL, target=SMALL).result(30)
        print(client.server_info().caller.tenant)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except NpucallError as error:
        sys.exit(f"{type(error).__name__}: {error}")
