from npucall import errors as errors
from npucall import ops as ops
from npucall_client import CallWarning as CallWarning
from npucall_client import Client as Client
from npucall_client import Empty as Empty
from npucall_client import Options as Options
from npucall_client import Plan as Plan
from npucall_client import Program as Program
from npucall_client import ProgramPlan as ProgramPlan
from npucall_client import Remote as Remote
from npucall_client import Result as Result
from npucall_client import Session as Session
from npucall_client import SharedMemory as SharedMemory
from npucall_client import aio as aio
from npucall_client import connect as connect
from npucall_client import torch as torch

__version__: str
