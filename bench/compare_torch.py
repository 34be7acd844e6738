#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""libqattn beside torch's attention on one CUDA device: FlashAttention-2, cuDNN, efficient, math, flex_attention,
three kernels, FlashAttention-2 on packed batches, and FlashAttention-3 where fa3_fwd_interface can be imported.

    make && python3 bench/compare_torch.py --csv compare.csv --bars
    python3 bench/compare_torch.py --suite decode,paged --rows sm80,simt --quick

How it measures
  All candidates of a case in one process, on the same tensors. Each is first compared with float64 on sampled rows;
  a wrong one is named and not timed. Then its calls are captured in a CUDA graph (as many as fill --graph-ms), and
  rounds replay every graph once, in an order drawn anew each round: same clocks, same heat. Figures are medians of
  the rounds; spread is the distance of the quarters over the median. decode and paged take several caches in turn,
  320 MB together or more, so that keys come from memory. The suite host times the calls' host side.
  TFLOP/s: 4 D flop per visible pair, a square causal case counts half of all pairs. TB/s: K and V read once.

Rows (--rows): qattn, the library's own choice; sm80, as a device of compute capability 8 would run (QATTN_MAX_ARCH=80);
simt, the generic kernels. Where qattn takes the row that sm80 takes, it is not timed twice.

Output: a table a suite, ratios (peer's time / libqattn's, above 1 where libqattn is faster), CSV that plot.py reads,
and with --bars the goals and whether they are met.
"""
import argparse
import csv
import os
import random
import signal
import sys
import time

try:
    import torch
    from torch.nn.attention import sdpa_kernel
except ImportError:
    sys.exit("compare_torch.py needs torch: pip install torch")

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_bars import Results, print_bars
from torch_peers import BACKENDS, MAKERS
from torch_problems import TF32_UNIT, UNIT, LeftOut
from torch_rows import ROWS, load_rows
from torch_suites import SUITES
from torch_timing import device_state, host_times, take_turns

COLUMNS = ("suite", "case", "op", "impl", "dtype", "threads", "median_us", "min_us", "max_us", "spread", "gflops",
           "gbs", "ratio", "roofline_share", "max_err", "calls", "sm_mhz",
           "watts", "note", "version")
DTYPES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
PEER_SLACK = 4                 # how much more error a peer may have (bf16 scores in memory) than libqattn
HOST_SHAPE = "B1 H16 S128 D64"
HOST_ROUNDS = 20               # times the others' number: they take 5 ms, and a host has slow moments that last longer


class Bench:
    def __init__(self, options):
        self.options, self.rows = options, load_rows(options.rows)
        self.main = options.rows[0]                            # ratios and bars speak of this row
        self.start = time.time()
        self.results, self.lines, self.said, self.wrong = Results(self.main), [], set(), 0
        self.version = f"torch {torch.__version__}, libqattn {next(iter(self.rows.values())).version()}"

    # ---- candidates

    def candidates(self, case, problem):
        """{name: (run, note, whether it is libqattn)}; what has nothing to show is said."""
        found, taken = {}, set()
        for row in sorted(self.rows, key=lambda name: name == "qattn"):
            for variant in case.variants:
                name = f"{row} {variant}".strip()
                try:
                    run = problem.ours(self.rows[row], variant)
                except (LeftOut, self.rows[row].QattnError) as e:
                    self.say_left_out(name, e)
                    continue
                used = run.row.splitlines()[0]
                if row != "qattn" or (used, variant) not in taken:
                    found[name] = run, used, True
                taken.add((used, variant))
        for name in case.peers:
            if self.options.peers and name not in self.options.peers:
                continue
            try:
                if name == "flex" and time.time() - self.start > self.options.flex_until:
                    raise LeftOut("--flex-until")
                found[name] = MAKERS[name](problem), "", False
            except LeftOut as e:
                self.say_left_out(name, e)
        return found

    def say_left_out(self, name, why):
        text = f"    {name}: left out: {' '.join(str(why).split())[:160]}"
        if self.options.verbose and text not in self.said:
            self.said.add(text)
            print(text)

    def check(self, name, run, ours, problem):
        """The error as a share of its bound, or None where the candidate is wrong or does not run."""
        unit = TF32_UNIT if "tf32" in name and "3xtf32" not in name else UNIT[problem.dtype]
        try:
            error = problem.error(run(0), unit * (1 if ours else PEER_SLACK))
            torch.cuda.synchronize()
        except (RuntimeError, self.rows[self.main].QattnError, *(row.QattnError for row in self.rows.values())) as e:
            print(f"    {name}: does not run: {' '.join(str(e).split())[:160]}")
            self.wrong += ours
            return None
        if error <= 1:
            return error
        print(f"    {name}: WRONG, {error:.3g} times its error bound; not timed")
        self.wrong += ours
        return None

    # ---- a case

    def run_case(self, suite, case):
        torch.manual_seed(1)
        problem = case.make()
        found, errors = self.candidates(case, problem), {}
        for name in list(found):
            errors[name] = self.check(name, found[name][0], found[name][2], problem)
            if errors[name] is None:
                del found[name]
        times, load = {}, ("", "")
        if found:
            runs = {name: run for name, (run, _, _) in found.items()}
            times, load = take_turns(runs, problem.sets, self.options.rounds, 1000 * self.options.graph_ms)
        for name, t in times.items():
            self.results.add(suite, case.name, name, t.median, problem.flop)
        for name, t in times.items():
            self.note(suite, case, problem, name, t, errors[name], found[name][1], load)
        self.print_case(suite, case, problem, times, load)

    def note(self, suite, case, problem, name, t, error, note, load=("", "")):
        ours = self.results.us.get((suite, case.name, self.main))
        self.lines.append({
            "suite": suite, "case": case.name, "op": case.op, "impl": name,
            "dtype": DTYPES[problem.dtype], "threads": "", "median_us": f"{t.median:.3f}",
            "min_us": f"{t.least:.3f}", "max_us": f"{t.most:.3f}", "spread": f"{t.spread:.4f}",
            "gflops": f"{problem.flop / t.median / 1e3:.1f}",
            "gbs": f"{getattr(problem, 'bytes', 0) / t.median / 1e3:.1f}",
            "ratio": f"{t.median / ours:.4f}" if ours else "", "roofline_share": "", "max_err": f"{error:.3f}",
            "calls": t.calls, "sm_mhz": load[0], "watts": load[1], "note": note, "version": self.version})

    def print_case(self, suite, case, problem, times, load):
        cells = []
        ours = self.results.us.get((suite, case.name, self.main))
        for name, t in times.items():
            rate = f"{getattr(problem, 'bytes', 0) / t.median / 1e6:.2f} TB/s" if suite in ("decode", "paged") \
                else f"{problem.flop / t.median / 1e6:.0f} TF"
            ratio = f" x{t.median / ours:.2f}" if ours and name != self.main else ""
            cells.append(f"{name} {t.median:.1f} us {rate} ±{t.spread:.0%}{ratio}")
        if load[0]:
            cells.append(f"{load[0]} MHz {load[1]} W")
        print(f"  {case.name:24} " + " | ".join(cells), flush=True)

    # ---- host time

    def run_host(self):
        q, k, v = (torch.randn(1, 128, 16, 64, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(3))
        one = torch.randn(1, 32, 1, 128, device="cuda", dtype=q.dtype)
        keys, values = (torch.randn(1, 8, 4096, 128, device="cuda", dtype=q.dtype) for _ in range(2))
        out, one_out, runs = torch.empty_like(q), torch.empty_like(one), {}
        for name, binding in self.rows.items():
            call = binding.bind("flash_forward", q, k, v, out)
            split = binding.bind("flash_forward", one, keys, values, one_out)
            refused = binding.bind("flash_forward", q, k, v, out)
            refused.params.softcap = -1.0
            mark = "libqattn" if name == self.main else f"libqattn {name}"
            runs[f"{mark}, bound call"] = repeat(call)
            runs[f"{mark}, bound call, keys split"] = repeat(split)
            runs[f"{mark}, refused call"] = repeat(lambda c=refused: c._run(*c._ready))
            empty = binding.bind("flash_forward", q, k, v, out)       # the same arguments, and nothing done with them
            empty._run = binding._untyped("abi_version")
            runs[f"{mark}, empty call"] = repeat(empty)
            runs[f"{mark}, function"] = repeat(lambda binding=binding: binding.flash_forward(q, k, v, out))
            runs[f"{mark}, function, O allocated"] = repeat(lambda binding=binding: binding.flash_forward(q, k, v))
        problem = type("Problem", (), {"dtype": q.dtype, "flop": 0})
        for name in ("fa2", "cudnn", "efficient"):
            runs[f"sdpa {name}"] = repeat_sdpa(BACKENDS[name], q, k, v)
        case = type("Case", (), {"name": HOST_SHAPE, "op": "host"})
        for name, t in host_times(runs, HOST_ROUNDS * self.options.rounds).items():
            self.results.add("host", HOST_SHAPE, name, t.median, 0)
            self.note("host", case, problem, name, t, 0.0, "host time")
            print(f"  {name:34} {t.median:7.2f} us ±{t.spread:.0%}")

    # ---- all

    def run(self):
        try:
            self.run_suites()
        finally:                                               # also what was measured before an interruption
            if self.options.bars:
                print_bars(self.results)
        return 1 if self.wrong else 0

    def run_suites(self):
        print(f"{torch.cuda.get_device_name()}, {self.version}; {device_state()}")
        for suite in self.options.suite:
            start = time.time()
            print(f"\n{suite} (x: candidate's time / {self.main}'s)")
            if suite == "host":
                self.run_host()
            else:
                for case in SUITES[suite](self.options.quick):
                    if self.options.case in case.name:
                        self.run_case(suite, case)
                        torch.cuda.empty_cache()
            print(f"  {time.time() - start:.1f} s; {device_state()}", flush=True)
            self.write_csv()

    def write_csv(self):
        if self.options.csv:
            with open(self.options.csv, "w", newline="", encoding="utf-8") as f:
                writer = csv.DictWriter(f, COLUMNS)
                writer.writeheader()
                writer.writerows(self.lines)


def repeat(call):
    def run(count):
        for _ in range(count):
            call()
    return run


def repeat_sdpa(backend, q, k, v):
    """The choice of the backend is no part of the calls."""
    def run(count):
        with sdpa_kernel(backend):
            for _ in range(count):
                torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return run


def comma_list(text):
    return [word.strip() for word in text.split(",") if word.strip()]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--suite", type=comma_list, default=[*SUITES, "host"], help=f"of {', '.join(SUITES)}, host")
    p.add_argument("--case", default="", help="only cases whose name has this text")
    p.add_argument("--rows", type=comma_list, default=["sm80", "qattn"],
                   help="the first is what ratios and bars speak of")
    p.add_argument("--peers", type=comma_list, help=f"of {', '.join(MAKERS)}")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--graph-ms", type=float, default=5.0, help="length of a candidate's graph (default 5)")
    p.add_argument("--flex-until", type=float, default=1e9, metavar="SECONDS",
                   help="leave flex_attention out of cases that begin later: it compiles for 3 s a case")
    p.add_argument("--quick", action="store_true", help="fewer cases, 5 rounds")
    p.add_argument("--bars", action="store_true", help="print the goals and whether they are met")
    p.add_argument("--csv")
    p.add_argument("--verbose", action="store_true", help="say which candidates are left out, and why")
    options = p.parse_args()
    for what, given, known in (("suite", options.suite, [*SUITES, "host"]), ("row", options.rows, ROWS),
                               ("peer", options.peers or [], MAKERS)):
        for name in given:
            if name not in known:
                p.error(f"no {what} {name!r}: one of {', '.join(known)}")
    if not torch.cuda.is_available():
        sys.exit("compare_torch.py needs a CUDA device")
    if options.quick:
        options.rounds = min(options.rounds, 5)
    random.seed(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("compare_torch.py was told to end"))
    with torch.inference_mode():
        return Bench(options).run()


if __name__ == "__main__":
    sys.exit(main())
