"""Without PyTorch the client says which extra brings it."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_without_torch_the_import_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("npucall_client.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ImportError, match=r"the extra torch is missing; pip install 'npucall-client\[torch\]'"
    ):
        importlib.import_module("npucall_client.torch")
