"""The client for asyncio: you await the methods that wait in ``npucall_client``.

::

    import npucall_client.aio
    from npucall.operators.kl_div_backward import kl_div_backward

    async with npucall_client.aio.connect("127.0.0.1:50051") as client:
        gradient = await client.run(kl_div_backward, grad_output, self=student, target=teacher)

Names, settings, options and errors are those of ``npucall_client``.
"""

from npucall_client.aio.client import Client, connect
from npucall_client.aio.pipeline import PendingCall, Pipeline
from npucall_client.aio.sessions import Program, Remote, Session

__all__ = ["Client", "PendingCall", "Pipeline", "Program", "Remote", "Session", "connect"]
