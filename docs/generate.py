"""Writes the pages of this folder that follow from the code, and the first picture of README.md.

``python docs/generate.py`` writes them; with ``--check`` nothing is written, and what is out of
date is named (exit code 1). The output is the same on every machine.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Union, get_args, get_origin

import ascend_page
import conformance_page
import operator_page
import page_parts
import system_picture
from pydantic import ByteSize, SecretStr

from npucall import limits
from npucall.errors import (
    PARAM_INVALID,
    PARAM_NULLPTR,
    AclnnStatus,
    ArgumentError,
    ArgumentMissingError,
    NpucallError,
    Repeat,
    SettingError,
)
from npucall.operators import CATALOGUE
from npucall_client.commands.exits import ExitCode as CommandExit
from npucall_client.settings import ClientSettings, Options
from npucall_server.directory.settings import DirectorySettings
from npucall_server.exits import ExitCode
from npucall_server.metrics.declared import BOUNDS_NS, METRICS
from npucall_server.settings.expert import is_expert
from npucall_server.settings.server import ServerSettings
from npucall_server.settings.tenants import Tenant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pydantic.fields import FieldInfo

ROOT = Path(__file__).parents[1]

NOT_IN_A_FILE = ("config",)
"""Settings that make sense on the command line and in the environment alone."""


def main() -> int:
    """Writes the pages, or compares them; answers the exit code."""
    stale = {path: text for path, text in pages().items() if _read(path) != text}
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: make docs", file=sys.stderr)
        return int(bool(stale))
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def pages() -> dict[Path, str]:
    """Every generated text, by its file."""
    docs = ROOT / "docs"
    return {
        docs / "ascend.md": ascend_page.filled(_read(docs / "ascend.md")),
        docs / "conformance.md": conformance_page.filled(_read(docs / "conformance.md")),
        docs / "errors.md": errors_page(),
        docs / "limits.md": limits_page(),
        ROOT / "proto/npucall/environment/known_variables.py": known_variables(),
        ROOT / "proto/npucall/ops.pyi": names_of_operators(),
        docs / "settings.md": settings_page(),
        docs / "exit-codes.md": exit_codes_page(),
        docs / "metrics.md": metrics_page(),
        **{docs / place: text for place, text in operator_page.pages().items()},
        **{ROOT / name: counted(_read(ROOT / name), said) for name, said in COUNTS.items()},
        **{
            docs / name: system_picture.picture(words)
            for name, words in system_picture.WORDS.items()
        },
    }


# --- README.md ------------------------------------------------------------------------------------


COUNTS = {
    "README.md": (r"\d+: \d+ forward operators and \d+ gradients", r"The \d+ operators are"),
    "README.zh-CN.md": (r"共 \d+ 个.\d+ 个前向算子.\d+ 个反向", r"这 \d+ 个算子"),
}
"""How each language says how many operators there are: all, forward and backward; all."""


def counted(page: str, said: tuple[str, ...]) -> str:
    """A page with the numbers of operators of the catalogue. Raises ValueError if it has none."""
    forward, backward = map(len, operator_page.forwards_and_gradients())
    for pattern in said:
        if (found := re.search(pattern, page)) is None:
            raise ValueError(f"README: expected text such as {pattern}, found none")
        numbers = iter((forward + backward, forward, backward))
        told = re.sub(r"\d+", lambda _, left=numbers: str(next(left)), found[0])
        page = page.replace(found[0], told)
    return page


# --- errors.md ------------------------------------------------------------------------------------


def errors_page() -> str:
    """The classes of errors, and the aclnn statuses."""
    statuses = page_parts.table(
        ("status", "name"), [(str(status.value), f"`{status.name}`") for status in AclnnStatus]
    )
    return page_parts.page(
        "Errors",
        """
        Server and client raise the same classes; they are in `npucall.errors`. The server sends an
        error as a gRPC status with `google.rpc.ErrorInfo`. Its `reason` names the class, so any
        gRPC client can tell errors apart. The table shows each class below its base class: `except
        ArgumentError` catches wrong dtypes, shapes, formats and attributes. Where Python has a
        class for such an error, `except ValueError` or `except TimeoutError` does it too.
        """,
        page_parts.table(
            (
                "class",
                "also a",
                "gRPC code",
                "reason",
                "repeated",
                "aclnn status",
                "meaning, and what to do",
            ),
            list(_error_rows(NpucallError, 0)),
        ),
        """
        An aclnn status is what the first phase of the C function gives for the same fault. An error
        that the C function cannot make, a malformed message for example, has none. Of the
        attributes of an error, `str(error)` is one sentence for a person; `code`, `reason`,
        `parameter`, `parameters`, `aclnn_status`, `aclnn_name`, `retry_after` and `details` are for
        programs.
        """,
        "## Repeated",
        """
        A call has no side effects, so any call may be sent again. The class of an error says
        whether that helps (its attribute `repeat`, from `npucall.errors.Repeat`). The client of
        this project follows it; a client in another language should, too.
        """,
        page_parts.table(
            ("repeated", "meaning"),
            [(repeat.value, _attribute_docstrings(Repeat)[repeat.name]) for repeat in Repeat],
        ),
        "## aclnn statuses with a name",
        statuses,
    )


def _error_rows(error: type[NpucallError], depth: int) -> Iterator[tuple[str, ...]]:
    yield (
        "&nbsp;&nbsp;" * depth + f"`{error.__name__}`",
        " ".join(f"`{base.__name__}`" for base in error.__bases__ if _is_standard(base)),
        f"`{error.code.name}`",
        f"`{error.reason}`",
        error.repeat.value,
        _status_of(error),
        page_parts.line(inspect.getdoc(error) or ""),
    )
    for child in error.__subclasses__():
        yield from _error_rows(child, depth + 1)


def _is_standard(base: type) -> bool:
    return base.__module__ == "builtins" and base is not Exception


def _status_of(error: type[NpucallError]) -> str:
    if issubclass(error, SettingError):
        return ""
    if issubclass(error, ArgumentMissingError):
        return str(PARAM_NULLPTR.value)
    return f"{PARAM_INVALID.value} from a rule" if issubclass(error, ArgumentError) else ""


# --- limits.md ------------------------------------------------------------------------------------


def limits_page() -> str:
    """The limits of the contract. One without a docstring fails here."""
    meanings = _attribute_docstrings(limits)
    units = {"KIB", "MIB", "GIB"}
    rows = [
        (f"`{name}`", _amount(name, value), meanings[name])
        for name, value in vars(limits).items()
        if name.isupper() and name not in units
    ]
    return page_parts.page(
        "Limits",
        """
        The limits of the contract, and the lengths that both sides prefer, from `npucall.limits`.
        They are the same for every server. Other limits are [settings](settings.md) of one server,
        which it tells in `GetServerInfoResponse.limits`.
        """,
        page_parts.table(("name", "value", "meaning"), rows),
    )


def _amount(name: str, value: int) -> str:
    """A number; one of bytes in the largest unit that it is a multiple of."""
    if "BYTES" in name:
        for unit, size in {"MiB": limits.MIB, "KiB": limits.KIB}.items():
            if value % size == 0:
                return f"{value // size:,} {unit}"
    return f"{value:,}"


# --- settings.md ----------------------------------------------------------------------------------


def settings_page() -> str:
    """The settings of server and client."""
    server = [_server_row(name, field) for name, field in ServerSettings.model_fields.items()]
    directory = [
        _server_row(name, field, "NPUCALL_DIRECTORY_")
        for name, field in DirectorySettings.model_fields.items()
        if name not in ServerSettings.model_fields or name in DirectorySettings.__annotations__
    ]
    return page_parts.page(
        "Settings",
        "## Server",
        """
        Each setting is a flag of `npucall-server`, an environment variable, or a line of the TOML
        file that `--config` names. A flag wins over the environment, and the environment over the
        file. `npucall-server settings` prints the settings that hold, as such a file. If
        the file has an unknown line, or a value is wrong, the server ends with
        [exit code 2](exit-codes.md). `--help-all` shows those that begin with "Expert" too; most
        servers never need them.
        """,
        page_parts.table(("flag", "environment", "TOML", "type", "default", "meaning"), server),
        "## Tenants",
        """
        A table `[tenants.NAME]` of the TOML file is a tenant: a group of callers with a share of
        the device. The server reads the tenants of the file again when it changes, and on SIGHUP;
        other lines need a restart. `npucall-server tenants check FILE` says what is wrong.
        """,
        page_parts.table(
            ("line", "default", "meaning"),
            [_tenant_row(name, field) for name, field in Tenant.model_fields.items()],
        ),
        "## Directory",
        """
        The variables of `npucall-directory` begin with `NPUCALL_DIRECTORY_`. It has the settings of
        the server that say where it listens, who may call, and what it logs and shows, from
        `config` to `reflection` above, and these.
        """,
        page_parts.table(("flag", "environment", "TOML", "type", "default", "meaning"), directory),
        "## Client",
        """
        The first seven are arguments of `npucall.connect`, the others of `npucall.Options`:
        `connect(target, options=Options(proxy="none"))`. What a program does not give comes from
        the environment.
        """,
        page_parts.table(
            ("argument", "environment", "type", "default", "meaning"), list(_client_rows())
        ),
    )


def names_of_operators() -> str:
    """What type checkers read of `npucall.ops`."""
    found = sorted((each.__name__, each.__module__) for each in CATALOGUE)
    return "".join(f"from {module} import {name} as {name}\n" for name, module in found)


def known_variables() -> str:
    """The module that lists the variables of all settings, for whoever warns of others."""
    names = {f"NPUCALL_{name.upper()}" for name in ClientSettings.model_fields}
    for settings in ServerSettings, DirectorySettings:
        prefix = settings.model_config["env_prefix"]
        names |= {f"{prefix}{name.upper()}" for name in settings.model_fields}
    lines = "".join(f'        "{name}",\n' for name in sorted(names))
    return (
        '"""The variables of the settings of client, server and directory. Generated by '
        'docs/generate.py."""\n\nSETTINGS = frozenset(\n    {\n' + lines + "    }\n)\n"
    )


def _tenant_row(name: str, field: FieldInfo) -> tuple[str, ...]:
    default = "no limit" if field.default is None else _default(field.default)
    return (f"`{field.alias or name}`", default, field.description or "")


def _server_row(name: str, field: FieldInfo, prefix: str = "NPUCALL_") -> tuple[str, ...]:
    return (
        f"`--{name.replace('_', '-')}`",
        f"`{prefix}{name.upper()}`",
        "" if name in NOT_IN_A_FILE else f"`{name}`",
        _type_of(field),
        _default(_default_of(field))
        if "Default:" not in (field.description or "")
        else "see meaning",
        f"{'Expert. ' if is_expert(field) else ''}{field.description or ''}",
    )


def _default_of(field: FieldInfo) -> object:
    return field.get_default(call_default_factory=True, validated_data={})


def _type_of(field: FieldInfo) -> str:
    kind = field.annotation
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is Union:  # of a path and words
        return f"path, or {' or '.join(f'`{word}`' for word in get_args(get_args(kind)[1]))}"
    if get_origin(kind) is dict and get_args(kind)[1] is str:
        return "`NAME=VALUE`, with commas between; a table in TOML"
    if get_origin(kind) is dict:
        return "tables `[tenants.NAME]` of the TOML file"
    if get_origin(kind) is tuple:
        return "integers, a comma between them; in TOML and environment `[1, 2]`"
    words = {str: "text", int: "integer", float: "number", bool: "true or false"}
    words |= {ByteSize: "bytes, or with a unit such as `8GiB`", Path: "path", SecretStr: "secret"}
    words |= {kind | None: word for kind, word in words.items()}
    return ", ".join((words[kind], *_bounds(field)))


def _bounds(field: FieldInfo) -> Iterator[str]:
    said = {"ge": "{} or more", "gt": "more than {}", "le": "at most {}"}
    for bound in field.metadata:
        for attribute, text in said.items():
            if hasattr(bound, attribute):
                yield text.format(getattr(bound, attribute))


def _default(value: object) -> str:
    if value is None or value in ("", (), {}):
        return "not set"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


_CLIENT_TYPES = {
    bool: "true or false",
    int: "integer, 0 or more",
    float: "number, more than 0",
    str: "text",
    dict: "`KEY=VALUE`, with commas between",
}


def _client_type(field: FieldInfo) -> str:
    if field.default is None:  # its annotation says what it is if it is given
        return _CLIENT_TYPES[get_args(field.annotation)[0]]
    return _CLIENT_TYPES[type(field.get_default(call_default_factory=True))]


def _client_rows() -> Iterator[tuple[str, ...]]:
    meanings = _attribute_docstrings(Options) | _attribute_docstrings(ClientSettings)
    own = ClientSettings.model_fields.keys() - Options.model_fields.keys()
    for name, field in sorted(
        ClientSettings.model_fields.items(), key=lambda each: each[0] not in own
    ):
        variable = f"NPUCALL_{name.upper()}"
        yield (
            f"`{name}`",
            f"`{variable}`",
            _client_type(field),
            _default(field.get_default(call_default_factory=True)),
            meanings[name].removesuffix(f" {variable}."),
        )


# --- exit-codes.md --------------------------------------------------------------------------------


def exit_codes_page() -> str:
    """The exit codes of the server and of the command."""
    rows = [
        (str(code.value), f"`{code.name}`", code.meaning, "yes" if code.restart else "no")
        for code in ExitCode
    ]
    of_command = [(str(code.value), code.meaning) for code in CommandExit]
    return page_parts.page(
        "Exit codes",
        "## Servers",
        """
        These are the exit codes of `npucall-server` and of `npucall-directory`, which has no device
        and drains at once. The last column tells a supervisor whether to start it again.
        """,
        page_parts.table(("code", "name", "meaning", "restart"), rows),
        """
        `npucall-server health` exits with 0 if the server that it asks serves, else with 1;
        `npucall-server doctor` with 0 if it finds no fault, else with 69.
        """,
        "## The command npucall",
        page_parts.table(("code", "meaning"), of_command),
        """
        If something went wrong, standard error has one sentence that begins with `npucall:`.
        `npucall reserve` and `npucall record` end with the exit code of their command. If signal N
        ended it, that is 128 + N.
        """,
    )


# --- metrics.md -----------------------------------------------------------------------------------


def metrics_page() -> str:
    """What Prometheus gets of the server."""
    rows = [
        (
            f"`{each.name}`",
            each.kind,
            ", ".join(f"`{label}`" for label in each.labels),
            each.meaning,
        )
        for each in METRICS
    ]
    bounds = ", ".join(f"{bound / 1e9:g}" for bound in BOUNDS_NS)
    return page_parts.page(
        "Metrics",
        """
        A server with `--metrics-listen HOST:PORT` shows these to Prometheus at `/metrics` of that
        address ([operations.md](operations.md#metrics)). Times are in seconds, sizes in bytes. On
        Linux `prometheus_client` adds those of the process:
        `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`,
        `process_max_fds`, `process_start_time_seconds`, `process_virtual_memory_bytes`.
        """,
        page_parts.table(("name", "kind", "labels", "meaning"), rows),
        f"The buckets of histograms end at {bounds} s and infinity.",
    )


# --- Parts ----------------------------------------------------------------------------------------


def _attribute_docstrings(owner: type[object] | ModuleType) -> dict[str, str]:
    """The strings below the attributes of a class or module, which Python itself does not keep."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    if isinstance(body[0], ast.ClassDef):
        body = body[0].body
    return {
        ast.unparse(_target(before)): page_parts.line(ast.literal_eval(after.value))
        for before, after in pairwise(body)
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr)
    }


def _target(assignment: ast.Assign | ast.AnnAssign) -> ast.expr:
    return assignment.target if isinstance(assignment, ast.AnnAssign) else assignment.targets[0]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
