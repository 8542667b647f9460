#!/usr/bin/env python3
"""Seeds of `scripts/codecs.sh` together: what each way loses of single precision's accuracy and wins of its time.

    python3 scripts/codec_seeds.py OUT/NET-RANKS-*.txt

The files are tables of `runner curves`, whose first row is single precision. Accuracies are those at the end.
"""

import re
import statistics
import sys
from pathlib import Path

ROW = re.compile(r"^(\S+) +([\d.]+) % +([\d.]+) % +([\d.]+) s ")


def main() -> None:
    """Prints a line a seed and way, then a line a way."""
    lost: dict[str, list[float]] = {}
    faster: dict[str, list[float]] = {}
    print(f"{'run':34} {'last':>7} {'points':>7} {'time':>8} {'speed-up':>9}")
    for file in map(Path, sys.argv[1:]):
        rows = [match.groups() for match in map(ROW.match, file.read_text().splitlines()) if match]
        _, _, first, whole = rows[0]
        for name, _, last, time in rows:
            points, gain = float(last) - float(first), float(whole) / float(time)
            print(f"{f'{file.stem} {name}':34} {last:>5} % {points:+7.2f} {time:>6} s {gain:8.2f}x")
            lost.setdefault(name, []).append(points)
            faster.setdefault(name, []).append(gain)
    for name, points in lost.items():
        spread = statistics.stdev(points) if len(points) > 1 else 0.0
        gain = statistics.median(faster[name])
        print(
            f"{name}: {statistics.mean(points):+.2f} points on average, standard deviation {spread:.2f}, "
            f"least {min(points):+.2f}; {gain:.2f}x as fast (median)"
        )


main()
