"""The operators of a host: declared ones that its libraries have, and those of its headers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator
from npucall.errors import OperatorUnavailableError, VariantUnavailableError
from npucall.operators import CATALOGUE
from npucall_server.devices.cann import headers
from npucall_server.devices.cann.operators import OpApi
from npucall_server.settings.npu import AscendPaths

_BUILTIN, COMMUNITY = "builtin", "community"
"""The variants: of CANN's own libraries, and of a custom package."""


class HostCatalogue(Catalogue):
    """Every operator that is declared or installed. A declaration wins over a header.

    ``runnable`` refuses operators that this host cannot run. The library that exports an operator
    decides its variant: a custom package has the community's variant, CANN itself the built-in one.
    """

    def __init__(self, libraries: OpApi, paths: AscendPaths) -> None:
        declared = {operator.name for operator in CATALOGUE}
        installed = headers.read(list(header_folders(paths))).operators
        own = (operator for name, operator in installed.items() if name not in declared)
        super().__init__(chain(CATALOGUE, (each for each in own if libraries.find(each.name))))
        self._libraries = libraries
        self._missing = {name for name in declared if libraries.find(name) is None}
        self._variants = {
            name: self._variant_of(name)
            for name in declared - self._missing
            if len(CATALOGUE.of_name(name)) > 1
        }

    @property
    def variant(self) -> str:
        """The variant that this host has if an operator has several; empty if it has none."""
        return next(filter(None, self._variants.values()), "")

    def find(self, name: str, variant: str = "", default: str = "") -> Operator[Any, Any]:
        """The operator. If no variant is named, it is this host's variant."""
        return super().find(name, variant, self._variants.get(name) or default or _BUILTIN)

    def runnable(self, name: str, variant: str = "", default: str = "") -> Operator[Any, Any]:
        """As ``find``; also raises OperatorUnavailableError and VariantUnavailableError."""
        operator = self.find(name, variant, default)
        reason = self.unavailable_because(operator)
        if not reason:
            return operator
        kind = VariantUnavailableError if name in self._variants else OperatorUnavailableError
        raise kind(f"operator: {reason}", operator=name, variant=operator.variant)

    def unavailable_because(self, operator: Operator[Any, Any]) -> str:
        """Why this host cannot run an operator of the catalogue; empty if it can."""
        if operator.name in self._missing:
            return f"expected {operator.name} in a library of this host, found it in no library"
        has = self._variants.get(operator.name, operator.variant)
        if has != operator.variant:
            return (
                f"expected {f'variant {has}' if has else 'no variant'} of {operator.name}, which "
                f"this host has, found {operator.variant}"
            )
        return ""

    def _variant_of(self, name: str) -> str:
        if any(not operator.variant for operator in CATALOGUE.of_name(name)):
            return ""  # CANN's own, since no library tells whether it is another one
        found = self._libraries.find(name)
        return COMMUNITY if found is not None and found[1] else _BUILTIN


def header_folders(paths: AscendPaths) -> Iterator[Path]:
    """The folders with headers of operators: custom packages first, as with libraries."""
    yield from (entry / "op_api" / "include" for entry in paths.custom)
    if paths.opp is not None:
        yield from sorted((paths.opp / "vendors").glob("*/op_api/include"))
    if paths.home is not None:
        yield paths.home / "include" / "aclnnop"
    if paths.opp is not None:
        yield paths.opp / "built-in/op_impl/ai_core/tbe/op_api/include/aclnnop"
