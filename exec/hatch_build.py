"""A wheel that has the built libraries is one of this machine (``make exec-wheel``)."""

import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Libraries(BuildHookInterface):  # type: ignore[type-arg]
    """Takes ``npucall_exec/built`` into the wheel; without it the wheel is of any host."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        if not (Path(self.root) / "npucall_exec" / "built").is_dir():
            return
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{machine}"
        build_data["artifacts"].append("npucall_exec/built/**")
