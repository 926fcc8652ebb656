"""Without PyTorch the client says which extra brings it."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_without_torch_the_import_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("npucall_client.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="expected PyTorch, found none; pip install 'npucall-cl"):
        importlib.import_module("npucall_client.torch")
