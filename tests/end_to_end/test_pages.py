"""The pages for those who change or run npucall: short enough, and what they name is there."""

import ast
import re
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from npucall_server.directory.settings import DirectorySettings
from npucall_server.settings.server import ServerSettings

from .pages import ROOT, prose, text, tracked

DOCS = ROOT / "docs"
ARCHITECTURE = DOCS / "architecture.md"
NAMING = [
    ARCHITECTURE,
    DOCS / "decisions.md",
    DOCS / "words.md",
    DOCS / "data-path.md",
    DOCS / "operations.md",
    ROOT / "CONTRIBUTING.md",
]
PACKAGES = {
    "npucall": ROOT / "proto/npucall",
    "npucall_client": ROOT / "client/npucall_client",
    "npucall_server": ROOT / "server/npucall_server",
    "npucall_conformance": ROOT / "conformance/npucall_conformance",
    "npucall_exec": ROOT / "exec/npucall_exec",
    "npucall_pool": ROOT / "pool/npucall_pool",
}

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COMMENT = re.compile(r'"""(?:.*?)"""|^\s*(?:#|//|;).*?$|\s#\s.*?$', re.MULTILINE | re.DOTALL)
OF_OTHERS = {
    # Programs and options of others, and names that only they have.
    *("systemctl", "reload", "journald", "ulimit", "ssh", "aclTensor", "aclOpExecutor", "grpcurl"),
    *("SSL_CERT_FILE", "shm_size", "taskset", "instrument", "SystemMaxUse"),
    *(
        "randomly_seed",
        "numpy",
        "asarray",
        "no_proxy",
        "terminationGracePeriodSeconds",
        "TimeoutStopSec",
    ),
    # What stands for something else.
    *("X", "x", "PATH", "HOST", "PORT", "NAME", "KEY", "VALUE", "FILE", "Name", "members"),
}


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def names_in_the_code() -> frozenset[str]:
    """Every name that stands in the code itself: not in comments, docstrings or pages."""
    names: set[str] = set()
    for path in tracked():
        names.update(NAME.findall(page_id(path)))
        if path.suffix in (".md", ".svg", ".binpb", ".png") or path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        names.update(NAME.findall(COMMENT.sub("", text) if path.suffix == ".py" else text))
    return frozenset(names)


def unknown_names(text: str) -> list[str]:
    """Names of a text in backticks that no code has; flags are settings with hyphens."""
    known = names_in_the_code() | OF_OTHERS
    flat = re.sub(r"--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), text)
    flat = re.sub(r"\.\.\.|…", " ", flat)
    return [name for name in NAME.findall(flat) if name not in known]


def test_the_architecture_can_be_read_in_a_quarter_of_an_hour() -> None:
    assert len(ARCHITECTURE.read_text(encoding="utf-8").splitlines()) <= 200


def test_what_a_page_names_is_in_the_code() -> None:
    missing: dict[Any, Any] = {}
    for page in NAMING:
        codes = CODE.findall(prose(page))
        assert codes
        missing |= {(page, code): names for code in codes if (names := unknown_names(code))}
    assert missing == {}
    assert unknown_names("Executor.admit") == []
    assert unknown_names("--drain-timeout") == []
    assert unknown_names("--drain-patience") == ["drain_patience"]
    assert unknown_names("npucall_server.no_such_room") == ["no_such_room"]


def test_every_module_that_a_page_names_is_there() -> None:
    named = {code for page in NAMING for code in CODE.findall(prose(page))}
    dotted = [
        n
        for n in named
        if re.fullmatch(r"npucall(_client|_server|_conformance|_exec|_pool)?(\.\w+)+", n)
    ]
    assert dotted
    assert [code for code in dotted if not is_there(code)] == []


def is_there(dotted: str) -> bool:
    """Whether it is a module or package, a name that a module has, or a group of entry points."""
    if any(
        f'entry-points."{dotted}"' in page.read_text() for page in ROOT.glob("*/pyproject.toml")
    ):
        return True
    package, *rest = dotted.split(".")
    path = PACKAGES[package]
    if rest[:1] == ["v1"]:
        protos = (proto.read_text(encoding="utf-8") for proto in path.glob("v1/*.proto"))
        return not rest[1:] or any(f" {rest[1]} {{" in text for text in protos)
    for number, part in enumerate(rest):
        if (path / part).is_dir():
            path /= part
            continue
        module = path / f"{part}.py"
        if module.exists():
            return all(name in module.read_text(encoding="utf-8") for name in rest[number + 1 :])
        return part in (path / "__init__.py").read_text(encoding="utf-8")
    return True


def flags_of_nothing(page: str) -> list[str]:
    """Flags in blocks of shell that are no settings of the server that the line starts."""
    kinds: dict[str, Any] = {
        "npucall-server": ServerSettings,
        "npucall-directory": DirectorySettings,
    }
    wrong = []
    for language, block in FENCE.findall(page):
        for line in block.replace("\\\n", " ").splitlines() if language == "sh" else []:
            if started := re.match(r"(npucall-server|npucall-directory) +(--[^#]*)", line):
                known = kinds[started[1]].model_fields
                flags = re.findall(r"--([a-z-]+)", started[2])
                wrong += [flag for flag in flags if flag.replace("-", "_") not in known]
    return wrong


def test_commands_of_operations_have_only_flags_that_there_are() -> None:
    page = text("docs/operations.md")
    assert flags_of_nothing(page) == []
    assert flags_of_nothing(page.replace("--tls-key", "--tls-lock")) == ["tls-lock"]


def test_operations_have_every_event_of_the_log_and_no_other() -> None:
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    files = PACKAGES["npucall_server"].rglob("*.py")
    code = "".join(file.read_text(encoding="utf-8") for file in files)
    told = r'(?:\.event|\._say|\._tell|\._end|\.release_any)\(\s*"([^"]+)"'
    events = set(re.findall(told, code))
    assert len(events) > 10
    assert [event for event in sorted(events) if f"`{event}`" not in page] == []
    (table,) = re.findall(r"\| event \|.*?\n\n", page, re.DOTALL)
    cells = re.findall(r"^\| (`[^|]*)\|", table, re.MULTILINE)
    listed = set(re.findall(r"`([^`]+)`", " ".join(cells)))
    assert "draining" in listed
    assert listed - events - {"call", "shared memory refused", "log lines dropped"} == set()


def test_every_decision_says_why_and_what_it_costs() -> None:
    text = (DOCS / "decisions.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    entries = [[cell.strip() for cell in row] for row in rows]
    assert len(entries) > 50
    assert [row for row in entries if len(row) != 3 or not all(row)] == []


def test_no_page_has_marks_of_a_merge() -> None:
    marks = re.compile(r"^(<{7} |={7}$|>{7} )", re.MULTILINE)
    pages = [path for path in tracked() if path.suffix == ".md"]
    assert [page_id(page) for page in pages if marks.search(page.read_text(encoding="utf-8"))] == []


@cache
def layers() -> dict[str, list[set[str]]]:
    """The layers of each container, from above, by the import contracts."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {
        contract["containers"][0]: [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if "containers" in contract
    }


def picture_of_layers() -> str:
    (picture, _) = [text for _, text in FENCE.findall(ARCHITECTURE.read_text(encoding="utf-8"))]
    return str(picture)


def chains(picture: str) -> dict[str, list[list[set[str]]]]:
    """Of each package the chains of boxes, each with the modules that it names."""
    found: dict[str, list[list[set[str]]]] = {}
    for package, body in re.findall(r"subgraph (\w+)\n(.*?)\n  end", picture, re.DOTALL):
        boxes: dict[str, set[str]] = {}
        found[package] = []
        for line in body.splitlines():
            chain = []
            for box, label in re.findall(r'(\w+)(?:\["([^"]*)"\])?(?: -->|$)', line.strip()):
                boxes.setdefault(box, set(label.split(" · ")))
                chain.append(boxes[box])
            found[package].append(chain)
    return found


def out_of_order(picture: str) -> list[tuple[str, str]]:
    """Pairs of modules in boxes that follow each other, which are in no such order of layers."""
    wrong = []
    for package, lines in chains(picture).items():
        place = {name: n for n, layer in enumerate(layers()[package]) for name in layer}
        for upper, lower in (pair for chain in lines for pair in pairwise(chain)):
            wrong += [(a, b) for a in upper for b in lower if place[a] >= place[b]]
    return wrong


def test_the_picture_of_the_layers_is_that_of_the_import_contracts() -> None:
    picture = picture_of_layers()
    assert set(chains(picture)) == set(PACKAGES)
    assert out_of_order(picture) == []
    exchanged = out_of_order(picture.replace('c6["local · pool · sessions"]', 'c6["client"]'))
    assert ("base", "client") in exchanged
    assert ("client", "base") not in exchanged


def test_every_room_of_a_distribution_is_in_the_picture_and_in_the_table_of_folders() -> None:
    named = set(CODE.findall(ARCHITECTURE.read_text(encoding="utf-8")))
    for package, lines in chains(picture_of_layers()).items():
        drawn = {name for chain in lines for box in chain for name in box}
        rooms = [file.parent for file in PACKAGES[package].glob("*/__init__.py")]
        assert {room.name for room in rooms} - drawn == set()
        assert {page_id(room) + "/" for room in rooms} - named == set()


def test_contributing_names_the_tests_of_every_room() -> None:
    row = (
        r"^\| ((?:`npucall\w*(?:/\w+)?/`(?:, )?)+) \| `\.venv/bin/python -m pytest -q ([^`]+)` \|$"
    )
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(row, page, re.MULTILINE)
    named = {room for rooms, _ in rows for room in CODE.findall(rooms)}
    rooms = {
        f"{name}/{file.parent.name}/"
        for name, folder in PACKAGES.items()
        for file in folder.glob("*/__init__.py")
    }
    assert rooms - named == {"npucall/v1/"}  # generated
    assert named - rooms == {f"{name}/" for name in PACKAGES} - {"npucall_server/"}
    tests = [word for _, command in rows for word in command.split() if "/" in word]
    assert [each for each in tests if not all(map(list, map(ROOT.glob, spelled_out(each))))] == []


def spelled_out(pattern: str) -> list[str]:
    """What a shell makes of braces."""
    before, braces, rest = pattern.partition("{")
    inside, _, behind = rest.partition("}")
    return [before + each + behind for each in inside.split(",")] if braces else [before]


# --- What packages say of themselves --------------------------------------------------------------


def names_said(docstring: str) -> set[str]:
    """Modules that a docstring names: as code, or at the beginning of a line of a table."""
    listed = re.findall(r"^    (\w+(?:, \w+)*)  ", docstring, re.MULTILINE)
    return {*re.findall(r"``(\w+)``", docstring), *re.findall(r"\w+", " ".join(listed))}


def test_a_distribution_says_what_its_rooms_are() -> None:
    wrong = {}
    for folder in PACKAGES.values():
        source = (folder / "__init__.py").read_text(encoding="utf-8")
        said = names_said(ast.get_docstring(ast.parse(source)) or "")
        rooms = {file.parent.name for file in folder.glob("*/__init__.py")}
        modules = {file.stem for file in folder.glob("*.py")} - {"__init__"}
        generated = {name for name in modules if name.endswith(("_pb2", "_pb2_grpc"))}
        if unsaid := (rooms | modules) - generated - said:
            wrong[folder] = unsaid
        assert folder != PACKAGES["npucall"] or "v1" in said
    assert wrong == {}
