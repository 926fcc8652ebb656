"""``npucall conform --fuzz`` and ``--export`` as a command."""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from npucall.operators.smooth_l1_loss import smooth_l1_loss
from npucall_client.conformance import command

from .seeded import changed, fault

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

OPERATOR = "SmoothL1Loss"
RIGHT = smooth_l1_loss.formula


@wraps(RIGHT)
def too_large(*args: Any, **more: Any) -> Any:
    return RIGHT(*args, **more) * 3.0


FAULT = fault("losses are three times too large", OPERATOR,
              changed(smooth_l1_loss, formula=too_large), found_in="fuzz")  # fmt: skip


def call(*words: str) -> Result:
    app = typer.Typer()
    app.command("conform")(command.conform)
    app.command("replay")(command.replay)
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def test_random_calls_of_a_right_server_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("conform", "local:", "--fuzz", "1", "--operator", OPERATOR)
    assert (result.exit_code, result.exception) == (0, None)
    assert "in what was chosen (--fuzz 1 --operator SmoothL1Loss)" in result.output
    assert not (tmp_path / "npucall-failures").exists()


def test_what_fails_is_a_bundle_that_fails_again_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        FAULT.seed(patched)
        result = call("conform", "local:", "--fuzz", "2", "--operator", OPERATOR)
        assert result.exit_code == 1
        assert "npucall replay npucall-failures/aclnnSmoothL1Loss__fuzz__" in result.output
        folder, *_ = (tmp_path / "npucall-failures").iterdir()
        assert "drawn: self " in json.loads((folder / "case.json").read_text())["problems"][-1]
        assert call("replay", str(folder), "local:").exit_code == 1
    assert call("replay", str(folder), "local:").exit_code == 0


@pytest.mark.parametrize("words", [("--block", "grid"), ("--quick",), ("--case", "x")])
def test_filters_of_cases_have_no_meaning_beside_random_calls(words: tuple[str, ...]) -> None:
    result = call("conform", "local:", "--fuzz", "1", *words)
    assert isinstance(result.exception, ValueError)
    assert "fuzz: expected none of --case" in str(result.exception)


def test_golden_data_need_no_server(tmp_path: Path) -> None:
    words = ["--operator", "Glu", "--block", "grid", "--soc", "Ascend950PR_9589"]
    result = call("conform", "nowhere:1", "--export", str(tmp_path / "gold"), *words)
    assert (result.exit_code, result.exception) == (0, None)
    manifest = json.loads((tmp_path / "gold" / "manifest.json").read_text())
    assert (manifest["product"], manifest["profile"]) == ("Ascend950", "cann-standard")
    assert f"{len(manifest['cases'])} cases for Ascend950" in result.output
