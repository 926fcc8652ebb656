"""Runs the public programs of a user's own checkouts: ``python tests/exec/examples.py NN MATH``.

Those count that use only operators that npucall has. They are read where they are, and none is kept
here: they are under CANN's own licence. Those of a folder arch35 are for an Ascend 950. Prints a
line for each that does not end with 0, and how many programs there are.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from npucall.operators import CATALOGUE
from npucall_exec import toolkit

_OURS = {operator.name for operator in CATALOGUE}
_CALLED = re.compile(r"\b(acl(?:nn)?[A-Z]\w*?)GetWorkspaceSize\s*\(")
_LIBRARIES = ("-lopapi_nn", "-lopapi_math", "-lnnopbase", "-lascendcl")
_MAIN = "from npucall_client.commands import main; main()"


def _result(source: Path, home: Path, folder: Path) -> str:
    """ "ran", or why it did not."""
    program = folder / "program"
    include = [f"-I{home}/include", f"-I{home}/include/aclnnop", f"-L{home}/lib64"]
    compile_it = ["g++", "-w", *include, str(source), "-o", str(program), *_LIBRARIES]
    done = subprocess.run(compile_it, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        return f"does not compile: {next(iter(errors), '')}"
    soc = ["--soc", "Ascend950"] if "arch35" in source.parts else []
    run_it = [sys.executable, "-c", _MAIN, "exec", "--target", "local:", *soc, "--", str(program)]
    try:
        done = subprocess.run(
            run_it, capture_output=True, text=True, errors="replace", check=False, timeout=120
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    said = [line for line in done.stderr.splitlines() if "computed by" not in line]
    return "ran" if done.returncode == 0 else f"ends with {done.returncode}: {' '.join(said)[:200]}"


def main() -> None:
    """Counts what runs."""
    home, results = toolkit.built(), Counter[str]()
    for root in map(Path, sys.argv[1:]):
        for source in sorted(root.glob("**/examples/**/test_aclnn_*.cpp")):
            called = set(_CALLED.findall(source.read_text(errors="replace")))
            results["programs"] += 1
            if not called or not called <= _OURS:
                continue
            with tempfile.TemporaryDirectory() as folder:
                result = _result(source, home, Path(folder))
            results["ran" if result == "ran" else "did not run"] += 1
            if result != "ran":
                print(f"{source.relative_to(root)}: {result}")
    print(dict(results))


if __name__ == "__main__":
    main()
