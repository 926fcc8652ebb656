"""``npucall rerun``: recorded calls once more; a server answers the same, nearly, or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from npucall import errors, ops
from npucall_client import Options, connect
from npucall_client.local.transport import LocalTransport
from npucall_conformance import rerun_command as module

from .servers import Altered, Failing, client_of, flip

X = np.linspace(0.1, 2, 24, dtype=np.float32).reshape(4, 6)


def last_bit(storage: bytearray) -> None:
    storage[20] ^= 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two calls that are answered, and one that is refused."""
    path = tmp_path / "calls.rec"
    with connect("local:", options=Options(record=path)) as client:
        client.run(ops.exp, X)
        client.run(ops.kl_div_backward, X, X, X, 0)
        with pytest.raises(errors.ShapeError):
            client.run(ops.l1_loss_backward, X, X[0, :2], X)
    return path


def rerun(monkeypatch: pytest.MonkeyPatch, server: Any, *words: str) -> tuple[int, str]:
    monkeypatch.setattr(module, "connect", lambda *_, **__: client_of(server))
    app = module.typer.Typer()
    app.command("rerun")(module.rerun)
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


def test_answers_are_the_same_or_near_or_differ(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, nearly, wrong = LocalTransport(), Altered(last_bit), Altered(flip)
    standard = ("--profile", "cann-standard")
    code, said = rerun(monkeypatch, same, str(file))
    assert (code, said) == (0, "3 calls: 3 the same, 0 near enough, 0 differ\n")
    code, said = rerun(monkeypatch, nearly, str(file))
    assert code == 1
    first, _, end = said.splitlines()
    assert first.startswith("1 aclnnExp: out[0, 5]: expected ")
    assert first.endswith(" of what cann-standard allows; 1 of 24 elements differ")
    assert end == "3 calls: 1 the same, 0 near enough, 2 differ"
    code, said = rerun(monkeypatch, nearly, str(file), *standard)
    assert (code, said) == (0, "3 calls: 1 the same, 2 near enough, 0 differ\n")
    code, said = rerun(monkeypatch, wrong, str(file), *standard, "--json")
    assert code == 1
    assert [each["status"] for each in json.loads(said)] == ["differs", "differs", "same"]


def test_an_error_where_there_was_none_differs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(lambda _: errors.OutOfMemoryError("no room"))
    code, said = rerun(monkeypatch, failing, str(file))
    assert code == 1
    assert "1 aclnnExp: expected an answer, found DEVICE_MEMORY: no room" in said
    assert "3 aclnnL1LossBackward: expected SHAPE_MISMATCH 161002: " in said


def test_a_file_without_calls_is_not_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calls.rec"
    with connect("local:", options=Options(record=path)):
        pass
    code, said = rerun(monkeypatch, LocalTransport(), str(path))
    assert (code, said) == (1, "0 calls: 0 the same, 0 near enough, 0 differ\n")
