"""A Slurm cluster of this machine: each node a network namespace with a host name of its own.

Its daemons are Debian's. Nothing of it is left when ``cluster`` ends: the namespaces have no names
in the file system but those under ``PREFIX``, and every process that was started in them is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PREFIX = "npucall-slurm"
"""Of the names of network namespaces."""
PROGRAMS = ("ip", "munged", "nsenter", "sbatch", "slurmctld", "slurmd", "unshare")
PATIENCE = 400.0
"""Seconds after which a wait gives up; most take some."""
_NETWORK = "198.18.77"
_CONTROLLER = "controller"


class Node(NamedTuple):
    """A host of the cluster."""

    name: str
    number: int
    npus: int

    @property
    def address(self) -> str:
        """Its own, on the bridge."""
        return f"{_NETWORK}.{self.number}"

    @property
    def namespace(self) -> str:
        return f"{PREFIX}-{self.name}"


CONTROLLER = Node(_CONTROLLER, 1, 0)
NODES = (Node("npu1", 11, 2), Node("npu2", 12, 2))
HOSTS = (CONTROLLER, *NODES)


def missing() -> str:
    """Why there can be no cluster here, in a sentence; empty if there can."""
    if not sys.platform.startswith("linux"):
        return "expected Linux, whose network namespaces this needs"
    if os.geteuid() != 0:
        return "expected root, for network namespaces"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"expected {', '.join(absent)} on the path: apt-get install slurmctld slurmd munge"
    return ""


def until(condition: Callable[[], bool], what: str, within: float = PATIENCE) -> float:
    """Waits for something that another process does; answers how many seconds that took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() > start + within:
            raise AssertionError(f"did not happen in {within:g} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - start


def run(*command: str | Path) -> str:
    """What a command prints; raises AssertionError with what it says where it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


@dataclass
class Cluster:
    """A controller and its nodes, which all see the same files."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]]

    def inside(self, node: Node) -> list[str]:
        """What a command has to begin with to run on a node, under its name, with locks of its own.

        Not ``ip netns exec``, which mounts /sys anew, without the control groups that slurmd wants.
        """
        script = (
            'mount --make-rprivate / && mount --bind "$1/hosts" /etc/hosts '
            '&& mount --bind "$1/lock-$2" /run/lock && hostname "$2" && shift 2 && exec "$@"'
        )
        return [
            *("nsenter", f"--net=/run/netns/{node.namespace}", "unshare", "--uts", "--mount"),
            *("sh", "-c", script, "sh", str(self.folder), node.name),
        ]

    def start(self, name: str, node: Node, *command: str) -> None:
        """Starts a daemon; what it says is in a file of its name."""
        with (self.folder / f"{name}.out").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                [*self.inside(node), *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start_node(self, node: Node) -> None:
        """Starts slurmd of a node."""
        self.start(node.name, node, "slurmd", "-D", "-N", node.name)

    def kill(self, name: str) -> None:
        """Kills a daemon; what it has started lives on."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def end(self) -> None:
        """Kills all that runs on its hosts."""
        _kill_all()
        for daemon in self.daemons.values():
            daemon.wait()

    @property
    def environment(self) -> dict[str, str]:
        """Of whoever uses the cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def call(self, *command: str, **variables: str) -> str:
        """What a command prints on the controller's host."""
        result = subprocess.run(
            [*self.inside(CONTROLLER), *command],
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    def cut(self, node: Node, *, cut: bool = True) -> None:
        """Pulls the cable of a node, or plugs it in again."""
        run("ip", "-n", f"{PREFIX}-net", "link", "set", node.name, "down" if cut else "up")

    def node_state(self, node: Node) -> str:
        """Of a node, as Slurm says it, such as ``idle`` or ``down*``."""
        return self.call("sinfo", "--noheader", f"--nodes={node.name}", "--format=%T").split("\n")[
            0
        ]

    def jobs(self, *numbers: str) -> dict[str, tuple[str, str]]:
        """State and node of each job that has not ended; of those alone, if any are named."""
        listed = self.call("squeue", "--noheader", "--array", "--format=%i|%T|%N").splitlines()
        fields = (line.split("|") for line in listed)
        found = {name: (state, node) for name, state, node in fields}
        return {each: found[each] for each in numbers or found if each in found}


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster whose nodes are up. ``folder`` holds what it writes."""
    _remove_namespaces()
    made = Cluster(folder, {})
    with ExitStack() as stack:
        stack.callback(_remove_namespaces)
        stack.callback(made.end)
        _lay_cables()
        _write_files(folder)
        _start(made)
        yield made


def _start(made: Cluster) -> None:
    folder = made.folder
    munge = folder / "munge"
    made.start(
        "munged",
        CONTROLLER,
        *("munged", "--foreground", "--force", f"--key-file={munge}/key"),
        *(f"--socket={munge}/socket", f"--pid-file={munge}/pid"),
        *(f"--log-file={munge}/log", f"--seed-file={munge}/seed"),
    )
    until((munge / "socket").exists, "munged listens")
    made.start("slurmctld", CONTROLLER, "slurmctld", "-D", "-i")
    for node in NODES:
        made.start_node(node)
    until(lambda: all(made.node_state(node) == "idle" for node in NODES), "all nodes are there")


def _lay_cables() -> None:
    """A bridge in a namespace of its own, and one cable from it to each host."""
    network = f"{PREFIX}-net"
    run("ip", "netns", "add", network)
    run("ip", "-n", network, "link", "add", "bridge", "type", "bridge")
    run("ip", "-n", network, "link", "set", "bridge", "up")
    for host in HOSTS:
        run("ip", "netns", "add", host.namespace)
        pair = ("eth0", "netns", host.namespace)
        run("ip", "-n", network, "link", "add", host.name, "type", "veth", "peer", "name", *pair)
        run("ip", "-n", network, "link", "set", host.name, "master", "bridge", "up")
        run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", host.namespace, "link", "set", device, "up")


def _namespaces() -> Sequence[str]:
    names = (line.split()[0] for line in run("ip", "netns", "list").splitlines())
    return [name for name in names if name.startswith(PREFIX)]


def _kill_all() -> None:
    for name in _namespaces():
        for process in run("ip", "netns", "pids", name).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)


def _remove_namespaces() -> None:
    _kill_all()
    for name in _namespaces():
        run("ip", "netns", "delete", name)


def _write_files(folder: Path) -> None:
    each = [f"{kind}-{host.name}" for kind in ("lock", "spool") for host in HOSTS]
    for name in ("munge", "state", "shared", *each):
        (folder / name).mkdir(mode=0o700)
    (folder / "munge/key").write_bytes(os.urandom(128))
    (folder / "munge/key").chmod(0o600)
    names = "".join(f"{host.address} {host.name}\n" for host in HOSTS)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
    # Plain files stand for the device nodes: Slurm wants them to exist, and opens none.
    gres = []
    for node in NODES:
        for index in range(node.npus):
            device = folder / f"davinci-{node.name}-{index}"
            device.touch()
            gres.append(f"NodeName={node.name} Name=npu Type=Ascend910B File={device}\n")
    (folder / "gres.conf").write_text("".join(gres))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    (folder / "slurm.conf").write_text(_configuration(folder))


def _configuration(folder: Path) -> str:
    nodes = "".join(
        f"NodeName={node.name} NodeAddr={node.address} CPUs=8 RealMemory=4000 "
        f"Gres=npu:Ascend910B:{node.npus}\n"
        for node in NODES
    )
    return f"""\
ClusterName=npucall
SlurmctldHost={CONTROLLER.name}({CONTROLLER.address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=10
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=npu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=5
ReturnToService=2
SlurmdTimeout=15
KillWait=30
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}\
PartitionName=servers Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE
PartitionName=leases Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=8:00:00
"""
