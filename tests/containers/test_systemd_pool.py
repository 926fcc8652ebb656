"""docs/pool.md under a real systemd on each of three hosts."""

import time
from collections.abc import Iterator

import pytest
from tests.summary import figures

from .systemd_hosts import SystemdHost, blocks, booted

pytestmark = [pytest.mark.containers, pytest.mark.long]

BLOCKS = blocks("docs/pool.md")
INSTALL, CERTIFICATES, TENANTS, TOKENS, _, COPY, _, SEE, OF_DIRECTORY, OF_SERVERS, KEEP, *_ = BLOCKS
CALL, RESERVE = BLOCKS[-2:]
NAMES = ("npu-a", "npu-b", "npu-c")
# The page's rsync, without a network between shells: all hosts have one /root.
RSYNC = """\
#!/bin/bash
mkdir -p /root/sent && cp --parents -a "${@:2:$#-2}" /root/sent
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SystemdHost]]:
    with booted(tmp_path_factory.mktemp("pool"), *NAMES) as made:
        yield made


def test_the_page_leads_to_a_pool_that_systemd_keeps(lab: dict[str, SystemdHost]) -> None:
    began = time.monotonic()
    first = lab["npu-a"]
    first.run(
        f"mkdir /root/bin; cat > /root/bin/rsync <<'END'\n{RSYNC}END\nchmod +x /root/bin/rsync"
    )
    install, of_directory, of_server = KEEP.splitlines(keepends=True)
    for host in lab.values():
        host.run(f"groupadd HwHiAiUser; python3 -m venv /opt/npucall; cd /root; {INSTALL}")
    first.run(CERTIFICATES + TENANTS + TOKENS + COPY + OF_DIRECTORY)
    for name in NAMES[1:]:
        lab[name].run("cp -a /root/sent/. .; ! test -e tls/ca.key")
    for host in lab.values():
        host.run(f"{OF_SERVERS}echo CANN_SET_ENV=/dev/null >> server.env")  # an NPU's host,
        host.run("echo NPUCALL_DEVICE=cpu >> server.env")  # which computes on the CPU
        host.run(f"cd /root; {install}{of_directory * (host is first)}{of_server}")
    members = first.until(SEE, *(f"{name}:50051" for name in NAMES))
    figures(f"three hosts: {time.monotonic() - began:.0f} s")
    assert members.count("serving") == len(NAMES)
    serves_both_users(first)
    comes_back(lab)


def serves_both_users(host: SystemdHost) -> None:
    login = SEE.splitlines()[0]
    for name in "alice", "bob":
        said = host.run(f"{login.replace('alice', name)}\n{CALL}")
        assert "grad_input = [ 1., -1.]" in said
    assert "grad_input" in host.run(f"{login}\n{RESERVE}")


def comes_back(lab: dict[str, SystemdHost]) -> None:
    """Whatever is killed: a server, and the directory."""
    login, killed = SEE.splitlines()[0], "systemctl kill --signal=KILL"
    lab["npu-b"].run(f"{killed} npucall-server@0")
    lab["npu-a"].run(f"{killed} npucall-directory; {login}\n{CALL}")
    lab["npu-a"].until(SEE, *(f"{name}:50051" for name in NAMES))
    for name, unit in ("npu-a", "npucall-directory"), ("npu-b", "npucall-server@0"):
        lab[name].until(f"systemctl show --property=NRestarts,ActiveState {unit}", "NRestarts=1")
        lab[name].until(f"systemctl is-active --quiet {unit} && echo up", "up")
