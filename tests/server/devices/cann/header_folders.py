"""Folders of headers for tests, and the declarations in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BEHIND = "uint64_t *workspaceSize, aclOpExecutor **executor"
PHASE_TWO = "void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream"
RELU = "const aclTensor *self, const aclTensor *out"


def phase_one(name: str, parameters: str) -> str:
    return f"aclnnStatus {name}GetWorkspaceSize({parameters}, {BEHIND});\n"


def phase_two(name: str, parameters: str = PHASE_TWO) -> str:
    return f"aclnnStatus {name}({parameters});\n"


def both(name: str, parameters: str) -> str:
    return phase_one(name, parameters) + phase_two(name)


def folder_of(path: Path, **texts: str) -> Path:
    """A folder of headers; ``level2__x`` is a header in its folder ``level2``."""
    for name, text in texts.items():
        header = path / f"{name.replace('__', '/')}.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(text, encoding="utf-8")
    return path
