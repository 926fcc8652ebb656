"""The headers of CANN's C interface, which the wheel of torch_npu brings along.

``python -m tests.abi.wheel`` downloads them. Nothing is installed and nothing of it is committed:
what is kept is the headers alone, below build/.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

VERSION = "2.14.0"
NAME = f"torch_npu {VERSION}"
FOLDER = Path(__file__).parents[2] / "build" / "abi"

_INCLUDE = "torch_npu/include"
# The runtime's headers, and the one that declares the functions of libnnopbase as it calls them.
_KEPT = (f"{_INCLUDE}/acl/", f"{_INCLUDE}/third_party/op-plugin/op_plugin/utils/op_api_common")
# Any wheel of this version has the same headers: this one is taken on every machine.
_WHEEL = (
    "--only-binary=:all:", "--implementation=cp", "--python-version=3.11", "--abi=cp311",
    "--platform=manylinux_2_28_x86_64",
)  # fmt: skip


class UnavailableError(Exception):
    """The headers are not there and cannot be downloaded; the message says why."""


def headers(folder: Path = FOLDER) -> Path:
    """The folder to include from, downloaded into ``folder`` where that has not been done."""
    unpacked = folder / f"torch_npu-{VERSION}"
    if not unpacked.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            wheel = _download(Path(scratch))
            with ZipFile(wheel) as archive:
                kept = [name for name in archive.namelist() if name.startswith(_KEPT)]
                archive.extractall(scratch, kept)
            _put(Path(scratch, _INCLUDE), unpacked)
    return unpacked


def _put(made: Path, place: Path) -> None:
    """Another process may do the same: whoever is first has made it for both."""
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def _download(folder: Path) -> Path:
    requirement = f"torch_npu=={VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *_WHEEL]
    done = subprocess.run(
        [*command, "--dest", folder, requirement], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise UnavailableError(f"expected to download {requirement} for its headers: {said}")
    return next(folder.glob("*.whl"))


if __name__ == "__main__":
    print(headers())
