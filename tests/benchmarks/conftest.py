"""The modules of the benchmarks import each other by name, as scripts of one folder do."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
