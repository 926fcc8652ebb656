"""``npucall mcp``: what an agent sees, spoken by the official SDK's own client over pipes."""

import asyncio
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the extra cli is not installed")

from npucall_client.commands import mcp_server  # needs typer

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="the extra mcp is not installed")
NPUCALL = str(Path(sys.executable).with_name("npucall"))


def asked(*words: str, calls: list[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], list[Any]]:
    """The tools, and the answers to calls, each with whether it is an error."""
    import mcp  # takes a second

    arguments = ["mcp", "--target", "local:", *words]
    server = mcp.StdioServerParameters(command=NPUCALL, args=arguments, env={**os.environ})

    async def ask() -> tuple[dict[str, Any], list[Any]]:
        async with mcp.Client(server) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            answers = [await client.call_tool(*call) for call in calls]
        return tools, [(each.is_error, each.content[0].text) for each in answers]

    return asyncio.run(ask())


def test_a_tool_runs_its_command_with_what_it_may_be_given() -> None:
    agents, anybodys = (mcp_server.Tools("local:", unrestricted=free) for free in (False, True))
    text, failed = asyncio.run(agents._ran("run", {"operator": "Exp", "arguments": ["self=[0]"]}))
    assert (json.loads(text)["outputs"]["out"]["values"], failed) == ([1.0], False)
    for name, given, ending in (
        ("run", "save", ", found save"),
        ("info", "target", "found target"),
    ):
        text, failed = asyncio.run(agents._ran(name, {given: "x"}))
        assert (text.endswith(ending), failed) == (True, True)
    bench = anybodys._parameters(anybodys._commands["bench"]).keys()
    assert {"reserve", "against", "svg"} <= bench
    assert "target" not in bench


@pytest.mark.more
def test_an_agent_runs_an_operator_and_its_mistakes_are_told() -> None:
    expected = "self=[0,1]"
    tools, answers = asked(
        calls=[
            ("run", {"operator": "Exp", "arguments": [expected], "dtype": "f16"}),
            ("run", {"operator": "Exq", "arguments": [expected]}),
            ("run", {"operator": "Exp", "arguments": ["--save=x"]}),
            ("run", {"operator": "Exp", "arguments": [expected], "save": "x"}),
            ("info", {"target": "elsewhere:1"}),
            ("top", {}),
        ]
    )
    assert [*tools] == ["info", "operators", "run", "plan", "conform", "bench"]
    assert all(tool.annotations.read_only_hint for tool in tools.values())
    run = tools["run"].input_schema
    assert run["required"] == ["operator", "arguments"]
    assert {each["type"] for each in run["properties"].values()} == {"string", "array", "number"}
    assert all(each["description"] for each in run["properties"].values())
    assert [failed for failed, _ in answers] == [False] + [True] * 5
    ran, unknown, option, file, target, tool = [text for _, text in answers]
    assert json.loads(ran)["outputs"]["out"]["values"] == [1.0, 2.71875]
    assert unknown.startswith("npucall: operator: expected one that this server lists, found ")
    assert option.startswith("npucall: --save=x: expected NAME=VALUE")
    assert file.endswith(", found save")
    assert target == "info: expected soc, found target"
    assert tool.startswith("tool: expected one of info, operators, ")


@pytest.mark.more
def test_an_agent_looks_plans_measures_and_judges() -> None:
    _, answers = asked(
        calls=[
            ("info", {}),
            ("operators", {"name": "KlDiv"}),
            ("plan", {"operator": "Exp", "arguments": ["self=bf16:2x3"]}),
            ("bench", {"operator": "Exp", "shape": "4x4", "count": 3, "warm_up": 0}),
            ("conform", {"operator": ["Exp"], "dtype": ["f32"], "quick": True}),
        ]
    )
    assert [failed for failed, _ in answers] == [False] * 5
    info, operator, planned, measured, judged = [text for _, text in answers]
    assert json.loads(info)["carrier"] == "local"
    assert operator.startswith("aclnnKlDiv\n")
    assert json.loads(planned)["outputs"] == {"out": {"dtype": "BF16", "shape": [2, 3]}}
    assert len(json.loads(measured)["runs"][0]["run_ns"]) == 3
    assert "Conforms" in judged


@pytest.mark.more
def test_unrestricted_tools_also_write_files_and_reserve(tmp_path: Path) -> None:
    call = {"operator": "Exp", "arguments": ["self=[0]"], "save": str(tmp_path)}
    tools, ((failed, _),) = asked("--unrestricted", calls=[("run", call)])
    assert (failed, [*tmp_path.iterdir()]) == (False, [tmp_path / "out.npy"])
    assert not tools["run"].annotations.read_only_hint
    assert {"reserve", "against", "svg"} <= set(tools["bench"].input_schema["properties"])


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("_MOST_BYTES", 100, "\n... (cut; ask for less)"),
        ("_MOST_SECONDS", 0, "info: took longer than 0 s; ask for less"),
    ],
)
def test_an_answer_is_bounded_and_so_is_its_time(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float, said: str
) -> None:
    monkeypatch.setattr(mcp_server, limit, value)
    tools = mcp_server.Tools("local:", unrestricted=False)
    text, failed = asyncio.run(tools._ran("info", {}))
    assert text.endswith(said)
    assert failed == (limit == "_MOST_SECONDS")
