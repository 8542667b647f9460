"""Tables of results.jsonl, for people."""


def shown(value):
    """A number with two decimals, anything else as it is."""
    return f"{value:.2f}" if isinstance(value, float) else "-" if value is None else str(value)


def table(columns, rows):
    """Columns as wide as what is in them."""
    cells = [columns, *[[shown(row.get(column)) for column in columns] for row in rows]]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)


def beside(rows):
    """Ours beside PyTorch's, by network, mini-batch and precision; above 1 we are quicker."""
    found = {}
    for row in rows:
        if row["section"] in ("ours", "eager", "compiled", "fp8") and "status" not in row:
            line = found.setdefault((row["network"], row["batch"], row["precision"]), {})
            line |= {key: row[key] for key in ("network", "batch", "precision")}
            if row["section"] in ("ours", "fp8"):
                line |= {"ms": row["step_ms"], "input ms": row["input_ms"], "gap ms": row["gap_ms"]}
                line["note"] = "input-bound" if row["input_bound"] else ""
            else:
                line[f"{row['section']} ms"] = row["median"]
    for line in found.values():
        if line.get("ms") and line.get("eager ms"):
            line["eager/ours"] = line["eager ms"] / line["ms"]
    return list(found.values())


def text(rows):
    """All tables that there are rows for."""
    of = lambda section: [row for row in rows if row["section"] == section]
    parts = [table(["name", "status", "seconds", "why"], of("section"))]
    judged = [row for row in rows if row["section"] != "section" and row.get("status") not in (None, "passed")]
    if judged:
        parts.append(table(["section", "name", "network", "precision", "tool", "status", "why"], judged))
    figures = beside(rows)
    if figures:
        columns = ["network", "batch", "precision", "ms", "input ms", "gap ms", "eager ms", "compiled ms", "eager/ours", "note"]
        parts.append(table(columns, figures))
    for section, columns in [
        ("predicted", ["network", "predicted_ms", "step_ms", "off"]),
        ("ops", ["network", "node", "ms", "share"]),
        ("layers", ["layer", "pass", "storage", "order", "library_ms", "own_ms", "tflops", "off"]),
        ("chains", ["network", "switch", "step_ms"]),
        ("graphs", ["network", "switch", "step_ms"]),
        ("layout", ["network", "switch", "step_ms"]),
        ("algorithms", ["network", "switch", "step_ms"]),
    ]:
        found = [row for row in of(section) if columns[1] in row]
        if found:
            parts.append(f"{section}\n" + table(columns, found))
    return "\n\n".join(parts) + "\n"
