"""One line of gpu-check.sh's table: row.py NAME BATCH PRECISION EAGER COMPILED OURS.

EAGER and COMPILED are lines of step.py, or empty; OURS is milliseconds, or `none`. The ratio is
PyTorch's eager step over ours: above 1 we are faster.
"""

import json
import sys

name, batch, precision, eager, compiled, ours = sys.argv[1:]
eager, compiled = (json.loads(line)["median"] if line else None for line in (eager, compiled))
ours = None if ours == "none" else float(ours)
texts = ["not measured" if value is None else f"{value:.2f}" for value in (eager, compiled, ours)]
ratio = f"{eager / ours:.2f}" if eager and ours else "-"
print(f"{name:10} {batch:>6} {precision:>10} {texts[0]:>22} {texts[1]:>22} {texts[2]:>22} {ratio:>7}")
