"""The TOML file of a pool: what it says, and what is said of one that is wrong."""

import re
from pathlib import Path

import pytest
from tests.rows import each

from npucall_pool.plan import PlannedDirectory, PoolPlan, Servers
from npucall_pool.pool_file import read
from npucall_pool.ports import Ports

ROOT = Path(__file__).parents[2]
INSECURE = {"insecure_bind": True}


def test_the_example_is_a_server_for_each_npu() -> None:
    plan = read(ROOT / "deploy/ray/pool.toml")
    assert plan == PoolPlan((Servers(),), INSECURE, directory=PlannedDirectory(settings=INSECURE))


def test_its_lines_in_comments_are_right_too(tmp_path: Path) -> None:
    text = (ROOT / "deploy/ray/pool.toml").read_text()
    whole = tmp_path / "whole.toml"
    whole.write_text(re.sub(r"^# (?=.*[=\]])", "", text, flags=re.MULTILINE))
    plan = read(whole)
    assert plan.announce == "10.0.0.8:50050"
    assert plan.settings == {**INSECURE, "labels": {"rack": "7"}}
    assert plan.servers[1] == Servers(
        "cpu", hosts=("10.0.0.6", "10.0.0.7"), settings={"memory_limit": "2GiB"}
    )


def test_a_file_may_say_all(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(
        'environment = "/e"\nset_env = "/s"\nfolder = "/f"\nports = "1-2"\ndrain = 3\n'
        'announce = "d:1"\ndirectory = {port = 4}\n'
        '[[servers]]\nresource = "TPU"\nper_host = 0\n'
    )
    servers = (Servers(resource="TPU", per_host=0),)
    assert read(file) == PoolPlan(
        servers, {}, "/e", "/s", "/f", Ports(1, 2), 3, "d:1", PlannedDirectory(4)
    )


@each(
    ("text", "why"),
    [
        ("x", "expected a TOML file, found: Expected '='"),
        ("", "servers: expected [[servers]], a table for each kind, found none"),
        ("servers = 3", "servers: expected tables, each below [[servers]], found 3"),
        ("servers = [3]", "servers: expected tables, each below [[servers]], found [3]"),
        ("[servers]", "servers: expected tables, each below [[servers]], found {}"),
        ("port = 3", "port: expected a name that this table has; did you mean ports?"),
        ("drain = -1", "drain: expected 0 or more, found -1"),
        ("drain = true", "drain: expected a number, found True"),
        ('ports = "none"', "ports: expected FIRST-LAST, such as 50051-50082, found 'none'"),
        ("[directory]\nport = 1.5", "directory.port: expected a whole number, found 1.5"),
        ("[[servers]]\ndevise = 'cpu'", "servers[0].devise: expected a name that this table has"),
        ("[[servers]]\nhosts = 'a'", "servers[0].hosts: expected a list of texts, found 'a'"),
        ("[[servers]]\nhosts = [1]", "servers[0].hosts: expected a list of texts, found [1]"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "pool.toml"
    file.write_text(text if "servers" in text or not text else f"{text}\n[[servers]]\n")
    with pytest.raises(ValueError, match=re.escape(f"{file}: {why}")):
        read(file)
