"""What a setting may be, and what is said of one that may not."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from npucall_server.commands.serve import main
from npucall_server.exits import ExitCode
from npucall_server.settings.addresses import is_loopback
from npucall_server.settings.npu import tell_cann
from npucall_server.settings.server import ServerSettings, read

Refusal = Callable[..., str]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """The line that the command says on standard error before it exits with 2."""

    def refused(*flags: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["settings", *flags])
        assert caught.value.code == ExitCode.SETTINGS == 2
        line, end, rest = capsys.readouterr().err.partition("\n")
        assert (end, rest) == ("\n", "")
        return line.removeprefix("npucall-server: ")

    return refused


WRONG = {
    "queue_length": ["many", "-1", "1001"],
    "servers_per_host": ["0"],  # and nothing is said of what depends on it
    "memory_limit": ["0", "-3", "8XB"],
    "max_message_bytes": ["2147483648"],  # gRPC's limit is 2**31 - 1
    "chunk_bytes": ["65535", "3145729", "0"],  # 64 KiB; 3 MiB: frames stay below gRPC's 4 MiB
    "call_timeout": ["0", "inf", "nan"],  # a lock cannot wait for infinity
    "drain_timeout": ["inf", "-1"],
    "lanes": ["0", "9"],
    "device_timeout": ["0", "inf", "2000001"],  # CANN counts ms in 32 bits
    "staging_limit": ["-1"],
    "kept_device_memory": ["-1"],
    "kept_calls": ["-1"],
    "phase_one_cache": ["-1", "10000001"],  # CANN takes 1 to 10,000,000
    "shared_memory_limit": ["0", "many"],
    "device": ["gpu", "cann:"],
}
SAID = {
    "--shared-memory-users=-1": "shared_memory_users.0: ",
    "--shared-memory-users=4294967295": "shared_memory_users.0: ",  # chown(2): nobody's
    "--shared-memory-users=root": "shared_memory_users",
    "--soc=Ascend1": "soc: expected the name of an Ascend SoC",
    "--variant=newest": "variant: expected one of builtin, community, documented",
    "--listen=0.0.0.0:1": "listen: expected a loopback address or TLS, found 0.0.0.0:1",
    "--listen=127.0.0.1:65536": "listen: expected a port up to 65535, found 65536",
    "--listen-host=10.0.0.5": "listen: expected a loopback address or TLS, found 10.0.0.5:50051",
    "--config=/nowhere/settings.toml": "config: expected a file that can be read, found: [Errno 2]",
}


def test_a_bad_value_gives_one_line_that_names_it(
    refusal: Refusal, subtests: pytest.Subtests
) -> None:
    named = {
        f"--{name.replace('_', '-')}={value}": f"{name}: "
        for name, values in WRONG.items()
        for value in values
    }
    for flag, said in (named | SAID).items():
        with subtests.test(flag):
            assert refusal(flag).startswith(said)


def test_a_bad_file_gives_one_line(
    refusal: Refusal, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    config = tmp_path / "settings.toml"
    for text, said in {
        "queue_length = 'many'\n": "queue_length: ",
        "queue-length = 1\n": "queue-length: no setting has this name; did you mean queue_length?",
        "queue_length = \n": "config: expected valid TOML in ",
    }.items():
        with subtests.test(text):
            config.write_text(text)
            assert refusal("--config", str(config)).startswith(said)


def test_a_bad_variable_gives_one_line(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUCALL_LOG_CALLS", "some")
    assert refusal().startswith("log_calls: ")


def test_every_wrong_setting_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--queue-length=x", "--call-timeout=y"])
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": Input")[0] for line in lines] == [
        "npucall-server: queue_length",
        "call_timeout",
    ]


def test_an_unknown_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--quick"])
    assert caught.value.code == ExitCode.SETTINGS
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --quick\n")


LOOPBACK = [
    "127.0.0.1:0", "127.8.9.1:50051", "localhost:50051", "[::1]:50051", "unix:/run/npucall.sock",
    "unix:relative.sock",
]  # fmt: skip
OPEN = [
    "0.0.0.0:50051", ":50051", "[::]:50051", "192.168.0.1:50051", "[fe80::1]:50051",
    "[::ffff:10.0.0.1]:50051", "example.org:50051", "localhost.example.org:50051",
    "127.0.0.1.example.org:50051", "dns:example.org:50051", "vsock:2:50051",
]  # fmt: skip


def test_any_address_but_loopback_needs_insecure_bind(
    refusal: Refusal, subtests: pytest.Subtests
) -> None:
    for address in [*LOOPBACK, *OPEN]:
        with subtests.test(address):
            is_open = address in OPEN
            assert is_loopback(address) is not is_open
            assert ServerSettings(listen=address, insecure_bind=is_open).listen == address
            if is_open:
                assert "--insecure-bind" in refusal("--listen", address)


def test_an_address_has_a_port_or_a_path(refusal: Refusal, subtests: pytest.Subtests) -> None:
    for address in "127.0.0.1", "localhost", "", "unix-abstract:npucall", "a:b":
        with subtests.test(address):
            assert refusal("--listen", address).startswith("listen: expected HOST:PORT")


def test_the_host_of_the_address_may_be_said_alone(subtests: pytest.Subtests) -> None:
    for host, listen, address in [
        ("10.0.0.5", None, "10.0.0.5:50051"),
        ("10.0.0.5", "10.0.0.5:50054", "10.0.0.5:50054"),
        ("10.0.0.5", ":50054", "10.0.0.5:50054"),
        ("::1", None, "[::1]:50051"),
        ("[::1]", ":0", "[::1]:0"),
        ("::1", "::1:50054", "[::1]:50054"),  # as a shell puts them together
        ("node7.lab", "node7.lab:9", "node7.lab:9"),
        ("", "127.0.0.1:9", "127.0.0.1:9"),
    ]:
        with subtests.test(address):
            flags = [] if listen is None else ["--listen", listen]
            assert read(["--insecure-bind", "--listen-host", host, *flags]).listen == address


def test_two_hosts_are_refused(refusal: Refusal, subtests: pytest.Subtests) -> None:
    for host, listen, said in [
        ("10.0.0.5", "127.0.0.1:9", "expected 127.0.0.1, the host of listen, found 10.0.0.5; "),
        ("10.0.0.5", "unix:/x", "expected none, since listen is unix:/x, found 10.0.0.5; "),
        ("10.0.0.5:9", "", "expected a host without a port, found '10.0.0.5:9'"),
    ]:
        with subtests.test(said):
            flags = [f"--listen={listen}"] if listen else []
            assert refusal(f"--listen-host={host}", *flags).startswith(f"listen_host: {said}")


def test_shared_memory_is_refused_in_a_sentence_where_the_system_has_none() -> None:
    """In a process of its own, since settings look when they are imported."""
    program = """
import os, socket, sys

for module, name in (os, "memfd_create"), (socket, "SO_PEERCRED"):
    kept = getattr(module, name)
    delattr(module, name)
    for loaded in [each for each in sys.modules if each.startswith("npucall_server")]:
        del sys.modules[loaded]
    from npucall_server.settings.server import read

    read([])
    try:
        read(["--shared-memory=side.sock"])
    except ValueError as error:
        print(error)
    setattr(module, name, kept)
"""
    command = [sys.executable, "-c", program]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    said = [line.partition(", ")[0] for line in lines.splitlines()]
    assert said == ["shared_memory: expected Linux"] * 2


def test_users_are_numbers_one_behind_the_other() -> None:
    assert read(["--shared-memory-users=1000,1001"]).shared_memory_users == (1000, 1001)


def helped(capsys: pytest.CaptureFixture[str], flag: str) -> tuple[set[str], str]:
    """The settings that a help shows, and its text without blanks, for any width of terminal."""
    with pytest.raises(SystemExit) as ended:
        main([flag])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    found = re.findall(r"^  --([a-z-]+)", said, re.MULTILINE)
    return {name.replace("-", "_") for name in found}, "".join(said.split())


def test_a_short_help_shows_25_settings_and_the_long_one_all_with_their_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown, _ = helped(capsys, "--help")
    assert len(shown) <= 25
    every, said = helped(capsys, "--help-all")
    assert every == ServerSettings.model_fields.keys() > shown
    for field in ServerSettings.model_fields.values():
        assert field.description
        assert field.description.endswith(".")
        assert "".join(field.description.split()) in said


def test_reflection_is_off_beyond_loopback_unless_it_is_asked_for() -> None:
    has = {
        (listen, given): ServerSettings(
            listen=listen, insecure_bind=True, reflection=given
        ).has_reflection
        for listen in ("127.0.0.1:0", "unix:/run/x.sock", "0.0.0.0:0")
        for given in (None, True, False)
    }
    assert {key for key, value in has.items() if value} == {
        ("127.0.0.1:0", None), ("127.0.0.1:0", True), ("unix:/run/x.sock", None),
        ("unix:/run/x.sock", True), ("0.0.0.0:0", True),
    }  # fmt: skip


def test_careful_turns_off_what_makes_an_npu_faster_unless_a_setting_says_otherwise() -> None:
    off = ServerSettings(careful=True)
    assert (off.lanes, off.staging_limit, off.kept_device_memory) == (1, 0, 0)
    assert (off.kept_calls, off.phase_one_cache) == (0, 0)
    some = ServerSettings(careful=True, lanes=3, kept_calls=5)
    assert (some.lanes, some.kept_calls, some.staging_limit) == (3, 5, 0)


def test_cann_is_told_how_many_first_phases_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    for calls, told in (0, {"DISABLE_L2_CACHE": "1"}), (7, {"ACLNN_CACHE_LIMIT": "7"}):
        environment: dict[str, str] = {}
        with monkeypatch.context() as patched:
            patched.setattr("os.environ", environment)
            tell_cann(ServerSettings(phase_one_cache=calls))
        assert environment == told
