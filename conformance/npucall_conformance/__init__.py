"""The conformance suite: judges any server against a second, naive statement of every operator.

``npucall conform TARGET`` runs it. Its parts, from the bottom:

* ``stating`` has the parts of statements. Its docstring shows how to state an operator.
* ``statements`` has the statements, one file for each operator.
* ``cases`` decides which calls are made. A case holds no data. Its data are made from the seed and
  the id of the case.
* ``judging`` decides which answer is right, and how near an answer has to come.
* ``running`` asks a server, or a library in place of a server, and compares its answers with the
  expected ones.
* ``reporting`` says what a run found: verdict, coverage, causes, known deviations, pages and files.
* ``golden`` writes inputs and expected outputs into files: for other tools; and of failing cases,
  with the answers, for ``npucall replay``. ``gradients`` judges the gradients of a module of torch.
* ``options`` does what the options ask for; ``conform_command`` declares ``npucall conform`` and
  ``npucall replay``, ``rerun_command`` declares ``npucall rerun``; ``wire`` sends any call, even a
  wrong one.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """The version, read from the distribution's metadata when a program asks for it."""
        if name == "__version__":
            return import_module("importlib.metadata").version("npucall-conformance")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
