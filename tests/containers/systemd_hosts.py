"""Hosts with a real systemd, which boots in namespaces of its own on Debian's packages."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.pool.hosts import OWN, Host, hosts, need, until

from .engines import FOLDER, ROOT

SYSTEM = FOLDER / "systemd"
DEBIAN = "systemd,systemd-sysv,python3,python3-venv,ca-certificates"
PATIENCE = 1800
_GROUPS = Path("/sys/fs/cgroup/systemd")
_HERE = """\
mkdir -p /etc/npucall; cd /etc/npucall
export PATH=/root/bin:/opt/npucall/bin:/usr/sbin:/usr/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/root/wheels
"""
# The system on what is only read; control groups of systemd's own hierarchy. $1: the host's name.
_BOOT = """\
set -e
mount -t tmpfs tmpfs {run}
mkdir {run}/new {run}/work {run}/root
mount -t overlay -o lowerdir={system},upperdir={run}/new,workdir={run}/work overlay {run}/root
cd {run}/root
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
for folder in run tmp sys/fs/cgroup; do mount -t tmpfs tmpfs $folder; done
mount --bind {home} root
mkdir -p sys/fs/cgroup/systemd {group}/$1
mount --bind {group}/$1 sys/fs/cgroup/systemd
echo 1 > {group}/$1/cgroup.procs
echo $1 > etc/hostname
echo
exec env container=npucall-test chroot . /lib/systemd/systemd
"""


def blocks(page: str) -> list[str]:
    """What a page has a shell do, block by block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class SystemdHost:
    """``run`` is a shell on it, as root in /etc/npucall; /root is the same on all hosts."""

    def __init__(self, host: Host) -> None:
        self.host = host
        spaces = ["nsenter", f"--target={host.pid}", "--all", "--root", "--wd"]
        self._enter = [*spaces, "env", "-i", "HOME=/root", "LANG=C.UTF-8", "COLUMNS=160"]
        until(self._boots, f"systemd of {host.name} starts")

    def _boots(self) -> bool:
        """Until then its root is that of the machine."""
        return Path(f"/proc/{self.host.pid}/exe").readlink().name == "systemd"

    def run(self, script: str, *, good: bool = True) -> str:
        done = subprocess.run(
            [*self._enter, "bash", "-ec", f"{_HERE}\n{script}"],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert not good or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def until(self, script: str, *expected: str) -> str:
        """What the script says as soon as it says all of this."""
        ends = time.monotonic() + PATIENCE
        while not all(each in (said := self.run(script, good=False)) for each in expected):
            assert time.monotonic() < ends, said + self.run("journalctl --no-pager | tail -40")
            time.sleep(0.2)
        return said


@contextmanager
def booted(folder: Path, *names: str) -> Iterator[dict[str, SystemdHost]]:
    """Hosts on one switch, which know each other's names. Their files are gone at the end."""
    need("mmdebstrap util-linux", "mmdebstrap")
    _build_system()
    _fill(home := folder / "root")
    (run := folder / "run").mkdir()
    group = _GROUPS / f"npucall-test-{os.getpid()}"
    boot = _BOOT.format(system=SYSTEM, home=home, run=run, group=group)
    try:
        with hosts(*names, kinds=OWN, first=("bash", "-c", boot, "boot")) as made:
            found = {name: SystemdHost(host) for name, host in made.items()}
            known = "\n".join(f"{host.address} {name}" for name, host in made.items())
            for host in found.values():
                state = "systemctl is-system-running --wait | grep -E 'running|degraded'"
                host.until(f"{state} && echo booted", "booted")
                host.run(f"echo '127.0.0.1 localhost\n{known}' > /etc/hosts")
            yield found
    finally:
        until(lambda: _is_removed(group), "what systemd started has ended")


def _is_removed(group: Path) -> bool:
    for each in [*sorted(group.rglob("*/"), reverse=True), group]:
        with suppress(OSError):  # of a process that has not ended yet
            each.rmdir()
    return not group.exists()


def _build_system() -> None:
    """Debian with systemd, once."""
    if not SYSTEM.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        unfinished = SYSTEM.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = ["mmdebstrap", "--variant=minbase", f"--include={DEBIAN}", "bookworm", unfinished]
        subprocess.run(command, check=True, capture_output=True)
        unfinished.rename(SYSTEM)


def _fill(folder: Path) -> None:
    """The home of root: a checkout, and the wheels of deploy/README.md."""
    for name in "proto", "server", "client", "deploy":
        shutil.copytree(ROOT / name, folder / name)
    wheels = ["--only-binary=:all:", "--dest", folder / "wheels", "-c", "constraints.txt"]
    places = ["hatchling", "./proto", "./server[auth,metrics]", "./client[cli]"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *wheels, *places]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
