"""The command ``npucall-server headers``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npucall_server.__main__ import main
from npucall_server.commands.headers import run

TEXT = """\
aclnnStatus aclnnReluGetWorkspaceSize(const aclTensor *self, const aclTensor *out,
                                      uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnRelu(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                      aclrtStream stream);
aclnnStatus aclnnInplaceAddGetWorkspaceSize(aclTensor *selfRef, const aclTensor *other,
                                            const aclScalar *alpha, uint64_t *workspaceSize,
                                            aclOpExecutor **executor);
aclnnStatus aclnnInplaceAdd(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                            aclrtStream stream);
aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray *shape, uint64_t *size);
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "aclnn_some.h").write_text(TEXT)
    (tmp_path / "aclnn_util.h").write_text("#define ACLNN_API\n")
    return tmp_path


def test_it_lists_what_would_be_served_and_what_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(folder)]) == 0
    assert capsys.readouterr().out == (
        "OPERATOR         INPUTS  OUTPUTS  ATTRIBUTES  HEADER        READ AND WRITTEN\n"
        "aclnnInplaceAdd  1       1        1           aclnn_some.h  selfRef\n"
        "aclnnRelu        1       1        0           aclnn_some.h\n"
        "\n"
        "NOT SERVED                      HEADER        REASON\n"
        "aclnnCalculateMatmulWeightSize  aclnn_some.h  a helper without executor\n"
        "\n"
        "2 operators, 1 not served, of 2 headers\n"
    )
    (folder / "aclnn_some.h").unlink()
    assert run([str(folder)]) == 0
    assert capsys.readouterr().out == "0 operators, 0 not served, of 1 headers\n"


def test_it_answers_programs_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--json", str(folder)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["headers"] == 2
    assert [operator["name"] for operator in answer["operators"]] == [
        "aclnnInplaceAdd",
        "aclnnRelu",
    ]
    assert answer["operators"][0] == {
        "name": "aclnnInplaceAdd",
        "header": "aclnn_some.h",
        "prototype": "aclnnStatus aclnnInplaceAddGetWorkspaceSize(aclTensor* selfRef, "
        "const aclTensor* other, const aclScalar* alpha, uint64_t* workspaceSize, "
        "aclOpExecutor** executor);",
        "inputs": ["other"],
        "outputs": ["selfRef"],
        "in_place": ["selfRef"],
        "attributes": ["alpha"],
    }
    assert answer["excluded"] == [
        {
            "name": "aclnnCalculateMatmulWeightSize",
            "header": "aclnn_some.h",
            "reason": "a helper without executor",
        }
    ]


def test_of_several_folders_the_first_decides(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    custom = folder / "custom"
    custom.mkdir()
    (custom / "custom.h").write_text(TEXT.replace("aclnnInplaceAdd", "aclnnInplaceSub"))
    assert run(["--json", str(custom), str(folder)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["headers"] == 3
    assert {operator["name"]: operator["header"] for operator in answer["operators"]} == {
        "aclnnInplaceAdd": "aclnn_some.h",
        "aclnnInplaceSub": "custom.h",
        "aclnnRelu": "custom.h",
    }


def test_a_folder_that_has_no_headers_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, said in {
        f"{tmp_path}/absent": f"expected a folder of headers, found none at {tmp_path}/absent\n",
        f"{tmp_path}": f"expected headers (*.h) in {tmp_path}, found none\n",
        "x" * 5000: "cannot be read: ",
    }.items():
        assert run([folder]) == 2
        answer = capsys.readouterr()
        assert answer.out == ""
        assert answer.err.startswith(f"npucall-server: {said}")


def test_arguments_that_it_does_not_know_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    no_arguments: list[str] = []
    for arguments in no_arguments, ["--unknown", "x"]:
        with pytest.raises(SystemExit) as ended:
            run(arguments)
        assert ended.value.code == 2
        assert capsys.readouterr().err.startswith("usage: npucall-server headers [-h] [--json] DIR")


def test_the_servers_command_runs_it_and_its_help_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, said in [
        (["headers", str(folder)], "2 operators"),
        (["--help"], "`npucall-server headers DIR`"),
    ]:
        monkeypatch.setattr(sys, "argv", ["npucall-server", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.more
def test_a_reader_that_has_enough_is_no_error(folder: Path) -> None:
    for number in range(200):  # more than a pipe holds
        name = f"aclnnRelu{number}{'x' * 400}"
        (folder / f"{number}.h").write_text(TEXT.replace("aclnnRelu", name))
    command = [sys.executable, "-m", "npucall_server", "headers", str(folder)]
    # Unbuffered, Python does not notice.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
