"""The table of results that peers.py prints."""

import statistics


def table(groups, results):
    """Returns Markdown: for each group a title and a line for each row, with medians and, in
    brackets, minimum and maximum."""
    lines = []
    for title, rows in groups:
        if rows:
            lines += [f"| {title} | shuffled | samples/s | CPU µs a sample |", "|---|---|---|---|"]
            lines += [f"| {row['text']} | {'yes' if row['shuffled'] else 'no'} | {cells(row)} |" for row in rows]
            lines.append("")
    on = ", ".join(results["machine"])
    return "\n".join([*lines, f"Measured on {on}: medians of {results['rounds']} runs in turn, in brackets the least and the most."])


def cells(row):
    if row.get("missing"):
        return f"{row['missing']} | "
    rate = [row["samples"] / seconds for seconds, _ in row["runs"]]
    cpu = [1e6 * seconds / row["samples"] for _, seconds in row["runs"]]
    return f"{spread(rate, thousands)} | {spread(cpu, '{:.1f}'.format)}"


def spread(values, text):
    return f"{text(statistics.median(values))} ({text(min(values))}–{text(max(values))})"


def thousands(value):
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f} M"
    return f"{value / 1000:.0f} k" if value >= 10_000 else f"{value / 1000:.1f} k"
