"""One line of the table: table.py NAME BATCH RUN TORCH OURS, of the files of step times."""

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
    name, batch, run, torch, ours = sys.argv[1:]
    results = list(objects(ours))
    sides = [
        [line["median"] for line in objects(torch)],
        [line["step_ns"] / 1e6 for line in results],
    ]
    middle = [statistics.median(side) for side in sides]
    ranges = [f"{m:.1f} ({min(side):.1f} to {max(side):.1f})" for m, side in zip(middle, sides)]
    ratio = middle[1] / middle[0]
    # Each round has a prediction of its own, from a profile of that minute.
    errors = [line["predicted_step_ns"] / line["step_ns"] - 1 for line in results]
    off = 100 * statistics.median(errors)
    print(
        f"{name:12} {batch:>5} {run:20} {ranges[0]:>24} {ranges[1]:>24} {ratio:6.2f} {off:+7.1f} %",
        flush=True,
    )


main()
