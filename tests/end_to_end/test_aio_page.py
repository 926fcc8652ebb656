"""docs/aio.md does what it says: its script, its cell of a notebook, its web server."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from npucall_client import aio

PAGE = (Path(__file__).parents[2] / "docs/aio.md").read_text(encoding="utf-8")
SCRIPT, CELL, SERVICE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SECONDS = 60


@pytest.mark.parametrize("where", ["local:", "a server"])
def test_its_script_prints_the_sums(where: str, npucall_server: str, tmp_path: Path) -> None:
    target = npucall_server if where == "a server" else where
    (tmp_path / "many.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "many.py", target],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [float(line) for line in done.stdout.split()] == [5.0, 0.0, -5.0, -5.0]


def test_its_cell_runs_as_a_notebook_runs_it(
    npucall_server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUCALL_TARGET", npucall_server)
    code = compile(CELL, "cell.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def notebook() -> None:
        await eval(code, {})  # the page's own

    asyncio.run(notebook())
    assert capsys.readouterr().out == "(2, 4)\n"


class FastAPI:
    """As much of FastAPI as the page takes."""

    def __init__(self, lifespan: Any) -> None:
        self.lifespan, self.state, self.routes = lifespan, SimpleNamespace(), {}

    def post(self, path: str) -> Any:
        def taken(handler: Any) -> Any:
            self.routes[path] = handler
            return handler

        return taken


def test_its_web_server_answers_requests_side_by_side(
    npucall_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = ModuleType("fastapi")
    stand_in.__dict__.update(FastAPI=FastAPI, Request=object)
    monkeypatch.setitem(sys.modules, "fastapi", stand_in)
    monkeypatch.setenv("NPUCALL_TARGET", npucall_server)
    service: dict[str, Any] = {}
    exec(compile(SERVICE, "service.py", "exec"), service)  # the page's own
    app = service["app"]

    def request(*body: list[float]) -> Any:
        async def json() -> Any:
            return body

        return SimpleNamespace(app=app, json=json)

    async def serve() -> Any:
        async with app.lifespan(app):
            handler = app.routes["/gradient"]
            bodies = [([n, 2.0], [1.0, 1.0]) for n in (0.0, 1.0, 2.0)]
            return await asyncio.gather(*(handler(request(*body)) for body in bodies))

    answers = asyncio.run(serve())
    assert answers == [{"gradient": [sign / 2, 0.5]} for sign in (-1.0, 0.0, 1.0)]


def test_the_methods_that_it_names_are_there() -> None:
    for name in re.findall(r"\bclient\.(\w+)\(", PAGE):
        assert hasattr(aio.Client, name), name
    for name in re.findall(r"\bs\.(\w+)\(", PAGE):
        assert hasattr(aio.Session, name), name
    for name in re.findall(r"\bp\.(\w+)\(", PAGE):
        assert hasattr(aio.Pipeline, name) or hasattr(aio.Program, name), name
