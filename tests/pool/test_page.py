"""docs/pool.md does what it says: three hosts become a pool with two users, by its commands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .hosts import Host, hosts, until

PAGE = (Path(__file__).parents[2] / "docs/pool.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
_, CERTIFICATES, TENANTS, TOKENS, DIRECTORY, COPY, SERVER, SEE, *_, CALL, RESERVE = BLOCKS
NAMES = ("npu-a", "npu-b", "npu-c")
SECONDS = 180.0


class FollowedPage:
    """The page, followed on hosts that are namespaces with a folder each."""

    def __init__(self, folder: Path, made: dict[str, Host], stack: ExitStack) -> None:
        self.folder, self.hosts, self._stack = folder, made, stack
        lines = ["127.0.0.1 localhost", *(f"{e.address} {e.name}" for e in made.values())]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        for name in made:
            (folder / name).mkdir()

    def command(self, name: str, block: str) -> list[str]:
        """A block, run by the shell of a host, which knows the names of all."""
        block = block.replace("--device cann:0 ", "")
        mount = f"mount --bind {shlex.quote(str(self.folder / 'hosts'))} /etc/hosts"
        inside = f'{mount} && exec bash -ec "$1"'
        return self.hosts[name].command("unshare", "--mount", "--", "sh", "-c", inside, "sh", block)

    def settings(self, name: str) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.folder), "COLUMNS": "160", "HOSTNAME": name}

    def run(self, name: str, *blocks: str) -> str:
        """What blocks print."""
        done = subprocess.run(
            self.command(name, "\n".join(blocks)), cwd=self.folder / name,
            env=self.settings(name), capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, name: str, block: str) -> subprocess.Popen[bytes]:
        """What serves until the end; the block is a single command."""
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen(
            self.command(name, f"exec {block}"), cwd=self.folder / name,
            env=self.settings(name), stderr=log,
        )  # fmt: skip
        self._stack.callback(log.close)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def copy(self) -> None:
        """What the rsync of the page does, over no network."""
        for line in COPY.splitlines():
            *files, target = shlex.split(line)[2:]
            for each in files:
                where = self.folder / target.partition(":")[0] / each
                where.parent.mkdir(exist_ok=True)
                shutil.copy2(self.folder / "npu-a" / each, where)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FollowedPage]:
    with ExitStack() as stack:
        made = stack.enter_context(hosts(*NAMES, "laptop"))
        page = FollowedPage(tmp_path_factory.mktemp("hosts"), made, stack)
        page.run("npu-a", CERTIFICATES, TENANTS, TOKENS)
        page.copy()
        page.start("npu-a", DIRECTORY)
        for name in NAMES:
            page.start(name, SERVER)
        for file in ("tls/ca.pem", "alice.token", "bob.token"):
            (page.folder / "laptop/tls").mkdir(exist_ok=True)
            shutil.copy2(page.folder / "npu-a" / file, page.folder / "laptop" / file)
        yield page


def until_told(page: FollowedPage, *blocks: str) -> str:
    """What they print once all members are there."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            told = page.run("laptop", *blocks)
            assert all(f"{name}:50051" in told for name in NAMES), told
        except AssertionError:
            logs = "".join(each.read_text()[-600:] for each in page.folder.glob("*.log"))
            assert time.monotonic() < end, logs
        else:
            return told


def test_the_table_names_every_member(page: FollowedPage) -> None:
    until_told(page, SEE)


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_each_user_calls_with_a_token_and_the_lines_of_the_page(
    page: FollowedPage, user: str
) -> None:
    until_told(page, SEE)
    login = SEE.splitlines()[0].replace("alice", user)
    assert "grad_input" in page.run("laptop", login, CALL)


def test_who_may_reserve_has_two_devices_for_a_command(page: FollowedPage) -> None:
    until_told(page, SEE)
    assert "grad_input" in page.run("laptop", SEE.splitlines()[0], RESERVE)


def test_the_key_of_the_authority_stays_where_it_was_made(page: FollowedPage) -> None:
    assert {each.parts[-3] for each in page.folder.glob("*/tls/ca.key")} == {"npu-a"}


def test_who_brings_nothing_sees_nobody(page: FollowedPage) -> None:
    with pytest.raises(AssertionError, match="expected a token or a client certificate"):
        page.run("laptop", SEE.replace("NPUCALL_TOKEN_FILE=alice.token", ""))


@pytest.mark.long
def test_a_directory_that_moves_is_found_by_its_name(tmp_path: Path) -> None:
    """Of the page of operations: by servers and by clients."""
    directory = "npucall-directory --listen 0.0.0.0:50050 --insecure-bind"
    server = "npucall-server --listen $HOSTNAME:50051 --insecure-bind --announce head:50050"
    members = "npucall members -t pool:directory:head:50050 | grep c:50051 || true"
    with ExitStack() as stack:
        page = FollowedPage(tmp_path, stack.enter_context(hosts("a", "b", "c")), stack)
        known = (tmp_path / "hosts").read_text()
        for name in "a", "b":
            (tmp_path / "hosts").write_text(f"{known}{page.hosts[name].address} head\n")
            at = page.start(name, directory)
            if name == "a":
                page.start("c", server)
            until(lambda: "serving" in page.run("b", members), "the server is found")
            at.kill()
            at.wait()
