"""Operators that only a user's header declares."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.npu import running_npu_server
from tests.rows import each

from npucall_exec.own_operators import operators_in

from .conftest import Run

HEADER = """\
/* aclnnOldGetWorkspaceSize(int x); */
#include "aclnn/acl_meta.h"
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((visibility("default"))) aclnnStatus aclnnExp2GetWorkspaceSize(
    const aclTensor *self,  // one
    aclTensor * out, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnExp2(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                         aclrtStream stream);
#ifdef __cplusplus
}
#endif
"""
PROGRAM = """\
#include <cstdio>
#include "acl/acl.h"
#include "exp2.h"
int main() {
    const float values[] = {1, 5};
    const int64_t shape[] = {2};
    void *memory = nullptr;
    aclInit(nullptr);
    aclrtSetDevice(0);
    aclrtMalloc(&memory, 96, ACL_MEM_MALLOC_HUGE_FIRST);
    aclTensor *tensors[2];
    for (int i = 0; i < 2; ++i) {
        void *own = static_cast<char *>(memory) + 32 * i;
        if (i == 0) aclrtMemcpy(own, 8, values, 8, ACL_MEMCPY_HOST_TO_DEVICE);
        tensors[i] = aclCreateTensor(shape, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 1, own);
    }
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    const int status = aclnnExp2GetWorkspaceSize(tensors[0], tensors[1], &size, &executor);
    if (status != 0) return std::printf("%d", status), 0;
    void *workspace = nullptr;
    if (size != 0) aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST);
    aclnnExp2(workspace, size, executor, nullptr);
    std::printf("%d", aclrtSynchronizeStream(nullptr));
    float found[2];
    aclrtMemcpy(found, 8, static_cast<char *>(memory) + 32, 8, ACL_MEMCPY_DEVICE_TO_HOST);
    std::printf(" %g %g", found[0], found[1]);
}
"""


def test_a_header_is_read_as_a_compiler_reads_it(tmp_path: Path) -> None:
    (tmp_path / "exp2.h").write_text(HEADER)
    ((name, parameters),) = operators_in(tmp_path).items()
    assert name == "aclnnExp2"
    assert [(p.name, p.c_type, p.output) for p in parameters] == [
        ("self", "const aclTensor*", False),
        ("out", "aclTensor*", True),
    ]


@each(
    ("text", "sentence"),
    [
        ("", "expected headers of operators"),
        ("int aclnnAGetWorkspaceSize();", "aclnnA in .*: expected uint64_t"),
        ("int aclnnAGetWorkspaceSize(int a, int b, int c);", "aclnnA in .*: expected uint64_t"),
        (
            "int aclnnAGetWorkspaceSize(FILE *a, uint64_t *s, aclOpExecutor **e);",
            "expected a type of aclnn, found 'FILE",
        ),
    ],
)
def test_what_is_no_prototype_of_an_operator_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "own.h").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        operators_in(tmp_path)


@pytest.mark.long
def test_a_server_s_npu_runs_an_operator_of_the_user(run_under: Run, tmp_path: Path) -> None:
    (tmp_path / "exp2.h").write_text(HEADER)
    source = tmp_path / "program.cpp"
    source.write_text(PROGRAM)
    asked = ("--headers", tmp_path, "--compile", source)
    with running_npu_server() as server:
        assert run_under("--target", server.target, *asked).stdout == "0 2 32"
    refused = run_under(*asked)
    assert (refused.stdout, "aclnnExp2" in refused.stderr) == ("561003", True), refused.stderr
