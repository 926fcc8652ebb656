"""docs/clients.md does what it says: its program, and its commands where buf is installed."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(PROGRAM,) = [text for kind, text in BLOCKS if kind == "python"]
TEXTS = [text for kind, text in BLOCKS if kind == "text"]
JSONS = [json.loads(text) for kind, text in BLOCKS if kind == "json"]
COMMANDS = [text for kind, text in BLOCKS if kind == "sh"]
TARGET = "127.0.0.1:50051"
BUF = Path(sys.executable).with_name("buf")
SECONDS = 60
needs_buf = pytest.mark.skipif(not BUF.exists(), reason="buf is not installed")


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": f"{BUF.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def shell(number: int, target: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of the page, asked of this server."""
    return run(["sh", "-c", COMMANDS[number].replace(TARGET, target)], folder)


def assert_has(whole: Any, part: Any) -> None:
    """What the page shows of an answer is in it."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert_has(whole[key], value)
    elif isinstance(part, list):
        assert len(whole) == len(part)
        for one, other in zip(whole, part, strict=True):
            assert_has(one, other)
    else:
        assert whole == part


def test_its_program_prints_what_it_says(npucall_server: str, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PROGRAM, encoding="utf-8")
    done = run([sys.executable, "-W", "error", "plain.py", npucall_server], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == TEXTS[1]


def test_its_program_has_generated_stubs_and_grpc_alone() -> None:
    imported = re.findall(r"^(?:from|import) (\S+)", PROGRAM, re.MULTILINE)
    assert set(imported) == {"struct", "sys", "grpc", "google.rpc", "npucall.v1"}


@needs_buf
def test_buf_lists_the_services(npucall_server: str, tmp_path: Path) -> None:
    done = shell(0, npucall_server, tmp_path)
    assert done.stdout.strip() == TEXTS[0].strip(), done.stderr


@needs_buf
@pytest.mark.parametrize(("number", "name"), [(1, "plan.json"), (2, "execute.json")])
def test_buf_calls_by_reflection_alone(
    npucall_server: str, tmp_path: Path, number: int, name: str
) -> None:
    question, answer = JSONS[2 * number - 2], JSONS[2 * number - 1]
    assert f"`{name}`" in PAGE
    (tmp_path / name).write_text(json.dumps(question), encoding="utf-8")
    done = shell(number, npucall_server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert_has(json.loads(done.stdout), answer)


@needs_buf
def test_the_details_of_an_error_can_be_decoded(npucall_server: str, tmp_path: Path) -> None:
    asked = json.dumps({"call": {"operator": "aclnnKlDivBackwards"}})
    (tmp_path / "plan.json").write_text(asked, encoding="utf-8")
    refused = shell(1, npucall_server, tmp_path)
    (detail,) = json.loads(refused.stderr)["details"]
    padded = detail["value"] + "=" * (-len(detail["value"]) % 4)
    assert base64.b64decode(padded)
    decode = COMMANDS[-1].replace("VALUE", padded)
    done = run(["sh", "-c", decode], tmp_path)
    assert_has(json.loads(done.stdout), JSONS[-1])
