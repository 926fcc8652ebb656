"""A wheel that has the built libraries is one of their machine (``make exec-wheel``)."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Libraries(BuildHookInterface):  # type: ignore[type-arg]
    """Takes ``npucall_exec/built`` into the wheel; without it the wheel is of any host."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        built = Path(self.root) / "npucall_exec" / "built"
        if not built.is_dir():
            return
        build_data["tag"] = f"py3-none-linux_{(built / 'machine').read_text()}"
        build_data["artifacts"].append("npucall_exec/built/**")
