"""How much of the sums over replicas a run hides behind its computing: overlap.py TRACE.

Of the time in which gradients are summed, the share in which the same rank computes; the steps of the
trace but the first.
"""

import json
import sys

events = json.load(open(sys.argv[1]))["traceEvents"]
compute, sums = {}, []
for event in events:
    if event["ph"] == "X" and event["tid"] == 0:
        span = (event["ts"], event["ts"] + event["dur"])
        compute.setdefault(event["pid"], []).append(span)
    if event["ph"] == "b" and event["cat"] == "all-reduce" and event["args"]["step"] > 0:
        end = event["ts"] + event["args"]["duration"] / 1e3
        sums.append((event["pid"], event["ts"], end))
total = sum(end - start for _, start, end in sums)
hidden = sum(
    max(0.0, min(end, b) - max(start, a)) for pid, start, end in sums for a, b in compute.get(pid, [])
)
print(f"{100 * hidden / total:.0f} % of {total / 1e3:.2f} ms" if total else "no sums in the trace")
