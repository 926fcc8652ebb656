"""Calls of every way that travels. As a program it prints who the server says the caller is.

Arguments: a target, and settings of ``connect`` as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np

import npucall_client
from npucall.errors import NpucallError

if TYPE_CHECKING:
    from npucall.v1.operator_service_pb2 import CallerInfo
    from npucall_client import Client

SMALL, LARGE = np.ones(4, np.float32), np.ones(2**21, np.float32)


def call_every_way(client: Client) -> CallerInfo:
    """In one message, in chunks, in a pipeline; answers who the server says it is."""
    for array in (SMALL, LARGE):
        found = client.run("aclnnL1LossBackward", array, self=array, target=array)
        np.testing.assert_array_equal(found, np.zeros_like(array))
    with client.pipeline() as pipeline:
        call = pipeline.submit("aclnnL1LossBackward", SMALL, self=SMALL, target=SMALL)
        np.testing.assert_array_equal(call.result(30), np.zeros_like(SMALL))
    return client.server_info().caller


if __name__ == "__main__":
    try:
        with npucall_client.connect(sys.argv[1], **json.loads(sys.argv[2])) as connected:
            print(call_every_way(connected).tenant)
    except NpucallError as error:
        sys.exit(f"{type(error).__name__}: {error}")
