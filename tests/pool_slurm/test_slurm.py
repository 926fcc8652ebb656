"""The recipe of deploy/slurm, run on Debian's Slurm: a client calls all the time."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.npu import need_compiler
from tests.pool.callers import Calls, calling
from tests.pool.hosts import need, until
from tests.simulator.build import build
from tests.summary import figures

from npucall_server.exits import ExitCode

from .cluster import CONTROLLER, NODES, Cluster, cluster

pytestmark = pytest.mark.long

NPU1, NPU2 = NODES
ALL_NPUS = ("npu1-npu0", "npu1-npu1", "npu2-npu0", "npu2-npu1")
NPUS = {"NPUCALL_LABELS": "kind=npu"}
SCRIPT = Path(__file__).parents[2] / "deploy/slurm/npucall.sbatch"
SOC = "Ascend910B1"


@dataclass
class Pool:
    """The servers that the job script has started on a cluster, and clients of them."""

    cluster: Cluster
    toolkit: Path

    @property
    def shared(self) -> Path:
        """The folder of ready files."""
        return self.cluster.folder / "shared"

    def ready(self) -> set[str]:
        """The names of the servers that are ready."""
        return {each.name for each in self.shared.iterdir() if not each.name.endswith(".part")}

    def submit(self, *options: str, flags: tuple[str, ...] = (), **variables: str) -> str:
        """The number of a new job that runs the script."""
        told = self.cluster.call(
            "sbatch", "--parsable", *options, str(SCRIPT), str(self.shared), *flags,
            VIRTUAL_ENV=sys.prefix, CANN_SET_ENV=str(self.toolkit), NPUCALL_INSECURE_BIND="true",
            NPUCALL_MEMORY_LIMIT="512MiB", NPUCALL_SIM_SOC=SOC,
            # The nodes share a file system, where a server's socket would be on all of them.
            NPUCALL_FRAMES_SOCKET="off", **variables,
        )  # fmt: skip
        return told.strip()

    def limit(self, job: str, minutes: int) -> None:
        """Gives a job so many minutes from its start."""
        self.cluster.call("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")

    def wait_for(self, *names: str) -> float:
        """Until just these servers are ready. Answers the seconds that took."""
        return until(lambda: self.ready() == set(names), f"{names}, {self.ready()}, {self.said()}")

    def cancel(self, *jobs: str) -> None:
        """Cancels jobs, all if none is named, and waits until they have ended."""
        named = jobs or ("--user=root",)
        self.cluster.call("scancel", *named)
        until(lambda: not self.cluster.jobs(*jobs), f"{jobs} end: {self.said()}")

    def said(self) -> str:
        """The ends of the jobs' logs."""
        logs = self.cluster.folder.glob("npucall-*.log")
        return "".join(f"\n{log.name}: {log.read_text()[-400:]}" for log in logs)

    def log(self, job: str) -> str:
        """What a job has said."""
        return (self.cluster.folder / f"npucall-{job}.log").read_text()

    def servers(self, name: str) -> list[int]:
        """All server processes that have this ready file, also a forgotten one."""
        words = f"--ready-file {self.shared / name} "
        return [pid for host in self.cluster.hosts.values() for pid in host.pids(words)]

    def calls(self, **variables: str) -> AbstractContextManager[Calls]:
        """Callers of ``pool:file:`` on the controller's host; whom they call the variables say."""
        environment = {**os.environ, "NPUCALL_TARGET": f"pool:file:{self.shared}", **variables}
        options = "--threads=3", "--sizes", *["4096"] * 3, str(2_400_000)  # the last one in chunks
        return calling(self.cluster.inside(CONTROLLER), *options, environment=environment)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A cluster of two nodes with two simulated NPUs each, and nothing that runs on it yet."""
    need("slurmctld slurmd munge", "munged", "sbatch", "slurmctld", "slurmd")
    need_compiler()
    toolkit = build().generation("9.x").set_env
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield Pool(made, toolkit)


@pytest.fixture(autouse=True)
def _nothing_is_left(pool: Pool) -> Iterator[None]:
    yield
    pool.cancel()
    for name in pool.ready():
        until(lambda: not pool.servers(name), f"{name} ends with its job")  # noqa: B023
        (pool.shared / name).unlink(missing_ok=True)


def test_a_job_an_npu_makes_a_pool_that_uses_them_all(pool: Pool) -> None:
    pool.submit("--array=0-3")
    figures(f"four servers: {pool.wait_for(*ALL_NPUS):.1f} s")
    with pool.calls(**NPUS) as calls:
        time.sleep(10)
        seen = calls.stop()
    seen.check()
    assert seen.devices.keys() == {"cann:0", "cann:1"}
    assert len(seen.by_server) == 4


def test_servers_on_the_cpu_are_in_the_pool_for_those_who_do_not_mind(pool: Pool) -> None:
    pool.submit("--array=0-1")
    job = pool.submit("--gres=none", NPUCALL_SOC="Ascend910B1")
    pool.wait_for("npu1-npu0", "npu1-npu1", f"npu1-cpu{job}")
    with (
        pool.calls(**NPUS) as npus,
        pool.calls(NPUCALL_LABELS="kind=cpu") as cpus,
        pool.calls(NPUCALL_SOC="any") as any_device,
    ):
        time.sleep(10)
        on_npus, on_cpus, anywhere = (calls.stop() for calls in (npus, cpus, any_device))
    for seen in on_npus, on_cpus, anywhere:
        seen.check()
    assert on_npus.devices.keys() == {"cann:0", "cann:1"}
    assert on_cpus.devices.keys() == {"cpu"}
    assert anywhere.devices.keys() == {"cann:0", "cann:1", "cpu"}


def test_a_server_that_is_killed_is_back_and_no_call_is_lost(pool: Pool) -> None:
    pool.submit("--array=0-3")
    pool.wait_for(*ALL_NPUS)
    with pool.calls(**NPUS) as calls:
        for name in ALL_NPUS:
            old = pool.servers(name)
            os.kill(old[0], signal.SIGKILL)
            until(lambda: pool.servers(name) not in ([], old), f"{name} is started again")  # noqa: B023
            figures(f"{name} back: {pool.wait_for(*ALL_NPUS):.1f} s")
        seen = calls.stop()
    seen.check()


def test_a_job_that_is_cancelled_drains_its_server(pool: Pool) -> None:
    job = pool.submit("--array=0-3")
    pool.wait_for(*ALL_NPUS)
    with pool.calls(**NPUS) as calls:
        pool.cancel(f"{job}_3")
        pool.wait_for(*ALL_NPUS[:3])
        time.sleep(3)
        seen = calls.stop()
    seen.check()
    assert '"event": "stopped", "finished": true' in pool.log(job)  # the last task has its number
    assert "the server ended with 0" in pool.log(job)


def test_a_job_whose_time_is_over_drains_and_is_queued_again(pool: Pool) -> None:
    pool.submit("--array=0-1")
    job = pool.submit("--time=60", "--signal=B:TERM@45")
    pool.wait_for(*ALL_NPUS[:3])
    with pool.calls(**NPUS) as calls:
        # It is ready, however slowly it started, and has as many minutes as it ran, and one or two.
        ran = pool.cluster.call("squeue", f"--jobs={job}", "--noheader", "--format=%M")
        pool.limit(job, int(ran.partition(":")[0]) + 2)
        until(lambda: "the job is queued again" in pool.log(job), "its time is over")
        pool.limit(job, 60)
        figures(f"back: {pool.wait_for(*ALL_NPUS[:3]):.1f} s")
        until(lambda: pool.cluster.jobs(job)[job][0] == "RUNNING", "it runs again")
        seen = calls.stop()
    seen.check()
    assert '"event": "stopped", "finished": true' in pool.log(job)


@pytest.mark.parametrize("flags", [("--queue-length=-1",), ("--config=/none.toml",)])
def test_a_server_that_needs_a_person_ends_its_job(pool: Pool, flags: tuple[str, ...]) -> None:
    job = pool.submit(flags=flags)
    until(lambda: not pool.cluster.jobs(job), "it ends")
    assert pool.log(job).count("the server ended with") == 1
    assert f"the server ended with {ExitCode.SETTINGS}" in pool.log(job)
    assert f"ExitCode={ExitCode.SETTINGS}:0" in pool.cluster.call("scontrol", "show", "job", job)


def test_a_job_without_cann_says_that_libraries_are_missing(pool: Pool) -> None:
    pool.toolkit, toolkit = pool.shared / "none", pool.toolkit
    try:
        job = pool.submit()
        until(lambda: not pool.cluster.jobs(job), "it ends")
    finally:
        pool.toolkit = toolkit
    told = pool.cluster.call("scontrol", "show", "job", job)
    assert f"ExitCode={ExitCode.NO_DEVICE}:0" in told


def test_a_lease_of_the_bare_card_takes_a_server_s_place_and_gives_it_back(pool: Pool) -> None:
    pool.submit("--array=0-3")
    pool.wait_for(*ALL_NPUS)
    with pool.calls(**NPUS) as calls:
        lease = ("--gres=npu:1", "--nodelist=npu1", "--time=2:00:00", "--no-shell")
        told = pool.cluster.call("salloc", "--partition=leases", *lease)
        number = told.rsplit("Granted job allocation ", 1)[1].split()[0]
        until(lambda: len(pool.ready()) == 3, f"one server has gone: {pool.said()}")
        details = pool.cluster.call("scontrol", "-o", "show", "job", "-d", number)
        index = details.split("(IDX:")[1][0]
        assert pool.servers(f"npu1-npu{index}") == []
        time.sleep(3)
        pool.cancel(number)
        figures(f"server back after the lease: {pool.wait_for(*ALL_NPUS):.1f} s")
        seen = calls.stop()
    seen.check()


def test_a_job_that_moves_leaves_its_old_server_the_ready_file(pool: Pool) -> None:
    both = pool.submit("--nodelist=npu1", "--array=0-1")
    pool.wait_for(*ALL_NPUS[:2])
    moving = pool.submit()
    pool.wait_for(*ALL_NPUS[:3])
    with pool.calls(**NPUS) as calls:
        pool.cluster.kill(NPU2.name)
        pool.cancel(f"{both}_1")
        lost = until(lambda: "down" in pool.cluster.node_state(NPU2), "npu2 is lost")
        moved = until(lambda: pool.cluster.jobs(moving)[moving] == ("RUNNING", "npu1"), "it moves")
        pool.wait_for(*ALL_NPUS[:3])
        assert [len(pool.servers(name)) for name in ALL_NPUS[:3]] == [1, 1, 1]
        pool.cluster.start_node(NPU2)
        ended = until(lambda: not pool.servers("npu2-npu0"), "Slurm ends what it has lost")
        time.sleep(3)  # a file that Slurm left behind costs no call
        figures(f"lost after {lost:.1f} s, moved after {moved:.1f} s, ended after {ended:.1f} s")
        pool.submit("--nodelist=npu2")
        until(lambda: len(pool.servers("npu2-npu0")) == 1, "a new server takes the file")
        time.sleep(5)
        seen = calls.stop()
    seen.check()


def test_calls_of_a_node_whose_cable_is_cut_go_elsewhere_until_it_is_back(pool: Pool) -> None:
    pool.submit("--array=0-2")
    pool.wait_for(*ALL_NPUS[:3])
    old = [pool.servers(name) for name in ALL_NPUS[:3]]
    assert list(map(len, old)) == [1, 1, 1]
    with pool.calls(**NPUS) as calls:
        with pool.cluster.hosts[NPU2.name].cut():
            time.sleep(10)
        time.sleep(10)
        seen = calls.stop()
    seen.check()
    assert [pool.servers(name) for name in ALL_NPUS[:3]] == old
