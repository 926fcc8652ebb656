"""docs/lab.md under a real systemd, which boots in namespaces of its own on Debian's packages."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pool.hosts import need

from .engines import FOLDER, ROOT

pytestmark = [pytest.mark.containers, pytest.mark.long]

SYSTEM = FOLDER / "systemd"
DEBIAN = "systemd,systemd-sysv,python3,python3-venv,ca-certificates"
HEALTH = "npucall-server health 127.0.0.1:50052"
PATIENCE = 600
BLOCKS = re.findall(
    r"^```sh\n(.*?)^```$",
    (ROOT / "docs/lab.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)
INSTALL, TENANTS, TOKENS, _, WATCH, KEEP, USER, _, USAGE = BLOCKS
HERE = """\
mkdir -p /etc/npucall; cd /etc/npucall
export PATH=/opt/npucall/bin:/usr/sbin:/usr/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/root/wheels
"""
# The system on what is only read; the control groups of systemd's own hierarchy.
BOOT = """\
set -e
mount -t tmpfs tmpfs {run}
mkdir {run}/new {run}/work {run}/root
mount -t overlay -o lowerdir={system},upperdir={run}/new,workdir={run}/work overlay {run}/root
cd {run}/root
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
for folder in run tmp sys/fs/cgroup; do mount -t tmpfs tmpfs $folder; done
mount --bind {given} root
mkdir -p sys/fs/cgroup/systemd /sys/fs/cgroup/systemd/npucall-test
mount --bind /sys/fs/cgroup/systemd/npucall-test sys/fs/cgroup/systemd
echo 1 > /sys/fs/cgroup/systemd/npucall-test/cgroup.procs
ip link set lo up
exec env container=npucall-test chroot . /lib/systemd/systemd
"""


class Host:
    """A host with systemd; ``run`` is a shell on it, as root in /etc/npucall."""

    def __init__(self, process: int) -> None:
        spaces = ["nsenter", f"--target={process}", "--all", "--root", "--wd"]
        self._enter = [*spaces, "env", "-i", "HOME=/root", "LANG=C.UTF-8"]

    def run(self, script: str, *, good: bool = True) -> str:
        done = subprocess.run(
            [*self._enter, "bash", "-ec", f"{HERE}\n{script}"],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert not good or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def until(self, script: str, expected: str) -> str:
        """What the script says as soon as it says this."""
        ends = time.monotonic() + PATIENCE
        while expected not in (said := self.run(script, good=False)):
            assert time.monotonic() < ends, said + self.run("journalctl --no-pager | tail -40")
            time.sleep(0.2)
        return said


def build_system() -> None:
    """Debian with systemd, once."""
    if not SYSTEM.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        unfinished = SYSTEM.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = ["mmdebstrap", "--variant=minbase", f"--include={DEBIAN}", "bookworm", unfinished]
        subprocess.run(command, check=True, capture_output=True)
        unfinished.rename(SYSTEM)


def fill(folder: Path) -> None:
    """The home of root: a checkout, and the wheels of deploy/README.md."""
    for name in "proto", "server", "client", "deploy":
        shutil.copytree(ROOT / name, folder / name)
    wheels = ["--only-binary=:all:", "--dest", folder / "wheels", "-c", "constraints.txt"]
    places = ["hatchling", "./proto", "./server[auth,metrics]", "./client[cli]"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *wheels, *places]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    need("mmdebstrap util-linux", "mmdebstrap")
    build_system()
    fill(given := tmp_path_factory.mktemp("root"))
    run = tmp_path_factory.mktemp("run")
    spaces = ["--pid", "--mount", "--uts", "--ipc", "--net", "--fork", "--mount-proc"]
    boot = ["unshare", *spaces, "bash", "-c", BOOT.format(system=SYSTEM, given=given, run=run)]
    started = subprocess.Popen(boot)
    try:
        yield Host(_child_of(started.pid))
    finally:
        subprocess.run(["pkill", "-KILL", "-P", str(started.pid)], check=False)
        started.wait(PATIENCE)


def _child_of(process: int) -> int:
    """The first process of the namespaces, as soon as it is systemd."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        if children and "systemd" in Path(f"/proc/{children[0]}/cmdline").read_text():
            return int(children[0])
        time.sleep(0.1)
    raise AssertionError("systemd did not start")


def test_the_page_leads_to_servers_that_systemd_keeps(host: Host) -> None:
    install = KEEP.splitlines(keepends=True)[0]
    host.until(
        "systemctl is-system-running --wait | grep -E 'running|degraded' && echo booted", "booted"
    )
    assert "no group HwHiAiUser" in host.run(f"cd /root\n{install}")
    host.run("cd /root; pip install ./proto './client[cli]'")
    host.run("groupadd HwHiAiUser; echo CANN_SET_ENV=/dev/null > server.env")  # an NPU's host
    host.run(next(line for line in INSTALL.splitlines() if "certificates" in line))
    assert "vision" in host.run(TENANTS + "sed -i '1i device = \"cpu\"' server.toml")
    host.run(TOKENS)
    assert host.run("stat -c %a *.token").split() == ["600"] * 3
    host.run(f"echo 127.0.0.1 npu-host >> /etc/hosts; cd /root\n{KEEP}")
    serves_three_users_and_keeps_their_account(host)
    serves_without_an_npu_by_the_other_unit(host)
    says_in_the_journal_what_keeps_it_down(host)


def serves_three_users_and_keeps_their_account(host: Host) -> None:
    host.until(HEALTH, "SERVING")
    for name, tenant in ("alice", "vision"), ("bob", "speech"), ("root", "nightly"):
        said = host.run(USER.replace("alice.token", f"{name}.token"))
        assert f"known as         {tenant}/{name} by token" in said
    host.run("systemctl restart npucall-server@0")
    host.until(HEALTH, "SERVING")
    assert "alice" in host.run(WATCH.splitlines()[0] + f"\n{USAGE}")
    host.run("systemctl stop npucall-server@0; ! systemctl is-failed npucall-server@0")


def serves_without_an_npu_by_the_other_unit(host: Host) -> None:
    host.run("mv server.toml cpu.toml; systemctl start npucall-cpu@0")
    host.until(HEALTH, "SERVING")
    assert "vision/alice by token" in host.run(USER)
    host.run("systemctl stop npucall-cpu@0; ! systemctl is-failed npucall-cpu@0")


def says_in_the_journal_what_keeps_it_down(host: Host) -> None:
    host.run("sed -i s/weight/wieght/ cpu.toml; ! systemctl start npucall-cpu@0")
    host.until("journalctl --no-pager -u npucall-cpu@0", "wieght")
    host.until("systemctl is-failed npucall-cpu@0", "failed")
