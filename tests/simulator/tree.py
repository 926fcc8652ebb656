"""Where the files of a built simulator are, and the environment of a process that uses them."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

MACHINE = platform.machine()
VENDOR = "customize"
IN_THE_PACKAGE = ("8.1", "8.3")
"""Releases that keep what operators have in the operator package, with links to it. All before
8.5.0, so they have another home too."""
_OP_API = Path("opp/built-in/op_impl/ai_core/tbe/op_api")


@dataclass(frozen=True)
class Generation:
    """One installed tree, as CANN's installer lays it out, under ``home``."""

    home: Path

    @property
    def set_env(self) -> Path:
        """The script that a user sources: in the home, or before 8.5.0 beside it."""
        return (self.home if self.home.name == "cann" else self.home.parent) / "set_env.sh"

    @property
    def lib64(self) -> Path:
        """The libraries: what ``ASCEND_HOME_PATH/lib64`` is."""
        return self.home / "lib64"

    @property
    def include(self) -> Path:
        """The headers; those of operators are in ``aclnnop`` there."""
        return self.home / "include"

    @property
    def opp(self) -> Path:
        """The operator package: what ``ASCEND_OPP_PATH`` names."""
        return self.home / "opp"

    @property
    def op_api_libraries(self) -> Path:
        """Where 8.1 and 8.3 keep the regular files ``libopapi*.so``."""
        return self.home / _OP_API / "lib/linux" / MACHINE

    @property
    def op_api_headers(self) -> Path:
        """Where 8.1 and 8.3 keep the operators' headers."""
        return self.home / _OP_API / "include/aclnnop"

    def environment(self, *custom: Path) -> dict[str, str]:
        """What ``set_env.sh`` exports, as changes to this process's environment.

        ``custom``: folders of custom packages, for ``ASCEND_CUSTOM_OPP_PATH``.
        """
        libraries = f"{self.lib64}:{self.lib64}/plugin/opskernel"
        variables = {
            "ASCEND_HOME_PATH": str(self.home),
            "ASCEND_TOOLKIT_HOME": str(self.home),
            "ASCEND_OPP_PATH": str(self.opp),
            "ASCEND_AICPU_PATH": str(self.home),
            "TOOLCHAIN_HOME": f"{self.home}/toolkit",
            "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        }
        if custom:
            variables["ASCEND_CUSTOM_OPP_PATH"] = ":".join(map(str, custom))
        return variables


@dataclass(frozen=True)
class Tree:
    """Everything that one build made, under ``root``."""

    root: Path

    def generation(self, name: str) -> Generation:
        """The installed tree of ``"8.1"``, ``"8.3"`` or ``"9.x"``."""
        home = "ascend-toolkit/latest" if name in IN_THE_PACKAGE else "cann"
        return Generation(self.ascend(name) / home)

    def ascend(self, name: str) -> Path:
        """What ``/usr/local/Ascend`` is on a host of this release."""
        return self.root / name

    @property
    def custom(self) -> Path:
        """The custom package: an entry of ``ASCEND_CUSTOM_OPP_PATH``."""
        return self.root / "custom" / VENDOR
