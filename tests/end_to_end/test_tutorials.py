"""Pages do what they say: files run, commands print what is shown, names are there."""

import ast
import asyncio
import base64
import json
import os
import re
import runpy
import shlex
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import npucall
import npucall_client
from npucall import errors
from npucall.v1 import operator_service_pb2
from npucall_client import aio

from .pages import ROOT, Command, File, blocks, steps, text
from .test_readme import TUTORIALS

SECONDS = 600
TOOLS = Path(sys.executable).parent


def ran(folder: Path, program: str, *arguments: str) -> str:
    """What a program prints that ends well."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    done = run([sys.executable, "-W", "error", "program.py", *arguments], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}", "NPUCALL_TARGET": "nobody.invalid:1"}
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **own, **variables},
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


HOSTS = re.compile(r"\bnpu-\w+:50051")


def follow(page: str, folder: Path, target: str, commands: Path | None = None) -> None:
    """Follows the page in an empty folder; every host of the page is this target.

    ``commands`` is the folder of python and npucall, of this environment if not given.
    """
    path = f"{commands or Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if key != "NPUCALL_TARGET"}
    environment = {**kept, "PATH": path, "COLUMNS": "100", "PYTHONWARNINGS": "error"}
    if "$ . .venv/bin/activate" in page:  # as make demo has left it
        (folder / ".venv").symlink_to(sys.prefix)
    if not (folder / "npucall").exists():
        (folder / "npucall").symlink_to(ROOT)  # as a clone would be
    for step in steps(page):
        if isinstance(step, File):
            (folder / step.name).write_text(step.text, encoding="utf-8")
            continue
        done = subprocess.run(
            ["bash", "-ec", HOSTS.sub(target, step.line)],
            cwd=folder, env=environment, timeout=SECONDS, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        fails = "Error" in step.printed
        assert (done.returncode != 0) == fails, f"$ {step.line}\n{done.stdout}"
        assert same(step.printed, done.stdout), f"$ {step.line}\n{done.stdout}"


def test_the_notebook_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    cells = json.loads(text("examples/first_hour.ipynb"))["cells"]
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        exec("".join(cell["source"]), names)
        assert capsys.readouterr().out == "".join(
            "".join(output["text"]) for output in cell["outputs"]
        )


def same(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n"
        for line in shown.splitlines()
    )
    plain = "".join(line.rstrip() + "\n" for line in printed.splitlines())
    return re.fullmatch(pattern, plain) is not None


@pytest.mark.parametrize(
    "page", [TUTORIALS[0], *(pytest.param(page, marks=pytest.mark.more) for page in TUTORIALS[1:])]
)
def test_a_tutorial_does_what_it_shows(page: str, npucall_server: str, tmp_path: Path) -> None:
    assert steps(text(page))
    follow(text(page), tmp_path, npucall_server)


@pytest.mark.long  # half a minute each
@pytest.mark.parametrize(
    "told",
    [
        ("local:", "--quick"),
        ("SERVER", "--quick", "--html", "report.html"),
        ("SERVER", "--quick", "--against", "local:"),
    ],
    ids=" ".join,
)
def test_the_quick_suite_judges_a_cpu_server_right(
    told: tuple[str, ...], npucall_server: str, tmp_path: Path
) -> None:
    line = shlex.join(("npucall", "conform", *told)).replace("SERVER", npucall_server)
    follow(f"```console\n$ {line}\n...\n```\n", tmp_path, npucall_server)


ADDRESS = "https://lab.example/npucall"


def typed(commands: str, folder: Path, repository: Path) -> None:
    """Commands that install, in an empty folder; git finds the repository by an address."""
    environment = {
        **os.environ,
        "REPOSITORY": ADDRESS,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
    }
    subprocess.run(["bash", "-ec", commands], cwd=folder, env=environment, check=True)


@pytest.mark.long
@pytest.mark.parametrize("page", ["docs/laptop.md", "docs/ci.md"])
def test_a_tutorial_takes_a_new_user_from_an_empty_folder_to_its_end(
    page: str, repository: Path, npucall_server: str, tmp_path: Path
) -> None:
    typed(blocks(page, "sh")[0], tmp_path, repository)
    follow(text(page), tmp_path, npucall_server, tmp_path / ".venv/bin")


@pytest.mark.long
def test_one_command_installs_from_git(repository: Path, tmp_path: Path) -> None:
    (line,) = re.findall(r"^pip install .*git\+(?:.*\\\n)*.*$", text("README.md"), re.MULTILINE)
    typed(f"python3 -m venv .venv\n.venv/bin/{line}", tmp_path, repository)
    typed(".venv/bin/npucall conform local: --quick --operator Log", tmp_path, repository)


def test_what_is_otherwise_than_a_page_shows_is_found(tmp_path: Path) -> None:
    assert same("1 passed in ...\n", "1 passed in 0.02s\n")
    assert same("...\nlast\n", "first  \nsecond\nlast\n")
    assert not same("[-0.1]\n", "[0.1]\n")
    assert not same("[-0.1]\n", "[-0.1]\nWarning\n")
    assert not same("1 passed in ...\n", "2 passed in 0.02s\n")
    with pytest.raises(AssertionError, match="false"):
        follow("```console\n$ false\n```\n", tmp_path, "local:")
    page = "```python\n# a.py\nx\n```\n```console\n$ one\n1\n\n2\n$ two\n```\n"
    commands = Command("one", "1\n\n2\n"), Command("two", "")
    assert steps(page) == [File("a.py", "# a.py\nx\n"), *commands]


# --- docs/sessions.md -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["local:", pytest.param("a server", marks=pytest.mark.more)])
def test_the_program_of_sessions_prints_what_it_says(
    where: str, npucall_server: str, tmp_path: Path
) -> None:
    target = npucall_server if where == "a server" else where
    (program,) = blocks("docs/sessions.md", "python")
    shape, remote, total = ran(tmp_path, program, target).splitlines()
    assert shape == "(64, 1000) float32"
    assert re.fullmatch(rf"<Remote float32 \(64, 1000\) on {target}, \d+ s old>", remote)
    assert abs(float(total)) < 1


def test_the_page_of_sessions_explains_every_error_of_sessions() -> None:
    page = text("docs/sessions.md")
    (table,) = re.findall(r"^\| error \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    kinds = r"(Handle|Session|WrongServer|Missing|Digest)\w*Error"
    known = {name for name in vars(errors) if re.fullmatch(kinds, name)}
    assert set(re.findall(r"^\| (\w+Error) \|", table, re.MULTILINE)) == known


def test_the_methods_that_pages_name_are_there() -> None:
    for page, pattern, owners in (
        ("docs/sessions.md", r"`session\.(\w+)", (npucall_client.Session,)),
        ("docs/sessions.md", r"`p\.(\w+)\(", (npucall_client.Program,)),
        ("docs/sessions.md", r"`npucall\.(\w+)", (npucall,)),
        ("docs/aio.md", r"\bclient\.(\w+)\(", (aio.Client,)),
        ("docs/aio.md", r"\bs\.(\w+)\(", (aio.Session,)),
        ("docs/aio.md", r"\bp\.(\w+)\(", (aio.Pipeline, aio.Program)),
    ):
        named = re.findall(pattern, text(page))
        assert named, (page, pattern)
        assert [n for n in named if not any(hasattr(owner, n) for owner in owners)] == []


# --- docs/aio.md ----------------------------------------------------------------------------------

SCRIPT, CELL, SERVICE = blocks("docs/aio.md", "python")


@pytest.mark.parametrize("where", ["local:", pytest.param("a server", marks=pytest.mark.more)])
def test_the_script_of_asyncio_prints_the_sums(
    where: str, npucall_server: str, tmp_path: Path
) -> None:
    printed = ran(tmp_path, SCRIPT, npucall_server if where == "a server" else where)
    assert [float(line) for line in printed.split()] == [5.0, 0.0, -5.0, -5.0]


def test_the_cell_of_asyncio_runs_as_a_notebook_runs_it(
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
        self.lifespan, self.state = lifespan, SimpleNamespace()
        self.routes: dict[str, Any] = {}

    def post(self, path: str) -> Any:
        return lambda handler: self.routes.setdefault(path, handler)


def test_the_web_server_of_asyncio_answers_requests_side_by_side(
    npucall_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastapi = ModuleType("fastapi")
    fastapi.__dict__.update(FastAPI=FastAPI, Request=object)
    monkeypatch.setitem(sys.modules, "fastapi", fastapi)
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


# --- docs/clients.md ------------------------------------------------------------------------------

CLIENTS = "docs/clients.md"


def shell(number: int, target: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of the page, asked of this server."""
    command = blocks(CLIENTS, "sh")[number].replace("127.0.0.1:50051", target)
    return run(["sh", "-c", command], folder)


def has(whole: Any, part: Any) -> bool:
    """Whether what the page shows of an answer is in it."""
    if isinstance(part, dict):
        return all(key in whole and has(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(has, whole, part))
    return bool(whole == part)


def test_the_program_of_clients_prints_what_it_says_with_stubs_and_grpc_alone(
    npucall_server: str, tmp_path: Path
) -> None:
    (program,) = blocks(CLIENTS, "python")
    imported = re.findall(r"^(?:from|import) (\S+)", program, re.MULTILINE)
    assert set(imported) == {"struct", "sys", "grpc", "google.rpc", "npucall.v1"}
    assert ran(tmp_path, program, npucall_server) == blocks(CLIENTS, "text")[1]


@pytest.mark.more
def test_buf_lists_calls_and_decodes_errors_by_reflection_alone(
    npucall_server: str, tmp_path: Path
) -> None:
    jsons = [json.loads(block) for block in blocks(CLIENTS, "json")]
    done = shell(0, npucall_server, tmp_path)
    assert done.stdout.strip() == blocks(CLIENTS, "text")[0].strip(), done.stderr
    for number, name in (1, "plan.json"), (2, "execute.json"):
        assert f"`{name}`" in text(CLIENTS)
        (tmp_path / name).write_text(json.dumps(jsons[2 * number - 2]), encoding="utf-8")
        done = shell(number, npucall_server, tmp_path)
        assert done.returncode == 0, done.stderr
        assert has(json.loads(done.stdout), jsons[2 * number - 1])
    asked = json.dumps({"call": {"operator": "aclnnKlDivBackwards"}})
    (tmp_path / "plan.json").write_text(asked, encoding="utf-8")
    (detail,) = json.loads(shell(1, npucall_server, tmp_path).stderr)["details"]
    padded = detail["value"] + "=" * (-len(detail["value"]) % 4)
    assert base64.b64decode(padded)
    decode = blocks(CLIENTS, "sh")[-1].replace("VALUE", padded)
    assert has(json.loads(run(["sh", "-c", decode], tmp_path).stdout), jsons[-1])


def frames_of(page: str) -> list[tuple[str, bytes, bool]]:
    """Who sends them, the bytes (those that differ are 0), whether a message follows."""
    found: list[tuple[str, bytes, bool]] = []
    for line in blocks(page, "hex")[0].splitlines():
        who, _, told = line.partition("#")[0].partition(" ")
        data = bytes.fromhex(told.replace("*", "").replace("..", "00"))
        if found and who == "C" == found[-1][0]:
            data = found.pop()[1] + data
        found.append((who, data, "*" in told))
    return found


def test_the_bytes_of_clients_are_a_call_without_grpc(npucall_server: str) -> None:
    with npucall_client.connect(npucall_server) as client, socket.socket(socket.AF_UNIX) as peer:
        peer.connect(client.server_info().frames_socket)
        peer.settimeout(60)
        for who, data, has_message in frames_of(CLIENTS):
            if who == "C":
                peer.sendall(data)
                continue
            header = peer.recv(16, socket.MSG_WAITALL)
            message = peer.recv(int.from_bytes(header[:4], "little"), socket.MSG_WAITALL)
            assert header[4:] == data[4:]
            assert bool(message) == has_message
    response = operator_service_pb2.ExecuteResponse.FromString(message)
    assert struct.unpack("<2f", response.storage[0].data) == (-0.25, -0.75)


# --- docs/torch.md --------------------------------------------------------------------------------


class Here:
    """Runs programs in this process, since torch takes long to import."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys, self._patch = capsys, patch

    def output(self, path: Path, *told: str) -> str:
        """What a program prints that ends well."""
        self._patch.setattr(sys, "argv", [str(path), *told])
        self._patch.syspath_prepend(path.parent)
        ended: object = 0
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            ended = end.code
        assert not ended
        return self._capsys.readouterr().out


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(capsys, monkeypatch)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:this backward spent")
def test_the_programs_of_torch_print_what_it_says(
    npucall_server: str, tmp_path: Path, here: Here
) -> None:
    pytest.importorskip("torch")
    check, step = blocks("docs/torch.md", "python")
    (table,) = blocks("docs/torch.md", "")
    (tmp_path / "check.py").write_text(check, encoding="utf-8")
    (tmp_path / "step.py").write_text(step, encoding="utf-8")
    printed = here.output(tmp_path / "check.py", "local:")
    assert without_numbers(printed) == without_numbers(table)
    said = re.findall(r"print\(.*?\)  # (.*)$", step, re.MULTILINE)
    assert here.output(tmp_path / "step.py", npucall_server).splitlines() == said


def without_numbers(table: str) -> str:
    """The table without its errors, which differ from machine to machine."""
    return re.sub(r" +(?=\n)| {2,}|\b\d(\.\d+)?(e-\d+)?(?=  )", " ", table).replace(" ", "")


@pytest.mark.torch
def test_the_functions_of_torch_are_those_that_there_are() -> None:
    pytest.importorskip("torch")
    from npucall_client.torch import Functional

    page = text("docs/torch.md")
    (listed,) = re.findall(r"^- losses: .*?(?=\n\n)", page, re.MULTILINE | re.DOTALL)
    there = {name for name in vars(Functional) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", listed)) == there


@pytest.mark.torch
def test_a_student_learns_with_gradients_of_a_server_as_with_those_of_torch(
    npucall_server: str, tmp_path: Path, here: Here
) -> None:
    pytest.importorskip("torch")
    picture = tmp_path / "curve.svg"
    printed = here.output(ROOT / "examples/distill.py", npucall_server, "--picture", str(picture))
    assert re.search(r"^60 steps in [\d.]+ s, at most \S+ apart$", printed, re.MULTILINE)
    assert picture.read_text(encoding="utf-8").count("<polyline") == 2


@pytest.mark.torch
@pytest.mark.parametrize("steps", [4, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize(("program", "needed"), [("gpt", "torch"), ("resnet", "sklearn")])
def test_a_model_learns_on_a_server_as_by_torch(
    npucall_server: str, tmp_path: Path, here: Here, program: str, needed: str, steps: int
) -> None:
    """The program compares at each step, and ends with 1 if a number is not near enough."""
    pytest.importorskip("torch")
    pytest.importorskip(needed)
    picture = tmp_path / "curve.svg"
    told = "--target", npucall_server, "--steps", str(steps), "--picture", str(picture)
    printed = here.output(ROOT / f"examples/train_{program}.py", *told)
    (up, down) = re.findall(r"([\d.]+) MiB (?:to the server|back)", printed)
    assert 0 < float(up) < 16
    assert 0 < float(down) < 16
    assert picture.read_text(encoding="utf-8").count("<polyline") == 2
