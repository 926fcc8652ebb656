"""Losses and activations of torch whose gradients an NPU computes, or the CPU reference.

::

    import npucall_client
    from npucall_client.torch import functional

    with npucall_client.connect("127.0.0.1:50051") as client:
        F = functional(client)
        F.kl_div(student, teacher, reduction="batchmean").backward()

``check`` compares the gradients of a whole module, by the conformance suite. Needs the extra
``torch``.
"""

from npucall.texts import missing_extra

try:
    import torch as _  # noqa: F401  # said here once, and not by each module
except ImportError as error:
    raise ImportError(missing_extra("npucall_client.torch", "npucall-client", "torch")) from error

from npucall_client.torch.checking import Checked, check
from npucall_client.torch.converting import Converted, convert
from npucall_client.torch.functional import Functional, functional
from npucall_client.torch.places import WireWarning

__all__ = [
    "Checked",
    "Converted",
    "Functional",
    "WireWarning",
    "check",
    "convert",
    "functional",
]
