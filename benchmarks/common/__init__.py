"""What several benchmarks use."""

import sys
from pathlib import Path

# Python looks into a program's own folder first, where transformers.py would hide the package of that name.
_PROGRAMS = Path(__file__).resolve().parents[1]
sys.path[:] = [one for one in sys.path if Path(one).resolve() != _PROGRAMS] + [str(_PROGRAMS)]
