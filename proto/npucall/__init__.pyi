from npucall import errors as errors
from npucall import ops as ops
from npucall_client import *  # noqa: F403  # its own list
from npucall_client import aio as aio
from npucall_client import torch as torch

__version__: str
