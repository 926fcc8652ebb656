"""The command ``npucall-pool``: a pool of servers on the hosts of a Ray cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import npucall_pool
from npucall_pool import cluster, report, steps
from npucall_pool.cluster import ClusterError
from npucall_pool.plan import Plan
from npucall_pool.ports import Ports

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Keeps one npucall-server running for each device on the hosts of a Ray cluster. Run "
    "it on a host of the cluster, as the user that Ray runs as.",
)
DIRECTORY_PORT = 50050
_AT_FAULT = 1

ClusterOption = Annotated[
    str, typer.Option("--cluster", help="Address of Ray's head; auto: the one of this host's node.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="A list of JSON objects, not a table.")]


def main() -> NoReturn:
    """Runs the command. If it cannot do its work, it prints one line and exits with code 1."""
    try:
        app()
    except (ClusterError, ValueError) as error:
        sys.stderr.write(f"npucall-pool: {error}\n")
    sys.exit(_AT_FAULT)


def _say_version(asked: bool) -> None:  # noqa: FBT001  # the value of an option
    if asked:
        typer.echo(f"npucall-pool {npucall_pool.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of the command without a subcommand."""


@app.command()
def up(  # noqa: PLR0913  # each is an option
    *,
    environment: Annotated[
        Path,
        typer.Option(
            help="Folder of the virtual environment that has npucall-server, on every host.",
            rich_help_panel="Servers",
        ),
    ] = Path("/opt/npucall"),
    server_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of every server, such as queue-length=100 or insecure-bind; may be "
            "given several times. {host}, {port}, {device}, {index}, {name} and {folder} in it "
            "stand for those of the server.",
            rich_help_panel="Servers",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A label of every server, in addition to kind (npu or cpu), host and node.",
            rich_help_panel="Servers",
        ),
    ] = None,
    set_env: Annotated[
        str,
        typer.Option(
            help="CANN's set_env.sh, if Ray was started without it.",
            rich_help_panel="Servers",
        ),
    ] = "",
    ports: Annotated[
        str,
        typer.Option(
            metavar="FIRST-LAST", help="Ports for the servers of a host.", rich_help_panel="Servers"
        ),
    ] = "50051-50082",
    drain: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds that a server has to stop; give it more than its drain-timeout.",
            rich_help_panel="Servers",
        ),
    ] = 40.0,
    folder: Annotated[
        str,
        typer.Option(
            help="Folder for locks and logs on each host. Default: npucall-pool-UID in the "
            "system's folder for temporary files.",
            rich_help_panel="Servers",
        ),
    ] = "",
    resource: Annotated[
        str,
        typer.Option(
            help="The resource of Ray of which each server gets one.", rich_help_panel="Where"
        ),
    ] = "NPU",
    device: Annotated[
        str,
        typer.Option(
            help="The --device of the servers; cann: the NPU that Ray gives. {index} counts the "
            "servers of a host.",
            rich_help_panel="Where",
        ),
    ] = "cann",
    servers_per_host: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="At most so many servers on a host. Default: as many as the host has of the "
            "resource.",
            rich_help_panel="Where",
        ),
    ] = None,
    cpu: Annotated[
        int,
        typer.Option(
            min=0,
            help="Additional servers of the device cpu on each host.",
            rich_help_panel="Where",
        ),
    ] = 0,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Use only this host: an address or a name that Ray knows; may be given several "
            "times.",
            rich_help_panel="Where",
        ),
    ] = None,
    announce: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT[,HOST:PORT]",
            help="Directories that others run. Default: this command starts one on Ray's head.",
            rich_help_panel="Directory",
        ),
    ] = "",
    directory_port: Annotated[
        int, typer.Option(min=1, max=65535, rich_help_panel="Directory")
    ] = DIRECTORY_PORT,
    directory_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of that directory, as in --server-option.",
            rich_help_panel="Directory",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds within which every server has to serve.")
    ] = 120.0,
    cluster_address: ClusterOption = "auto",
) -> None:
    """Starts what is missing: the directory, and a keeper for each device, which starts its server.

    Running servers are not changed, even if the options have changed: drain their host first.
    Servers that had been given up are started again. Exit code 1: some do not serve in time.
    """
    plan = Plan(
        environment=str(environment),
        resource=resource,
        device=device,
        servers_per_host=servers_per_host,
        cpu=cpu,
        ports=Ports.parse(ports),
        directory=announce,
        directory_port=directory_port,
        labels=tuple(label or ()),
        server_options=tuple(server_option or ()),
        directory_options=tuple(directory_option or ()),
        set_env=set_env,
        folder=folder,
        drain=drain,
    )
    cluster.connect(cluster_address)
    table, notes = steps.up(plan, tuple(host or ()), wait)
    typer.echo(report.as_table(table))
    for note in notes:
        typer.echo(note, err=True)
    raise typer.Exit(0 if all(row.serves for row in table) else _AT_FAULT)


@app.command()
def status(*, as_json: JsonOption = False, cluster_address: ClusterOption = "auto") -> None:
    """Shows every server, as its keeper sees it. Exit code 1: some do not serve, or there are none.

    `npucall members` says whether clients reach a server: it asks the directory.
    """
    cluster.connect(cluster_address)
    table = steps.status()
    typer.echo(report.as_json(table) if as_json else report.as_table(table))
    raise typer.Exit(0 if table and all(row.serves for row in table) else _AT_FAULT)


@app.command()
def drain(
    host: Annotated[str, typer.Argument(help="Address or name of a host that Ray knows.")],
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Give up keepers that do not answer, because their host is gone."
        ),
    ] = False,
    cluster_address: ClusterOption = "auto",
) -> None:
    """Stops the servers of a host. Then Ray may give the devices to others.

    The servers finish their calls first. The pool goes on without the host until `npucall-pool up`.
    """
    cluster.connect(cluster_address)
    _say(steps.drain(host, force=force))


@app.command()
def down(
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Give up keepers that do not answer, because their hosts are gone."
        ),
    ] = False,
    cluster_address: ClusterOption = "auto",
) -> None:
    """Stops every server, and then the directory. The servers finish their calls first."""
    cluster.connect(cluster_address)
    _say(steps.down(force=force))


def _say(faults: dict[str, str]) -> None:
    """Prints what happened to each server. Raises ClusterError unless all have ended."""
    for name, fault in faults.items():
        typer.echo(f"{name}: {fault or 'ended'}")
    if any(faults.values()):
        raise ClusterError(
            "not all have ended; with --force, keepers that do not answer are given up"
        )
