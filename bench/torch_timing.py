# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""Times of functions that work on a CUDA device, taken in turn: the measuring part of compare_torch.py.

A candidate's calls are captured in a CUDA graph, so launch cost is no part of its time. Rounds then replay every
candidate's graph once, in an order that is drawn anew each round: all meet the same clocks and the same heat.
"""
import contextlib
import os
import random
import statistics
import subprocess
import time

import torch

WARM_ROUNDS = 2                # replayed, not counted
MAX_CALLS = 64                 # of one graph


class Times:
    """Microseconds of one call, one number a round."""

    def __init__(self, rounds, calls):
        self.rounds, self.calls = sorted(rounds), calls
        self.median, self.least, self.most = statistics.median(rounds), self.rounds[0], self.rounds[-1]

    @property
    def spread(self):
        """Between the quarters, over the median."""
        n = len(self.rounds)
        return (self.rounds[n - 1 - n // 4] - self.rounds[n // 4]) / self.median


def rough_us(run, sets):
    """One call, launch cost included."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for i in range(sets):
        run(i)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / sets


def capture(run, sets, target_us):
    """(graph, calls in it): at least target_us long if MAX_CALLS allows, each input set as often as the others."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(0)
        calls = min(MAX_CALLS, max(1, round(target_us / rough_us(run, sets))))
    torch.cuda.current_stream().wait_stream(stream)
    calls = max(sets, calls - calls % sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            run(i % sets)
    return graph, calls


def take_turns(runs, sets, rounds, target_us=5000):
    """({name: Times}, (MHz, watts) under this load) of runs {name: function of an input set's number}. What cannot be
    captured raises."""
    graphs = {name: capture(run, sets, target_us) for name, run in runs.items()}
    torch.cuda.synchronize()
    taken = {name: [] for name in runs}
    for number in range(WARM_ROUNDS + rounds):
        order = list(graphs)
        random.shuffle(order)
        events = {name: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for name in order}
        for name in order:
            events[name][0].record()
            graphs[name][0].replay()
            events[name][1].record()
        state = read_load() if number == WARM_ROUNDS + rounds - 1 else None     # while the device works
        torch.cuda.synchronize()
        if number >= WARM_ROUNDS:
            for name, (begin, end) in events.items():
                taken[name].append(begin.elapsed_time(end) * 1e3 / graphs[name][1])
    return {name: Times(us, graphs[name][1]) for name, us in taken.items()}, state


def read_load():
    """(MHz, watts), empty strings where the driver's library is not at hand."""
    try:
        return torch.cuda.clock_rate(), torch.cuda.power_draw() // 1000
    except Exception:                                              # its own kinds, if it is there at all
        return "", ""


def loop_ns():
    """A short loop of Python, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter_ns()
        for _ in range(20000):
            pass
        best = min(best, time.perf_counter_ns() - start)
    return best


@contextlib.contextmanager
def quiet_cpu():
    """On the processor where a loop is fastest: others may share their core with somebody, which takes up to twice as
    long."""
    allowed, speed = os.sched_getaffinity(0), {}
    for cpu in allowed:
        os.sched_setaffinity(0, {cpu})
        speed[cpu] = loop_ns()
    os.sched_setaffinity(0, {min(speed, key=speed.get)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def host_times(runs, rounds, calls=50):
    """{name: Times} of the host alone, of runs {name: function that makes so many calls}: they are queued and not
    waited for, and the device is idle before."""
    with quiet_cpu():
        return _host_times(runs, rounds, calls)


def _host_times(runs, rounds, calls):
    taken = {name: [] for name in runs}
    for number in range(WARM_ROUNDS + rounds):
        order = list(runs)
        random.shuffle(order)
        for name in order:
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            runs[name](calls)
            spent = time.perf_counter_ns() - start
            if number >= WARM_ROUNDS:
                taken[name].append(spent / 1e3 / calls)
    torch.cuda.synchronize()
    return {name: Times(us, calls) for name, us in taken.items()}


def device_state():
    """Clock, power and temperature, or why not."""
    query = "clocks.sm,power.draw,temperature.gpu"
    try:
        return subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "-i", "0"],
                              capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as e:
        return f"unknown ({type(e).__name__})"
