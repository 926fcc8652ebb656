"""docs/lab.md under a real systemd, and what it says of a server that does not start."""

import time
from collections.abc import Iterator

import pytest
from tests.summary import figures

from .systemd_hosts import SystemdHost, blocks, booted

pytestmark = [pytest.mark.containers, pytest.mark.long]

HEALTH = "npucall-server health 127.0.0.1:50052"
INSTALL, TENANTS, TOKENS, _, WATCH, KEEP, USER, _, USAGE = blocks("docs/lab.md")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdHost]:
    with booted(tmp_path_factory.mktemp("lab"), "npu-host") as made:
        yield made["npu-host"]


def test_the_page_leads_to_servers_that_systemd_keeps(host: SystemdHost) -> None:
    began = time.monotonic()
    install = KEEP.splitlines(keepends=True)[0]
    assert "no group HwHiAiUser" in host.run(f"cd /root\n{install}")
    host.run("cd /root; pip install ./proto './client[cli]'")
    host.run("groupadd HwHiAiUser; echo CANN_SET_ENV=/dev/null > server.env")  # an NPU's host
    host.run(next(line for line in INSTALL.splitlines() if "certificates" in line))
    assert "vision" in host.run(TENANTS + "sed -i '1i device = \"cpu\"' server.toml")
    host.run(TOKENS)
    assert host.run("stat -c %a *.token").split() == ["600"] * 3
    host.run(f"cd /root\n{KEEP}")
    assert host.run("stat -c %U tls/ca.key tls/npu-host.key").split() == ["root", "npucall"]
    serves_three_users(host)
    figures(f"one NPU for three users: {time.monotonic() - began:.0f} s")
    keeps_their_account(host)
    serves_without_an_npu_by_the_other_unit(host)
    says_in_the_journal_what_keeps_it_down(host)


def serves_three_users(host: SystemdHost) -> None:
    host.until(HEALTH, "SERVING")
    for name, tenant in ("alice", "vision"), ("bob", "speech"), ("root", "nightly"):
        said = host.run(USER.replace("alice.token", f"{name}.token"))
        assert f"known as         {tenant}/{name} by token" in said


def keeps_their_account(host: SystemdHost) -> None:
    host.run("systemctl restart npucall-server@0")
    host.until(HEALTH, "SERVING")
    assert "alice" in host.run(WATCH.splitlines()[0] + f"\n{USAGE}")
    host.run("systemctl stop npucall-server@0; ! systemctl is-failed npucall-server@0")


def serves_without_an_npu_by_the_other_unit(host: SystemdHost) -> None:
    host.run("mv server.toml cpu.toml; systemctl start npucall-cpu@0")
    host.until(HEALTH, "SERVING")
    assert "vision/alice by token" in host.run(USER)
    host.run("systemctl stop npucall-cpu@0; ! systemctl is-failed npucall-cpu@0")


def says_in_the_journal_what_keeps_it_down(host: SystemdHost) -> None:
    host.run("sed -i s/weight/wieght/ cpu.toml; ! systemctl start npucall-cpu@0")
    host.until("journalctl --no-pager -u npucall-cpu@0", "wieght")
    host.until("systemctl is-failed npucall-cpu@0", "failed")
