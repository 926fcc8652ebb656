"""Each operator by its name in Python: ``npucall.ops.kl_div_backward``.

``Client.run`` takes them, and ``help`` shows the parameters of each. Of an operator with variants
each variant has a name of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from npucall.texts import did_you_mean

if not TYPE_CHECKING:  # type checkers read ops.pyi, which ``make docs`` writes

    def __getattr__(name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = f"npucall.operators.{name}"
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
        from npucall.operators import CATALOGUE  # noqa: PLC0415  # it loads every operator

        for operator in CATALOGUE:  # one of a family, which a module declares by a table
            if operator.__name__ == name:
                globals()[name] = operator  # it is looked for once
                return operator
        raise AttributeError(f"npucall.ops has no operator {name!r}{did_you_mean(name, __dir__())}")

    def __dir__() -> list[str]:
        from npucall.operators import CATALOGUE  # noqa: PLC0415  # it loads every operator

        return sorted(each.__name__ for each in CATALOGUE)
