"""Writes what an installation is beside its libraries: folders, headers, versions, set_env.sh."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from .headers import FIXED, write_headers  # beside a folder
from .prototypes import Prototype
from .tree import IN_THE_PACKAGE, MACHINE, Generation

_VERSIONS = {"8.1": "8.1.RC1", "8.3": "8.3.RC1", "9.x": "9.0.0"}
_PACKAGES = {
    "8.1": ("compiler", "hccl", "opp", "opp_kernel", "runtime", "toolkit"),
    "8.3": ("compiler", "hccl", "opbase", "opp", "runtime", "toolkit"),
    "9.x": ("hccl", "opbase", "ops_math", "ops_nn", "runtime", "toolkit"),
}
_SET_ENV = """\
# Sourced by users of this toolkit.
export ASCEND_TOOLKIT_HOME={home}
export LD_LIBRARY_PATH=${{ASCEND_TOOLKIT_HOME}}/lib64/plugin/opskernel:${{LD_LIBRARY_PATH}}
export LD_LIBRARY_PATH=${{ASCEND_TOOLKIT_HOME}}/lib64:${{LD_LIBRARY_PATH}}
export PYTHONPATH=${{ASCEND_TOOLKIT_HOME}}/python/site-packages:${{PYTHONPATH}}
export PATH=${{ASCEND_TOOLKIT_HOME}}/bin:${{PATH}}
export ASCEND_AICPU_PATH=${{ASCEND_TOOLKIT_HOME}}
export ASCEND_OPP_PATH=${{ASCEND_TOOLKIT_HOME}}/opp
export TOOLCHAIN_HOME=${{ASCEND_TOOLKIT_HOME}}/toolkit
export ASCEND_HOME_PATH=${{ASCEND_TOOLKIT_HOME}}
"""


def lay_out(name: str, here: Generation) -> None:
    """Makes the folders: the home is a link to the release's, which has a folder for the machine.

    A tree of another layout goes.
    """
    version = _VERSIONS[name] if name in IN_THE_PACKAGE else f"cann-{_VERSIONS[name]}"
    release = here.home.parent / version
    if not here.home.is_symlink():
        shutil.rmtree(here.home, ignore_errors=True)
        release.mkdir(parents=True, exist_ok=True)
        here.home.symlink_to(release.name)
    for folder in here.lib64, here.include:
        if not folder.is_symlink():
            target = Path(f"{MACHINE}-linux", folder.name)
            (release / target).mkdir(parents=True, exist_ok=True)
            folder.symlink_to(target)


def install(name: str, here: Generation, operators: Sequence[Prototype]) -> None:
    """Writes the files of one tree around its libraries."""
    install_headers(name, here, operators)
    for package in _PACKAGES[name]:
        folder = here.home / "share/info" / package
        folder.mkdir(parents=True, exist_ok=True)
        version = _VERSIONS[name]
        (folder / "version.info").write_text(f"Version={version}\nversion_dir={version}\n")
    here.set_env.write_text(_SET_ENV.format(home=here.home))


def install_custom(package: Path, operators: Sequence[Prototype]) -> None:
    """Writes the headers of a custom package, and its folder's version file."""
    write_headers(operators, package / "op_api/include", level2=False)
    (package / "version.info").write_text("custom_opp_compiler_version=9.0.0\n")


def install_headers(name: str, here: Generation, operators: Sequence[Prototype]) -> None:
    """Writes the headers of the operators that a release has, in place of what was there."""
    include = here.include.resolve()
    shutil.rmtree(include, ignore_errors=True)
    include.mkdir(parents=True)
    folder = include / "aclnnop"
    is_linked = name in IN_THE_PACKAGE
    files = here.op_api_headers if is_linked else folder
    shutil.rmtree(files, ignore_errors=True)
    write_headers([p for p in operators if name in p.releases], files, level2=is_linked)
    for source in (FIXED / "both", *([FIXED / "8.1"] if is_linked else [])):
        for path in source.glob("*.h"):
            shutil.copy(path, files)
    if name == "8.1":
        folder.symlink_to(files.resolve())
    elif name == "8.3":  # a link for each header
        for path in files.rglob("*.h"):
            link = folder / path.relative_to(files)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
    shutil.copytree(FIXED / "aclnn", include / "aclnn")
