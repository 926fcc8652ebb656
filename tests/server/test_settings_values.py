"""What a setting may be, and what is said of one that may not."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pydantic_settings import CliApp
from tests.more import only

from npucall_server.__main__ import serve
from npucall_server.addresses import is_loopback
from npucall_server.exits import ExitCode
from npucall_server.npu_settings import tell_cann
from npucall_server.settings import ServerSettings

if TYPE_CHECKING:
    from pathlib import Path


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The line that the command says on standard error before it exits with 2."""
    with pytest.raises(SystemExit) as caught:
        serve([*flags, "--print-settings"])  # which ends it where nothing is refused
    assert caught.value.code == ExitCode.SETTINGS == 2
    line, end, rest = capsys.readouterr().err.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("npucall-server: ")


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--queue-length=many", "queue_length: "),
        ("--queue-length=-1", "queue_length: "),
        ("--queue-length=1001", "queue_length: "),
        ("--servers-per-host=0", "servers_per_host: "),  # and nothing of what depends on it
        ("--memory-limit=0", "memory_limit: "),
        ("--memory-limit=-3", "memory_limit: "),
        ("--memory-limit=8XB", "memory_limit: "),
        ("--max-message-bytes=2147483648", "max_message_bytes: "),  # gRPC's limit is 2**31 - 1
        ("--chunk-bytes=65535", "chunk_bytes: "),  # 64 KiB
        ("--chunk-bytes=3145729", "chunk_bytes: "),  # 3 MiB: frames stay below gRPC's 4 MiB
        ("--chunk-bytes=0", "chunk_bytes: "),
        ("--call-timeout=0", "call_timeout: "),
        ("--call-timeout=inf", "call_timeout: "),  # a lock cannot wait for infinity
        ("--call-timeout=nan", "call_timeout: "),
        ("--drain-timeout=inf", "drain_timeout: "),
        ("--drain-timeout=-1", "drain_timeout: "),
        ("--slow-call=nan", "slow_call: "),
        ("--slow-call=inf", "slow_call: "),
        ("--lanes=0", "lanes: "),
        ("--lanes=9", "lanes: "),
        ("--device-timeout=0", "device_timeout: "),
        ("--device-timeout=inf", "device_timeout: "),
        ("--device-timeout=2000001", "device_timeout: "),  # CANN counts ms in 32 bits
        ("--staging-limit=-1", "staging_limit: "),
        ("--kept-device-memory=-1", "kept_device_memory: "),
        ("--kept-calls=-1", "kept_calls: "),
        ("--phase-one-cache=-1", "phase_one_cache: "),  # CANN takes 1 to 10,000,000
        ("--phase-one-cache=10000001", "phase_one_cache: "),
        ("--shared-memory-limit=0", "shared_memory_limit: "),
        ("--shared-memory-limit=many", "shared_memory_limit: "),
        ("--shared-memory-users=-1", "shared_memory_users.0: "),
        ("--shared-memory-users=4294967295", "shared_memory_users.0: "),  # chown(2): nobody's
        ("--shared-memory-users=root", "shared_memory_users"),
        ("--device=gpu", "device: "),
        ("--device=cann:", "device: "),
        ("--soc=Ascend1", "soc: expected the name of an Ascend SoC"),
        ("--variant=newest", "variant: expected one of builtin, community, documented"),
        (
            "--listen=0.0.0.0:50051",
            "listen: expected a loopback address or TLS, found 0.0.0.0:50051",
        ),
        (
            "--config=/nowhere/settings.toml",
            "config: expected a file that can be read, found: [Errno 2] ",
        ),
    ],
)
def test_a_bad_value_gives_one_line_that_names_it(
    capsys: pytest.CaptureFixture[str], flag: str, said: str
) -> None:
    assert refusal(capsys, flag).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("queue_length = 'many'\n", "queue_length: "),
        ("queue-length = 1\n", "queue-length: Extra inputs are not permitted"),
        ("queue_length = \n", "config: expected valid TOML in "),
    ],
)
def test_a_bad_file_gives_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(text)
    assert refusal(capsys, "--config", str(config)).startswith(said)


def test_a_bad_variable_gives_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUCALL_LOG_CALLS", "some")
    assert refusal(capsys).startswith("log_calls: ")


def test_every_wrong_setting_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve(["--queue-length=x", "--call-timeout=y"])
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": Input")[0] for line in lines] == [
        "npucall-server: queue_length",
        "call_timeout",
    ]


def test_an_unknown_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        serve(["--quick"])
    assert caught.value.code == ExitCode.SETTINGS
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --quick\n")


LOOPBACK = [
    "127.0.0.1:0",
    "127.8.9.1:50051",
    "localhost:50051",
    "[::1]:50051",
    "unix:/run/npucall.sock",
    "unix:relative.sock",
]
OPEN = [
    "0.0.0.0:50051",
    ":50051",
    "[::]:50051",
    "192.168.0.1:50051",
    "[fe80::1]:50051",
    "[::ffff:10.0.0.1]:50051",
    "example.org:50051",
    "localhost.example.org:50051",
    "127.0.0.1.example.org:50051",
    "dns:example.org:50051",
    "vsock:2:50051",
]


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_needs_no_insecure_bind(address: str) -> None:
    assert is_loopback(address)
    assert ServerSettings(listen=address).listen == address


@pytest.mark.parametrize("address", OPEN)
def test_any_other_address_needs_insecure_bind(
    capsys: pytest.CaptureFixture[str], address: str
) -> None:
    assert not is_loopback(address)
    assert "--insecure-bind" in refusal(capsys, "--listen", address)
    assert ServerSettings(listen=address, insecure_bind=True).listen == address


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "", "unix-abstract:npucall", "a:b"])
def test_an_address_has_a_port_or_a_path(capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert refusal(capsys, "--listen", address).startswith("listen: expected HOST:PORT")


@pytest.mark.parametrize(
    ("host", "listen", "address"),
    [
        ("10.0.0.5", None, "10.0.0.5:50051"),
        ("10.0.0.5", "10.0.0.5:50054", "10.0.0.5:50054"),
        ("10.0.0.5", ":50054", "10.0.0.5:50054"),
        ("::1", None, "[::1]:50051"),
        ("[::1]", ":0", "[::1]:0"),
        ("::1", "::1:50054", "[::1]:50054"),  # as a shell puts them together
        ("node7.lab", "node7.lab:9", "node7.lab:9"),
        ("", "127.0.0.1:9", "127.0.0.1:9"),
    ],
)
def test_the_host_of_the_address_may_be_said_alone(
    host: str, listen: str | None, address: str
) -> None:
    flags = ["--insecure-bind", "--listen-host", host]
    flags += [] if listen is None else ["--listen", listen]
    settings = CliApp.run(ServerSettings, cli_args=flags)
    assert settings.listen == address


@pytest.mark.parametrize(
    ("host", "listen", "said"),
    [
        ("10.0.0.5", "127.0.0.1:9", "expected 127.0.0.1, the host of listen, found 10.0.0.5; "),
        ("10.0.0.5", "unix:/x", "expected none, since listen is unix:/x, found 10.0.0.5; "),
        ("10.0.0.5:9", "", "expected a host without a port, found '10.0.0.5:9'"),
    ],
)
def test_two_hosts_are_refused(
    capsys: pytest.CaptureFixture[str], host: str, listen: str, said: str
) -> None:
    flags = [f"--listen={listen}"] if listen else []
    assert refusal(capsys, f"--listen-host={host}", *flags).startswith(f"listen_host: {said}")


def test_a_host_beyond_loopback_needs_insecure_bind(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--listen-host=10.0.0.5")
    assert said.startswith("listen: expected a loopback address or TLS, found 10.0.0.5:50051")


def test_a_port_has_16_bits(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--listen=127.0.0.1:65536")
    assert said == "listen: expected a port up to 65535, found 65536"


@pytest.mark.parametrize("missing", only("os.memfd_create", "socket.SO_PEERCRED"))
def test_shared_memory_is_refused_in_a_sentence_where_the_system_has_none(missing: str) -> None:
    """In a process of its own, since settings look when they are imported."""
    module, name = missing.split(".")
    program = f"""
import {module}
del {module}.{name}
from npucall_server.__main__ import main
main()
"""
    command = [sys.executable, "-c", program]
    for flags, code in ([], 0), (["--shared-memory=side.sock"], 2):
        ended = subprocess.run(
            [*command, *flags, "--print-settings"], capture_output=True, text=True, check=False
        )
        assert ended.returncode == code
    (line,) = ended.stderr.splitlines()
    assert line.startswith("npucall-server: shared_memory: expected Linux, ")


def test_users_are_numbers_one_behind_the_other() -> None:
    settings = CliApp.run(ServerSettings, cli_args=["--shared-memory-users=1000,1001"])
    assert settings.shared_memory_users == (1000, 1001)


@pytest.mark.parametrize(("name", "field"), ServerSettings.model_fields.items())
def test_every_setting_says_what_it_is(name: str, field: object) -> None:
    description = getattr(field, "description", None)
    assert description
    assert description.endswith(".")


def test_help_shows_every_setting_with_its_meaning() -> None:
    command = [sys.executable, "-m", "npucall_server", "--help"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    shown = "".join(said.split())  # whatever the width of the terminal
    for name, field in ServerSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in said
        assert "".join(str(field.description).split()) in shown


@pytest.mark.parametrize(
    ("listen", "given", "has"),
    [
        ("127.0.0.1:0", None, True),
        ("unix:/run/x.sock", None, True),
        ("0.0.0.0:0", None, False),
        ("0.0.0.0:0", True, True),
        ("127.0.0.1:0", False, False),
    ],
)
def test_reflection_is_off_beyond_loopback_unless_it_is_asked_for(
    listen: str, given: bool | None, has: bool
) -> None:
    settings = ServerSettings(listen=listen, insecure_bind=True, reflection=given)
    assert settings.has_reflection is has


def test_careful_turns_off_what_makes_an_npu_faster_unless_a_setting_says_otherwise() -> None:
    off = ServerSettings(careful=True)
    assert (off.lanes, off.staging_limit, off.kept_device_memory) == (1, 0, 0)
    assert (off.kept_calls, off.phase_one_cache) == (0, 0)
    some = ServerSettings(careful=True, lanes=3, kept_calls=5)
    assert (some.lanes, some.kept_calls, some.staging_limit) == (3, 5, 0)


@pytest.mark.parametrize(
    ("calls", "told"), [(0, {"DISABLE_L2_CACHE": "1"}), (7, {"ACLNN_CACHE_LIMIT": "7"})]
)
def test_cann_is_told_how_many_first_phases_it_keeps(
    monkeypatch: pytest.MonkeyPatch, calls: int, told: dict[str, str]
) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    tell_cann(ServerSettings(phase_one_cache=calls))
    assert environment == told
