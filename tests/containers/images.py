"""Builds the images of the Dockerfile, as it is, on base images that come from no registry."""

import ast
import subprocess
from pathlib import Path

from .engines import FOLDER, ROOT, TOOLS, Podman

BASE = "localhost/npucall-base"
CPU = "localhost/npucall-server:cpu"
NPU = "localhost/npucall-server:npu"
TEST = "localhost/npucall-test"
_CANN = "localhost/npucall-cann"
_STAND_IN = Path(__file__).with_name("cann.Containerfile")
_SUITE = "bookworm"  # whose Python is the Dockerfile's
_PYTHON = "python3,python3-venv,python3-pip,ca-certificates,passwd"
_SET_ENV = "/src/build/simulator/9.x/cann/set_env.sh"


def build_base(podman: Podman) -> None:
    """What the registry's Python image is elsewhere: made of Debian's packages, once."""
    if podman.succeeds("image", "exists", BASE):
        return
    archive = FOLDER / "base.tar"
    command = ["mmdebstrap", "--variant=minbase", f"--include={_PYTHON}", _SUITE, str(archive)]
    subprocess.run(command, check=True, capture_output=True)
    podman.on_host("import", archive, BASE)
    archive.unlink()


def build(podman: Podman, stage: str, tag: str, *options: str) -> None:
    """An image of the Dockerfile: that of a stage."""
    build_base(podman)
    given = [f"--build-arg=PYTHON_IMAGE={BASE}", *_index(), *options]
    where = ["--pull=never", "--network=host", "--format=docker", *given]
    podman.on_host("build", *where, f"--target={stage}", f"--tag={tag}", ROOT)


def build_npu(podman: Podman) -> None:
    """The image of the npu server, on a base that has the simulated CANN of the test image."""
    context = _STAND_IN.parent
    podman.on_host("build", "--pull=never", f"--file={_STAND_IN}", f"--tag={_CANN}", context)
    given = [f"--build-arg=CANN_IMAGE={_CANN}", f"--build-arg=CANN_SET_ENV={_SET_ENV}"]
    build(podman, "npu", NPU, *given)


def _index() -> list[str]:
    """What pip is told here it is told in the build: its settings, and the files that they name."""
    command = [str(TOOLS / "python"), "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    settings = {
        name.split(".")[-1]: str(ast.literal_eval(value))
        for name, _, value in (line.partition("=") for line in listed.splitlines())
    }
    written = FOLDER / "pip.conf"
    written.write_text("\n".join(["[global]", *(f"{k} = {v}" for k, v in settings.items()), ""]))
    named = {path for value in settings.values() for path in map(_local, value.split()) if path}
    volumes = [f"--volume={path.resolve()}:{path}:ro" for path in sorted(named)]
    return [f"--secret=id=pip,src={written}", *volumes]


def _local(word: str) -> Path | None:
    """The file or folder that a setting of pip names; of an index the folder that has its files."""
    path = Path(word.removeprefix("file://"))
    if not path.is_absolute() or not path.exists():
        return None
    return path.parent if word.startswith("file://") else path
