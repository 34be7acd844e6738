#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The libqattn authors
"""libqattn beside other CPU attention: onnxruntime, torch, numpy.

    pip install numpy onnx onnxruntime torch          # what is missing is left out, and said
    make && python3 bench/compare_cpu.py --out compare_cpu.csv
    python3 bench/compare_cpu.py --only decode --dtypes f16 --threads 2 --rounds 9 --peers torch,ort_gqa,qattn

How it measures
  Each peer is a process of its own, one for each thread count. In every round each peer runs the case in turn, for
  at least --ms milliseconds after one warm-up run, so that a neighbour's load meets all alike. A round is its median;
  the figure of a case is the median of its rounds, min_us the least time of all.
  A round in which other processes took more than the cores left free and a fifth of one is not quiet: it is taken
  again, up to five times. With three quiet rounds or more, only those enter the median; quiet_rounds counts them.
  Inputs are the same normal random numbers, rounded to the type. max_err is the largest |o - float64| over six rows of
  every head. Work: 4*B*H*Sq*Sk*D flop, half of it when causal; decode: bytes of K and V read once.

Output
  CSV (--out), one line a peer and case; a markdown table on standard output with the ratio best peer / qattn, above 1
  where qattn is faster, from medians and from least times.

Peers
  numpy      two batched products and a softmax with the scores in memory (f32)
  torch      scaled_dot_product_attention, enable_gqa; torch_x: K and V expanded to Hq heads before the timing
  ort_attn   ONNX Attention-23; ort_mha: MultiHeadAttention, K and V expanded; ort_gqa: GroupQueryAttention, causal
             and decode only, past and present in the same memory
  qattn      flash_forward; qattn_gqa: gqa_forward, the three-kernel path
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "examples", "python"))

try:
    import numpy as np
except ImportError:
    sys.exit("compare_cpu.py needs numpy: pip install numpy")

# ---------------------------------------------------------------- cases

#           B, Hq, Hkv, Sq, Sk, D
PREFILL = [(1, 16, 8, 512, 512, 128), (1, 16, 8, 2048, 2048, 128), (1, 9, 3, 512, 512, 64), (4, 8, 8, 512, 512, 64)]
DECODE = [(b, 32, 8, 1, sk, 128) for b in (1, 8) for sk in (512, 4096, 16384)]
SIZES = {"f32": 4, "f16": 2, "bf16": 2}


def list_cases(only, dtypes):
    for dtype in dtypes:
        if only != "decode":
            for shape in PREFILL:
                for causal in (False, True):
                    yield {"kind": "prefill", "dtype": dtype, "causal": causal, "shape": shape}
        if only != "prefill":
            for shape in DECODE:
                yield {"kind": "decode", "dtype": dtype, "causal": False, "shape": shape}


def case_name(case):
    b, hq, hkv, sq, sk, d = case["shape"]
    size = f"S{sq}" if sq == sk else f"Sq{sq} Sk{sk}"
    return f"{case['kind']} {case['dtype']} B{b} H{hq}/{hkv} {size} D{d}" + (" causal" if case["causal"] else "")


def work_of(case):
    """(flop, bytes of K and V)"""
    b, hq, hkv, sq, sk, d = case["shape"]
    return 4 * b * hq * sq * sk * d // (2 if case["causal"] else 1), 2 * b * hkv * sk * d * SIZES[case["dtype"]]


def checked_rows(sq):
    return sorted({0, 1 % sq, sq // 3, sq // 2, max(sq - 2, 0), sq - 1})


def round_to(x, dtype):
    """f32 in the storage of `dtype`; bf16 as uint16."""
    if dtype == "bf16":
        bits = x.view(np.uint32)
        return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return x.astype({"f32": np.float32, "f16": np.float16}[dtype])


def widen(x):
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x.astype(np.float32)


def make_inputs(case, folder):
    b, hq, hkv, sq, sk, d = case["shape"]
    g = np.random.default_rng(7)
    for name, shape in (("q", (b, hq, sq, d)), ("k", (b, hkv, sk, d)), ("v", (b, hkv, sk, d))):
        np.save(f"{folder}/{name}.npy", round_to(g.standard_normal(shape, dtype=np.float32), case["dtype"]))


def load_inputs(folder):
    return [np.load(f"{folder}/{name}.npy") for name in "qkv"]


def reference(case, folder):
    """float64 result of checked_rows of every head, [B, Hq, rows, D]."""
    b, hq, hkv, sq, _, d = case["shape"]
    q, k, v = load_inputs(folder)
    rows, group = checked_rows(sq), hq // hkv
    o = np.empty((b, hq, len(rows), d))
    for n in range(b):
        for h in range(hkv):
            heads = slice(h * group, (h + 1) * group)
            kk, vv = widen(k[n, h]).astype(np.float64), widen(v[n, h]).astype(np.float64)
            s = widen(q[n, heads][:, rows]).astype(np.float64) @ kk.T / np.sqrt(d)
            if case["causal"]:
                for i, row in enumerate(rows):
                    s[:, i, row + 1:] = -np.inf
            p = np.exp(s - s.max(-1, keepdims=True))
            o[n, heads] = p @ vv / p.sum(-1, keepdims=True)
    return o

# ---------------------------------------------------------------- peers


class LeftOut(Exception):
    """This peer has nothing to show for the case; the text says why."""


class Peer:
    """prepare() gets everything ready and returns in words what will run; run() is what is timed; result() gives
    O as [B, Hq, Sq, D], float32."""

    def prepare(self, case, threads, q, k, v):
        raise NotImplementedError

    def run(self):
        raise NotImplementedError

    def result(self):
        raise NotImplementedError


def expand_heads(x, hq):
    return np.ascontiguousarray(np.repeat(x, hq // x.shape[1], axis=1))


class Qattn(Peer):
    operation = "flash_forward"

    def prepare(self, case, threads, q, k, v):
        import qattn
        dtype = "bf16" if case["dtype"] == "bf16" else None
        self.call = qattn.bind(self.operation, q, k, v, dtype=dtype, num_threads=threads,
                               mask=qattn.MASK_CAUSAL if case["causal"] else 0)
        self.run = self.call
        return f"libqattn {qattn.version()} {self.call.explain().splitlines()[0]}"

    def result(self):
        return widen(self.call.result)


class QattnGqa(Qattn):
    operation = "gqa_forward"


class Numpy(Peer):
    def prepare(self, case, threads, q, k, v):
        if case["dtype"] != "f32":
            raise LeftOut("f32 only")
        b, hq, hkv, sq, sk, d = self.shape = case["shape"]
        self.q = (q / np.float32(np.sqrt(d))).reshape(b, hkv, hq // hkv * sq, d)
        self.kt, self.v, self.bias = k.transpose(0, 1, 3, 2), v, None
        if case["causal"]:
            self.bias = np.tile(np.triu(np.full((sq, sk), -np.inf, np.float32), 1), (hq // hkv, 1))
        return f"numpy {np.__version__}, scores in memory"

    def run(self):
        s = self.q @ self.kt
        if self.bias is not None:
            s += self.bias
        s -= s.max(-1, keepdims=True)
        np.exp(s, out=s)
        total = s.sum(-1, keepdims=True)
        self.o = s @ self.v
        self.o /= total

    def result(self):
        b, hq, _, sq, _, d = self.shape
        return self.o.reshape(b, hq, sq, d)


class Torch(Peer):
    expanded = False

    def prepare(self, case, threads, q, k, v):
        import torch
        hq, hkv = case["shape"][1:3]
        if self.expanded:
            if hq == hkv or case["kind"] == "decode":
                raise LeftOut("no grouped heads to expand, or decode")
            k, v = expand_heads(k, hq), expand_heads(v, hq)
        torch.set_num_threads(threads)
        self.torch = torch
        self.inputs = [torch.from_numpy(x) for x in (q, k, v)]
        if case["dtype"] == "bf16":
            self.inputs = [x.view(torch.bfloat16) for x in self.inputs]
        self.options = {"is_causal": case["causal"]}
        if hq != hkv and not self.expanded:
            self.options["enable_gqa"] = True
        return f"torch {torch.__version__} {torch.backends.cpu.get_cpu_capability()}"

    def run(self):
        with self.torch.inference_mode():
            self.o = self.torch.nn.functional.scaled_dot_product_attention(*self.inputs, **self.options)

    def result(self):
        return self.o.float().numpy()


class TorchExpanded(Torch):
    expanded = True


class Ort(Peer):
    """onnxruntime on a graph of one node, inputs and output bound once. Subclasses give the node."""
    heads_in_rows = True               # tensors [B, S, H*D] rather than [B, H, S, D]
    opsets = {"": 20, "com.microsoft": 1}

    def node(self, helper, case, q, k, v):
        """(node, inputs by name, outputs whose memory is an input: {output: input})"""
        raise NotImplementedError

    def prepare(self, case, threads, q, k, v):
        import onnx
        import onnxruntime as ort
        if case["dtype"] == "bf16":
            raise LeftOut("no bf16 kernels on CPU")
        self.shape = b, hq, _, sq, _, d = case["shape"]
        node, inputs, shared = self.node(onnx.helper, case, q, k, v)
        code = {np.dtype(np.float32): 1, np.dtype(np.float16): 10, np.dtype(np.int32): 6}
        value = onnx.helper.make_tensor_value_info
        out = np.zeros((b, sq, hq * d) if self.heads_in_rows else (b, hq, sq, d), q.dtype)
        outputs = {"o": out, **{name: inputs[source] for name, source in shared.items()}}
        graph = onnx.helper.make_graph([node], "g", *([value(n, code[x.dtype], x.shape) for n, x in group.items()]
                                                      for group in (inputs, outputs)))
        opsets = [onnx.helper.make_opsetid(*item) for item in self.opsets.items()]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.values = {n: ort.OrtValue.ortvalue_from_numpy(x) for n, x in inputs.items()}
        self.values["o"] = ort.OrtValue.ortvalue_from_numpy(out)
        self.binding = self.session.io_binding()
        for name in inputs:
            self.binding.bind_ortvalue_input(name, self.values[name])
        for name in outputs:
            self.binding.bind_ortvalue_output(name, self.values[shared.get(name, name)])
        return f"onnxruntime {ort.__version__} {node.op_type}"

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def result(self):
        b, hq, _, sq, _, d = self.shape
        o = self.values["o"].numpy().astype(np.float32)
        return o.reshape(b, sq, hq, d).transpose(0, 2, 1, 3) if self.heads_in_rows else o

    @staticmethod
    def rows(x):
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


class OrtAttention(Ort):
    heads_in_rows, opsets = False, {"": 23}

    def node(self, helper, case, q, k, v):
        node = helper.make_node("Attention", ["q", "k", "v"], ["o"], is_causal=int(case["causal"]))
        return node, {"q": q, "k": k, "v": v}, {}


class OrtMultiHead(Ort):
    def node(self, helper, case, q, k, v):
        if case["kind"] == "decode":
            raise LeftOut("prefill only")
        hq = case["shape"][1]
        node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["o"], domain="com.microsoft", num_heads=hq,
                                unidirectional=int(case["causal"]))
        return node, {"q": self.rows(q), "k": self.rows(expand_heads(k, hq)), "v": self.rows(expand_heads(v, hq))}, {}


class OrtGroupQuery(Ort):
    def node(self, helper, case, q, k, v):
        b, hq, hkv, sq, sk, _ = case["shape"]
        if not case["causal"] and case["kind"] != "decode":
            raise LeftOut("causal only")
        names = ["q", "k", "v", "past_k", "past_v", "lengths", "total"]
        node = helper.make_node("GroupQueryAttention", names, ["o", "present_k", "present_v"], domain="com.microsoft",
                                num_heads=hq, kv_num_heads=hkv)
        arrays = [self.rows(q), self.rows(k[:, :, -sq:]), self.rows(v[:, :, -sq:]), k, v,
                  np.full(b, sk - 1, np.int32), np.array([sk], np.int32)]
        return node, dict(zip(names, arrays)), {"present_k": "past_k", "present_v": "past_v"}


PEERS = {"numpy": Numpy, "torch": Torch, "torch_x": TorchExpanded, "ort_attn": OrtAttention, "ort_mha": OrtMultiHead,
         "ort_gqa": OrtGroupQuery, "qattn": Qattn, "qattn_gqa": QattnGqa}
OURS = ("qattn", "qattn_gqa")

# ---------------------------------------------------------------- a worker: one peer, one thread count


def time_round(peer, ms):
    """Times in ns of runs for at least ms, and the processor seconds they took."""
    cpu = time.process_time()
    peer.run()
    times, end = [], time.perf_counter() + ms / 1e3
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter_ns()
        peer.run()
        times.append(time.perf_counter_ns() - start)
    return times, time.process_time() - cpu


def serve(name, threads):
    """Answers one JSON line for each JSON line on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                      # what a library prints must not get between the answers
    peer = None
    for line in sys.stdin:
        request, answer = json.loads(line), {}
        try:
            if request["do"] == "prepare":
                peer = PEERS[name]()
                case, folder = request["case"], request["folder"]
                answer["mode"] = peer.prepare(case, threads, *load_inputs(folder))
                peer.run()
                np.save(f"{folder}/out_{name}.npy", peer.result()[:, :, checked_rows(case["shape"][3])])
            elif request["do"] == "time":
                answer["times"], answer["cpu"] = time_round(peer, request["ms"])
            else:
                peer = None
        except LeftOut as e:
            peer, answer["left_out"] = None, str(e)
        except Exception as e:
            peer, answer["left_out"] = None, " ".join(f"{type(e).__name__}: {e}".split())[-200:]
        print(json.dumps(answer), file=answers, flush=True)


class Worker:
    def __init__(self, name, threads):
        self.name = name
        environment = dict(os.environ, OPENBLAS_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        for forced in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
            environment.pop(forced, None)                   # numpy is to choose its kernels itself
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve", name, str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True, env=environment)

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            return {"left_out": f"the process ended (status {self.process.poll()})"}

    def close(self):
        self.process.stdin.close()
        self.process.wait()

# ---------------------------------------------------------------- measuring


def machine_seconds():
    """Processor seconds all processes have taken since the machine started."""
    with open("/proc/stat", encoding="ascii") as f:
        fields = [int(x) for x in f.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def take_round(worker, ms, threads):
    """The answer to one timed round and whether it was quiet; the calmest of up to five tries."""
    allowed = max(0, os.cpu_count() - threads) + 0.2
    best = None
    for _ in range(5):
        busy, start = machine_seconds(), time.time()
        answer = worker.ask(do="time", ms=ms)
        if "left_out" in answer:
            return answer, False
        wall = time.time() - start
        others = (machine_seconds() - busy - answer["cpu"]) / wall
        if best is None or others < best[0]:
            best = (others, answer)
        if others < allowed:
            return answer, True
        if wall > 1:
            break
        time.sleep(0.2)
    return best[1], False


def measure(case, threads, workers, rounds, ms, folder, expected, said):
    """{peer: row} of one case. said: reasons printed so far, {peer: set}."""
    live, rows = [], {}
    for worker in workers:
        answer = worker.ask(do="prepare", case=case, folder=folder)
        if "left_out" in answer:
            said.setdefault(worker.name, set())
            if answer["left_out"] not in said[worker.name]:            # once a reason
                said[worker.name].add(answer["left_out"])
                print(f"# {case_name(case)} {worker.name}: left out: {answer['left_out']}", file=sys.stderr)
            continue
        error = np.abs(np.load(f"{folder}/out_{worker.name}.npy").astype(np.float64) - expected).max()
        rows[worker.name] = {"mode": answer["mode"], "max_err": float(error), "rounds": []}
        live.append(worker)
    for _ in range(rounds):
        for worker in list(live):
            answer, quiet = take_round(worker, ms, threads)
            if "left_out" in answer:
                print(f"# {case_name(case)} {worker.name}: failed: {answer['left_out']}", file=sys.stderr)
                live.remove(worker)
                continue
            rows[worker.name]["rounds"].append((statistics.median(answer["times"]), min(answer["times"]), quiet))
    for worker in workers:
        worker.ask(do="free")
    rows = {name: row for name, row in rows.items() if row["rounds"]}
    for row in rows.values():
        quiet = [r for r in row["rounds"] if r[2]]
        row["quiet"] = len(quiet)
        row["median"] = statistics.median(r[0] for r in (quiet if len(quiet) > 2 else row["rounds"])) / 1e3
        row["min"] = min(r[1] for r in row["rounds"]) / 1e3
    return rows


def best_peer(rows, field):
    """(name, time) of the fastest that is not ours."""
    others = {name: row[field] for name, row in rows.items() if name not in OURS}
    return min(others.items(), key=lambda item: item[1]) if others else (None, None)

# ---------------------------------------------------------------- output


COLUMNS = ("peer", "kind", "dtype", "causal", "B", "Hq", "Hkv", "Sq", "Sk", "D", "threads", "median_us", "min_us",
           "gflops", "kv_gbs", "best_peer", "ratio_median", "ratio_min", "max_err", "quiet_rounds", "rounds", "mode")


def csv_rows(case, threads, rows):
    flop, size = work_of(case)
    best, best_median = best_peer(rows, "median")
    _, best_min = best_peer(rows, "min")
    for name, row in sorted(rows.items(), key=lambda item: item[1]["median"]):
        median, least = row["median"], row["min"]
        ratios = [f"{best_median / median:.3f}", f"{best_min / least:.3f}"] if best else ["", ""]
        yield [name, case["kind"], case["dtype"], int(case["causal"]), *case["shape"], threads, f"{median:.1f}",
               f"{least:.1f}", f"{flop / median / 1e3:.1f}", f"{size / median / 1e3:.2f}", best or "", *ratios,
               f"{row['max_err']:.2e}", row["quiet"], len(row["rounds"]), row["mode"]]


def table_row(case, threads, rows, ours):
    flop, size = work_of(case)
    best, best_median = best_peer(rows, "median")
    row = rows.get(ours)
    if row is None:
        return None
    rate, unit = (size, "GB/s") if case["kind"] == "decode" else (flop, "GFLOP/s")
    cells = [case_name(case), str(threads), f"{row['median']:.0f}", f"{rate / row['median'] / 1e3:.1f} {unit}"]
    if best:
        _, best_min = best_peer(rows, "min")
        cells += [f"{best} {best_median:.0f}", f"{best_median / row['median']:.2f}", f"{best_min / row['min']:.2f}",
                  f"{row['max_err']:.1e} / {rows[best]['max_err']:.1e}"]
    else:
        cells += ["-", "-", "-", f"{row['max_err']:.1e}"]
    quiet = min(r["quiet"] for r in rows.values())
    return "| " + " | ".join(cells + [f"{quiet}/{len(row['rounds'])}", row["mode"].split()[-1]]) + " |"


TITLES = ("case", "threads", "qattn us", "rate", "best peer us", "ratio (median)", "ratio (least)",
          "max error, qattn / peer", "quiet rounds", "implementation")


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", choices=("prefill", "decode"))
    p.add_argument("--dtypes", default="f32,bf16,f16")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--ms", type=float, default=50, help="least time of a round (default 50)")
    p.add_argument("--peers", default="numpy,torch,torch_x,ort_attn,ort_mha,ort_gqa,qattn", help=", ".join(PEERS))
    p.add_argument("--match", default="", help="only cases whose name contains this")
    p.add_argument("--out", help="CSV file, appended to")
    p.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    a = p.parse_args()
    unknown = [n for n in a.peers.split(",") if n not in PEERS] + [d for d in a.dtypes.split(",") if d not in SIZES]
    if unknown:
        p.error(f"unknown: {', '.join(unknown)}")
    return a


def main():
    a = parse_arguments()
    if a.serve:
        return serve(a.serve[0], int(a.serve[1]))
    workers = {int(t): [Worker(name, t) for name in a.peers.split(",")] for t in a.threads.split(",")}
    said = {}
    ours = [name for name in OURS if name in a.peers.split(",")]
    out = open(a.out, "a", newline="", encoding="ascii") if a.out else None
    writer = csv.writer(out) if out else None
    if out and out.tell() == 0:
        writer.writerow(COLUMNS)
    print("| " + " | ".join(TITLES) + " |\n" + "|---" * len(TITLES) + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="qattn_compare") as folder:
        for case in list_cases(a.only, a.dtypes.split(",")):
            if a.match not in case_name(case):
                continue
            make_inputs(case, folder)
            expected = reference(case, folder)
            for threads, group in workers.items():
                rows = measure(case, threads, group, a.rounds, a.ms, folder, expected, said)
                if writer:
                    writer.writerows(csv_rows(case, threads, rows))
                    out.flush()
                for name in ours:
                    line = table_row(case, threads, rows, name)
                    if line:
                        print(line, flush=True)
    for group in workers.values():
        for worker in group:
            worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
