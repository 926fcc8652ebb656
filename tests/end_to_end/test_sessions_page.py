"""docs/sessions.md does what it says, on a server and with ``local:``, and names what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import npucall_client
from npucall import errors

PAGE = (Path(__file__).parents[2] / "docs/sessions.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SECONDS = 60


@pytest.mark.parametrize("where", ["local:", "a server"])
def test_its_program_prints_what_it_says(where: str, npucall_server: str, tmp_path: Path) -> None:
    target = npucall_server if where == "a server" else where
    (tmp_path / "chain.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "chain.py", target],
        cwd=tmp_path,
        env={**os.environ, "NPUCALL_TARGET": "nobody.invalid:1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shape, remote, total = done.stdout.splitlines()
    assert shape == "(64, 1000) float32"
    assert re.fullmatch(rf"<Remote float32 \(64, 1000\) on {target}, \d s old>", remote)
    assert abs(float(total)) < 1


def test_it_explains_every_error_of_sessions() -> None:
    (table,) = re.findall(r"^\| error \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"^\| (\w+Error) \|", table, re.MULTILINE))
    known = {
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.NpucallError)
        and re.match(r"Handle|Session|WrongServer|Missing|Digest", kind.__name__)
    }
    assert named == known


def test_the_methods_that_it_names_are_there() -> None:
    for name in re.findall(r"`session\.(\w+)", PAGE):
        assert hasattr(npucall_client.Session, name), name
    for name in re.findall(r"`p\.(\w+)\(", PAGE):
        assert hasattr(npucall_client.Program, name), name
    for name in re.findall(r"`npucall_client\.(\w+)", PAGE):
        assert hasattr(npucall_client, name), name
