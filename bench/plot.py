#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""Pictures of the CSV that bench/qattn_bench and bench/compare_torch.py write: one PNG a suite, a panel a type, a bar a
case and implementation.

    bench/qattn_bench --suite bench/suites/prefill.txt --csv out.csv
    python3 bench/plot.py out.csv [more.csv] --out pictures/

A bar shows GB/s for decoding, microseconds for small and mixed problems, GFLOP/s for the others (--metric says
otherwise); the number beside it is the share of the roofline. Of lines that tell of the same case,
implementation, thread count and version the last one counts. Needs matplotlib.
"""
import argparse
import csv
import os
import sys

METRICS = {"gflops": "GFLOP/s", "gbs": "GB/s", "median_us": "median, microseconds", "min_us": "least, microseconds"}
SUITE_METRIC = {"decode": "gbs", "decode_fa": "gbs", "paged": "gbs", "small": "median_us", "mixed": "median_us",
                "host": "median_us"}
NEEDED = ("suite", "case", "op", "impl", "dtype", "threads", "median_us", "gflops", "gbs", "roofline_share", "version")


def read_rows(paths):
    """{suite: {(dtype, case, series): row}}, in the order of the files."""
    suites, rows = {}, []
    for path in paths:
        with open(path, newline="", encoding="utf-8") as f:
            reader = csv.DictReader(f)
            missing = [c for c in NEEDED if c not in (reader.fieldnames or ())]
            if missing:
                sys.exit(f"{path}: no column {', '.join(missing)}")
            rows += list(reader)
    versions = {row["version"] for row in rows}
    for row in rows:
        series = row["impl"]
        if row["threads"]:                                                # not on CUDA devices
            series += f", {row['threads']} thread" + ("s" if row["threads"] != "1" else "")
        if len(versions) > 1:
            series += f", {row['version']}"
        suite = "cases" if row["suite"] == "-" else row["suite"]          # --case lines belong to no suite
        suites.setdefault(suite, {})[row["dtype"], row["case"], series] = row
    return suites


def number(text):
    try:
        return float(text)
    except ValueError:
        return 0.0


def show(value):
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def unique(values):
    return list(dict.fromkeys(values))


def short_case(case, dtype):
    """The panel's title gives the type already."""
    return " ".join(word for word in case.split() if word != dtype)


def draw_panel(axes, rows, dtype, series, colours, metric):
    cases = unique(case for d, case, _ in rows if d == dtype)
    height = 0.8 / len(series)
    for n, name in enumerate(series):
        for y, case in enumerate(cases):
            row = rows.get((dtype, case, name))
            if row is None:
                continue
            at = y + (n - (len(series) - 1) / 2) * height
            value, share = number(row[metric]), number(row["roofline_share"])
            axes.barh(at, value, height * 0.92, color=colours[name])
            text = f" {show(value)}" if value > 0 or metric != "gflops" else f" {show(number(row['gbs']))} GB/s"
            text += f" ({share:.0%})" if share > 0 else ""
            axes.text(value, at, text, va="center", fontsize=7)
    axes.set_yticks(range(len(cases)), [short_case(case, dtype) for case in cases], fontsize=8)
    axes.invert_yaxis()
    axes.set_title(dtype, loc="left", fontsize=10)
    axes.margins(x=0.18)
    axes.set_xlim(left=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw_suite(plt, suite, rows, metric, path):
    dtypes, series = (unique(key[i] for key in rows) for i in (0, 2))
    colours = {name: plt.get_cmap("tab10")(n % 10) for n, name in enumerate(series)}
    counts = [len(unique(case for d, case, _ in rows if d == dtype)) for dtype in dtypes]
    inches = sum(counts) * max(0.3, 0.16 * len(series)) + 0.7 * len(dtypes) + 1.2
    figure, panels = plt.subplots(len(dtypes), 1, figsize=(10, inches), squeeze=False, layout="constrained",
                                  sharex=True, gridspec_kw={"height_ratios": counts})
    for axes, dtype in zip(panels[:, 0], dtypes):
        draw_panel(axes, rows, dtype, series, colours, metric)
    panels[-1, 0].set_xlabel(METRICS[metric])
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours[name]) for name in series]
    figure.legend(handles, series, loc="outside upper right", ncols=min(4, len(series)), fontsize=8, frameon=False)
    versions = ", ".join(unique(row["version"] for row in rows.values()))
    title = versions if "libqattn" in versions else f"libqattn {versions}"
    figure.suptitle(f"{title}: {suite}", x=0.01, ha="left", fontsize=12)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("csv", nargs="+")
    p.add_argument("--out", default=".", help="folder for the pictures (default: here)")
    p.add_argument("--metric", choices=METRICS)
    a = p.parse_args()
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py needs matplotlib: pip install matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    os.makedirs(a.out, exist_ok=True)
    suites = read_rows(a.csv)
    for suite, rows in suites.items():
        path = os.path.join(a.out, f"{suite}.png")
        draw_suite(plt, suite, rows, a.metric or SUITE_METRIC.get(suite, "gflops"), path)
        print(path)
    return 0 if suites else 1


if __name__ == "__main__":
    sys.exit(main())
