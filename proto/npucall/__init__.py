"""The contract: what client and server must agree on, and how operators are computed.

Its modules, from the top::

    compute              the CPU reference
    wire                 values and their bytes
    operators            the catalogue
    programs             the steps of a program, prepared and checked as a whole
    declare              how an operator is declared, and how a call of it is checked
    handles              the handles of a session: their states, what fills and what reads them
    exchange             a streamed call: its states, its frames as values, chunks
    places               where the bytes of a call can be
    tensors              specs of tensors, and views of their bytes
    dtypes, products     the table of dtypes; the Ascend products
    membership           times of a pool, and what an address is
    errors               one class for each thing that can go wrong
    limits               every limit of the contract
    memory               new memory; freed memory that the process keeps
    keepalive            how a peer that stops without a word is found
    texts                texts of others, cut; sentences that many say
    environment          environment variables; files that are read again when they change
    v1                   the .proto files, and what is generated from them
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version, read from the distribution's metadata where somebody asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
