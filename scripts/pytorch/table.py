"""One line of the table: table.py NAME BATCH THREADS TORCH OURS, of the files of step times."""

import json
import statistics
import sys


def objects(path):
    """The JSON objects of a file, one after the other."""
    text, decoder = open(path).read(), json.JSONDecoder()
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        text = text[end:]
        yield value


def main():
    name, batch, threads, torch, ours = sys.argv[1:]
    sides = [
        [line["median"] for line in objects(torch)],
        [line["step_ns"] / 1e6 for line in objects(ours)],
    ]
    middle = [statistics.median(side) for side in sides]
    ranges = [f"{m:.1f} ({min(side):.1f} to {max(side):.1f})" for m, side in zip(middle, sides)]
    ratio = middle[1] / middle[0]
    print(f"{name:12} {batch:>5} {threads:>7} {ranges[0]:>24} {ranges[1]:>24} {ratio:6.2f}")


main()
