"""Calls of every way that travels."""

import numpy as np

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
