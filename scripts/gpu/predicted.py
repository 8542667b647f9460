"""Predicted beside measured step time: predicted.py NAME RESULT METRICS.

Measured is the median step, the first three left out.
"""

import json
import statistics
import sys

name, result, metrics = sys.argv[1:]
predicted = json.load(open(result))["predicted_step_ns"] / 1e6
steps = [json.loads(line)["step_ns"] / 1e6 for line in open(metrics)]
measured = statistics.median(steps[3:])
print(f"{name:10} {predicted:>12.2f} {measured:>12.2f} {100 * (predicted / measured - 1):>+6.1f} %")
