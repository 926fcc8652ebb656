"""The headers of the trees: valid C, and as varied as those of an installation."""

import re
import subprocess
from pathlib import Path

import pytest

from .install import install_headers
from .prototypes import GENERATIONS, read_prototypes
from .tree import IN_THE_PACKAGE, Generation

PROTOTYPES = read_prototypes()
EACH = pytest.mark.parametrize("name", GENERATIONS)
WAYS = [
    r"^ACLNN_API aclnnStatus aclnn",
    r'^__attribute__\(\(visibility\("default"\)\)\)\naclnnStatus aclnn',
    r'^__attribute__\(\(visibility\("default"\)\)\)aclnnStatus aclnn',
    r"^aclnnStatus aclnn",
    r"aclnnStatus aclRfft1D\(",
    r'^ACL_DEPRECATED_MESSAGE\("[^"]*\([^"]*\)[^"]*;[^"]*, [^"]*"\s+"[^"]*"\)\nACLNN_API',
    r"^ \* Example:\n \*     aclnnStatus aclnn",
    r"^// aclnn\w+ 的第二段接口",
    r"const aclTensor \*self",
    r"const aclTensor\* self",
    r"const\n +aclTensor \*",
    r"GetWorkspaceSize \(",
    r"aclTensor\* \w+,  // 参数",
    r"const aclrtStream stream\)",
    r"^#define .*\\$",
]
"""How declarations are written in an installation."""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Generation]:
    """Trees that hold headers only."""
    folder = tmp_path_factory.mktemp("headers")
    found = {name: Generation(folder / name) for name in GENERATIONS}
    for name, tree in found.items():
        install_headers(name, tree, PROTOTYPES)
    return found


def texts(tree: Generation, folder: str = "aclnnop") -> dict[str, str]:
    paths = sorted((tree.include / folder).glob("*.h"))
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def everything(tree: Generation) -> str:
    return "\n".join(texts(tree).values())


@pytest.mark.parametrize("language", ["c", "c++"])
@EACH
def test_a_compiler_accepts_every_header(
    trees: dict[str, Generation], name: str, language: str
) -> None:
    include = trees[name].include
    headers = sorted(include.glob("aclnnop/**/*.h"))
    text = "".join(f'#include "{path.relative_to(include)}"\n' for path in headers)
    folders = [f"-I{include}", f"-I{include}/aclnnop"]
    command = ["gcc", "-fsyntax-only", "-Wall", "-Werror", f"-x{language}", *folders, "-"]
    subprocess.run(command, input=text, text=True, check=True)


@EACH
def test_every_operator_of_a_release_is_declared_in_each_way_of_an_installation(
    trees: dict[str, Generation], name: str
) -> None:
    include = trees[name].include / "aclnnop"
    for prototype in PROTOTYPES:
        if name in prototype.releases:
            folder = "level2" if "level2" in prototype.words and name in IN_THE_PACKAGE else "."
            text = (include / folder / prototype.header).read_text(encoding="utf-8")
            assert re.search(rf"aclnnStatus\s+{prototype.name}GetWorkspaceSize\s?\(", text)
    text = everything(trees[name])
    assert [way for way in WAYS if not re.search(way, text, re.MULTILINE)] == []


def test_release_8_1_has_a_second_folder_with_copies_and_four_headers_of_its_own(
    trees: dict[str, Generation],
) -> None:
    top, second = texts(trees["8.1"]), texts(trees["8.1"], "aclnnop/level2")
    own = ("iou", "rope_with_sin_cos_cache", "scaled_masked_softmax",
           "scaled_masked_softmax_backward")  # fmt: skip
    assert sorted(set(second) - set(top)) == [f"aclnn_{name}.h" for name in own]
    assert all(top[header] == text for header, text in second.items() if header in top)


def test_older_releases_keep_their_headers_in_the_operator_package_with_links_to_them(
    trees: dict[str, Generation],
) -> None:
    link = trees["8.1"].include / "aclnnop"
    assert link.is_symlink()
    assert Path(link.resolve()) == trees["8.1"].op_api_headers.resolve()
    here = trees["8.3"]
    links = sorted((here.include / "aclnnop").rglob("*.h"))
    assert not (here.include / "aclnnop").is_symlink()
    assert all(link.is_symlink() for link in links)
    assert {link.resolve() for link in links} == {*here.op_api_headers.resolve().rglob("*.h")}
