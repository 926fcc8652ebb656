"""``npucall mcp``: commands as tools for coding agents, by the Model Context Protocol.

A tool is a command: its name, help and options are those of the command, and a call runs it in a
process of its own, which ends with the call.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

import typer
from typer.models import OptionInfo

import npucall_client
from npucall.texts import cut, missing_extra
from npucall_client.commands.command import commands
from npucall_client.commands.console import TargetOption
from npucall_client.settings import ClientSettings, environment_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_TOOLS = ("info", "operators", "run", "plan", "conform", "bench")
_OURS = frozenset({"target", "target_option", "as_json"})
"""Parameters that no tool has: the command ``npucall mcp`` knows them."""
_BEYOND = frozenset({"against", "fuzz", "reserve", "write_baseline"})
"""Parameters by which a call reaches another target, keeps others from this one, writes files."""
_AS_TEXT = frozenset({"operators"})
"""Commands whose JSON says all there is to know, which is more than an answer may have."""
_KINDS = {int: "integer", float: "number", bool: "boolean"}
_MOST_BYTES = 65_536
_MOST_SECONDS = 600
_AT_ONCE = 2
_MAIN = "import sys; from npucall_client.commands import main; sys.argv[0] = 'npucall'; main()"


def mcp(
    target: TargetOption = None,
    unrestricted: Annotated[  # noqa: FBT002  # a flag
        bool,
        typer.Option(
            "--unrestricted",
            help="Let tools also write files, reserve devices, and call a second target.",
        ),
    ] = False,
) -> None:
    """Serves coding agents: some commands are their tools.

    They are info, operators, run, plan, conform and bench. It speaks the Model Context Protocol on
    standard input and output. All tools call the target of
    this command, whatever an agent asks for. They read .npy files and write none. An answer has
    64 KiB at most, and takes 10 minutes at most.

    Examples:
        npucall mcp --target npu-host:50051
    """
    try:
        from mcp.server.lowlevel import Server  # noqa: PLC0415
        from mcp.server.stdio import stdio_server  # noqa: PLC0415
    except ImportError:
        sys.exit(missing_extra("npucall mcp", "npucall-client", "mcp"))
    tools = Tools(ClientSettings.of(target=target).target, unrestricted=unrestricted)
    server = Server(
        "npucall",
        version=npucall_client.__version__,
        on_list_tools=tools.listed,
        on_call_tool=tools.called,
    )

    async def serve() -> None:
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    asyncio.run(serve())


class ToolInput(NamedTuple):
    """A parameter of a command, as its signature says."""

    kind: type
    many: bool
    option: str
    """How it is written; empty if it is no option."""
    help: str
    needed: bool


class Tools:
    """The commands that agents may call."""

    def __init__(self, target: str, *, unrestricted: bool) -> None:
        every = commands()
        self._commands = {name: every[name]() for name in _TOOLS if name in every}
        self._target, self._unrestricted = target, unrestricted
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def listed(self, *_: object) -> Any:
        """What there is."""
        from mcp import types  # noqa: PLC0415

        hints = types.ToolAnnotations(read_only_hint=not self._unrestricted)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=inspect.getdoc(command) or "",
                    input_schema=_schema(self._parameters(command)),
                    annotations=hints,
                )
                for name, command in self._commands.items()
            ]
        )

    async def called(self, _: object, asked: Any) -> Any:
        """What a command prints; an error says why it printed nothing."""
        from mcp import types  # noqa: PLC0415

        async with self._room:
            text, failed = await self._ran(asked.name, asked.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], is_error=failed
        )

    def _parameters(self, command: Callable[..., Any]) -> dict[str, ToolInput]:
        return {
            name: each
            for name, each in _parameters_of(command).items()
            if name not in _OURS
            and (self._unrestricted or not (each.kind is Path or name in _BEYOND))
        }

    async def _ran(self, name: str, given: Mapping[str, Any]) -> tuple[str, bool]:
        if name not in self._commands:
            return f"tool: expected one of {', '.join(self._commands)}, found {name}", True
        command = self._commands[name]
        known = self._parameters(command)
        if unknown := given.keys() - known.keys():
            return f"{name}: expected {', '.join(known)}, found {', '.join(sorted(unknown))}", True
        in_json = "as_json" in _parameters_of(command) and name not in _AS_TEXT
        flags = ["--json"] if in_json else []
        return await self._printed([name, *flags, *_words(known, given)])

    async def _printed(self, words: Sequence[str]) -> tuple[str, bool]:
        """What a command printed, and whether it failed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _MAIN, *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment_with(target=self._target),
        )  # fmt: skip
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                pipes = process.stdout, process.stderr
                told, said = await asyncio.gather(*(_read(process, pipe) for pipe in pipes))
                code = await process.wait()
        except TimeoutError:
            return f"{words[0]}: took longer than {_MOST_SECONDS} s; ask for less", True
        finally:
            _kill(process)
            await process.communicate()  # what is left of it
        return "\n".join(_cut(part) for part in (told, said) if part), bool(code) and not told


async def _read(process: asyncio.subprocess.Process, pipe: Any) -> bytes:
    """All that it prints, or a little more than may be answered; then it ends."""
    data = bytearray()
    while part := await pipe.read(_MOST_BYTES):
        data += part
        if len(data) > _MOST_BYTES:
            _kill(process)
            break
    return bytes(data)


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it has ended
        if process.returncode is None:
            process.kill()


def _cut(data: bytes) -> str:
    text = data.decode(errors="replace").strip()
    return (
        text if len(data) <= _MOST_BYTES else f"{cut(text, _MOST_BYTES)}\n... (cut; ask for less)"
    )


def _parameters_of(command: Callable[..., Any]) -> dict[str, ToolInput]:
    """The parameters of a command that typer takes."""
    found = {}
    for name, each in inspect.signature(command, eval_str=True).parameters.items():
        given, info = get_args(each.annotation)[:2]
        kinds = [kind for kind in get_args(given) if kind is not NoneType]
        many = list in (get_origin(given), *map(get_origin, kinds))
        kind = kinds[0] if kinds else given
        is_option = isinstance(info, OptionInfo)
        words = (info.default, *(info.param_decls or ()))  # typer has its first name as default
        named = [word for word in words if isinstance(word, str) and word.startswith("--")]
        option = (named or [f"--{name.replace('_', '-')}"])[0] if is_option else ""
        needed = each.default is inspect.Parameter.empty
        kind = get_args(kind)[0] if get_origin(kind) is list else kind
        found[name] = ToolInput(kind, many, option, info.help or "", needed)
    return found


def _schema(parameters: Mapping[str, ToolInput]) -> dict[str, Any]:
    """Parameters of a command as JSON Schema."""
    properties = {}
    for name, each in parameters.items():
        kind: dict[str, Any] = {"type": _KINDS.get(each.kind, "string")}
        if each.many:
            kind = {"type": "array", "items": kind}
        properties[name] = {**kind, "description": each.help}
    needed = [name for name, each in parameters.items() if each.needed]
    return {"type": "object", "properties": properties, "required": needed}


def _words(parameters: Mapping[str, ToolInput], given: Mapping[str, Any]) -> Iterator[str]:
    """The words of a command line; what is no option comes last, so that it may be any text."""
    typed: list[str] = []
    for name, each in parameters.items():
        value = given.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not each.option:
            typed += map(str, values)
        elif each.kind is bool:
            yield from [each.option] * any(values)
        else:
            yield from (f"{each.option}={one}" for one in values)
    yield from ("--", *typed)
