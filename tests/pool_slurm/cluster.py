"""A Slurm cluster of this machine: each node a network namespace with a host name of its own.

Its daemons are Debian's. Every process in the namespaces is killed when ``cluster`` ends.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.pool.hosts import NETWORK, Host, hosts, until

CONFIGURATION = Path(__file__).with_name("slurm.conf")


class Node(NamedTuple):
    """A host of the cluster."""

    name: str
    number: int
    npus: int

    @property
    def address(self) -> str:
        """Its own, on the switch."""
        return f"{NETWORK}.{self.number}"


CONTROLLER = Node("controller", 1, 0)
NODES = (Node("npu1", 2, 2), Node("npu2", 3, 2))
HOSTS = (CONTROLLER, *NODES)


@dataclass
class Cluster:
    """A controller and its nodes, which all see the same files."""

    folder: Path
    hosts: dict[str, Host]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def inside(self, node: Node) -> list[str]:
        """What a command has to begin with to run on a node, under its name, with locks of its own.

        Not ``ip netns exec``, which mounts /sys anew, without the control groups that slurmd wants.
        """
        script = (
            'mount --make-rprivate / && mount --bind "$1/hosts" /etc/hosts '
            '&& mount --bind "$1/lock-$2" /run/lock && hostname "$2" && shift 2 && exec "$@"'
        )
        return [
            *self.hosts[node.name].command("unshare", "--uts", "--mount"),
            *("sh", "-c", script, "sh", str(self.folder), node.name),
        ]

    def start(self, name: str, node: Node, *command: str) -> None:
        """Starts a daemon; what it says is in a file of its name."""
        with (self.folder / f"{name}.out").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                [*self.inside(node), *command], env=self.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def start_node(self, node: Node) -> None:
        """Starts slurmd of a node."""
        self.start(node.name, node, "slurmd", "-D", "-N", node.name)

    def kill(self, name: str) -> None:
        """What it has started lives on."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def end(self) -> None:
        """Kills all that runs on its hosts."""
        for host in self.hosts.values():
            for pid in host.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for daemon in self.daemons.values():
            daemon.wait()

    @property
    def environment(self) -> dict[str, str]:
        """Of whoever uses the cluster."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def call(self, *command: str, **variables: str) -> str:
        """What a command prints on the controller's host."""
        result = subprocess.run(
            [*self.inside(CONTROLLER), *command], env={**self.environment, **variables},
            capture_output=True, text=True, check=False, cwd=self.folder,
        )  # fmt: skip
        assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    def node_state(self, node: Node) -> str:
        """Of a node, as Slurm says it, such as ``idle`` or ``down*``."""
        said = self.call("sinfo", "--noheader", f"--nodes={node.name}", "--format=%T")
        return said.partition("\n")[0]

    def jobs(self, *numbers: str) -> dict[str, tuple[str, str]]:
        """State and node of each job that has not ended; of those alone, if any are named."""
        listed = self.call("squeue", "--noheader", "--array", "--format=%i|%T|%N").splitlines()
        fields = (line.split("|") for line in listed)
        found = {name: (state, node) for name, state, node in fields}
        return {each: found[each] for each in numbers or found if each in found}


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster whose nodes are up. ``folder`` holds what it writes."""
    with hosts(*(node.name for node in HOSTS)) as made, ExitStack() as stack:
        _write_files(folder)
        found = Cluster(folder, made)
        stack.callback(found.end)
        _start(found)
        yield found


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
    nodes = "".join(
        f"NodeName={node.name} NodeAddr={node.address} CPUs=8 RealMemory=4000 "
        f"Gres=npu:Ascend910B:{node.npus}\n"
        for node in NODES
    )
    text = CONFIGURATION.read_text().format(folder=folder, controller=CONTROLLER, nodes=nodes)
    (folder / "slurm.conf").write_text(text)
