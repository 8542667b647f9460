"""The median step of a run's metrics in milliseconds, the first three left out: median.py METRICS."""

import json
import statistics
import sys

steps = [json.loads(line)["step_ns"] / 1e6 for line in open(sys.argv[1])]
print(statistics.median(steps[3:]))
