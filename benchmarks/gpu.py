"""Times Douse and eager PyTorch on a GPU, on the same exported programs, in one run.

    python benchmarks/gpu.py [--douse target/release/douse] [--kernels] [NAME ...]     # needs torch and torchvision with CUDA

For each workload of workloads.py: exports it, lowers it, checks that Douse's answer is PyTorch's, then prints the median milliseconds of a call. Both
include the copies of inputs to the device and of outputs to the host. With --kernels also the time that one call's kernels take on the device, for both
(Nsight Compute's `gpu__time_duration`, PyTorch's profiler), what that is of the floor (the least bytes over the measured copy bandwidth), and the kernels
that take longest.
"""
import argparse
import collections
import csv
import pathlib
import statistics
import subprocess
import tempfile
import time

import json
import torch
from safetensors.torch import load_file, save_file
from torch.profiler import ProfilerActivity, profile

import workloads

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ["gaussian_policy_b1_f32", "resnet50_b1_f16", "vit_b16_b1_bf16", "tiny_decode_bf16", "softmax_8192_bf16", "layernorm_gelu_bf16"]


def eager(module, args, calls=20):
    times = []
    with torch.no_grad():
        for i in range(calls + 3):
            start = time.perf_counter()
            out = module(*[a.cuda() for a in args])
            torch.utils._pytree.tree_map(lambda t: t.cpu(), out)
            if i >= 3:
                times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def eager_kernels(module, args, calls=5):
    """Milliseconds that the kernels of a call take, without copies between host and device."""
    args = [a.cuda() for a in args]
    with torch.no_grad():
        module(*args)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for _ in range(calls):
                module(*args)
            torch.cuda.synchronize()
    return sum(e.self_device_time_total for e in profiled.key_averages() if "HtoD" not in e.key and "DtoH" not in e.key) / calls / 1e3


def kernels(command):
    """The kernels of the last call that a command makes: [(name, milliseconds)]."""
    ncu = ["ncu", "--clock-control", "none", "--cache-control", "none", "--metrics", "gpu__time_duration.sum", "--csv"]
    done = subprocess.run(ncu + command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    scale = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "usecond": 1e-3, "nsecond": 1e-6, "msecond": 1.0}
    rows = [(r["Kernel Name"], float(r["Metric Value"].replace(",", "")) * scale[r["Metric Unit"]]) for r in csv.DictReader(lines)]
    names = [name for name, _ in rows]
    for calls in (3, 2):
        n = len(rows) // calls
        if n and len(rows) % calls == 0 and names[-n:] == names[-2 * n : -n]:
            return rows[-n:]
    return rows


def copy_bandwidth():
    """Bytes a millisecond, read and written."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b, times = torch.empty_like(a), []
    for _ in range(10):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        b.copy_(a)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return 2 * a.numel() / statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--douse", default=str(ROOT / "target/release/douse"))
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--longest", type=int, default=3, help="kernels to show")
    parser.add_argument("--target", default="sm_%d%d" % torch.cuda.get_device_capability() + ("a" if torch.cuda.get_device_capability() == (9, 0) else ""))
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, copies {bandwidth / 1e9:.2f} TB/s")
    print(f"{'workload':28s} {'PyTorch ms':>11s} {'Douse ms':>9s} {'ratio':>6s}  largest difference (largest value)")
    prepared = []
    for name in options.names:
        torch.manual_seed(0)
        module, args = workloads.WORKLOADS[name]()
        exported, program = folder / f"{name}.pt2", folder / f"{name}.pte"
        with torch.no_grad():
            torch.export.save(torch.export.export(module, args, strict=False), exported)
        save_file({f"i{i}": a.contiguous() for i, a in enumerate(args)}, folder / f"{name}.in.safetensors")
        lowering = subprocess.Popen([options.douse, "lower", exported, "-o", program, "--target", options.target], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        prepared.append((name, module, args, program, lowering))
    for _, _, _, _, lowering in prepared:
        lowering.wait()
    for name, module, args, program, lowering in prepared:
        with torch.no_grad():
            theirs = eager(module.cuda(), args, options.calls)
            outs = torch.utils._pytree.tree_leaves(module(*[a.cuda() for a in args]))
            wanted = outs[0].cpu().double()
        floor = workloads.bytes_min(module, args, outs) / bandwidth
        inputs, outputs = folder / f"{name}.in.safetensors", folder / f"{name}.out.safetensors"
        given = [str(program), "--device", "cuda", "--input", str(inputs)]
        done = subprocess.run([options.douse, "run", *given, "--output", str(outputs)], capture_output=True, text=True)
        if done.returncode:
            print(f"{name:28s} {theirs:11.3f} {(lowering.stderr.read() + done.stderr).strip()[:300]}", flush=True)
            continue
        got = next(iter(load_file(outputs).values())).double()
        bench = subprocess.run([options.douse, "bench", *given, "--calls", str(options.calls), "--json", "-"], capture_output=True, text=True)
        ours = json.loads(bench.stdout)["median"]
        print(f"{name:28s} {theirs:11.3f} {ours:9.3f} {ours / theirs:6.2f}  {(got - wanted).abs().max():.3g} ({wanted.abs().max():.3g})", flush=True)
        if not options.kernels:
            continue
        found = kernels([options.douse, "bench", *given, "--calls", "1", "--warm-up", "1", "--json", "-"])
        total, peer = sum(ms for _, ms in found), eager_kernels(module, args)
        print(f"{'  kernels':28s} {peer:11.4f} {total:9.4f} {total / peer:6.2f}  floor {floor:.4f}, {floor / max(total, 1e-9):.0%} of it; {len(found)} kernels")
        longest = collections.defaultdict(lambda: [0, 0.0])
        for kernel, ms in found:
            longest[kernel][0] += 1
            longest[kernel][1] += ms
        for kernel, (count, ms) in sorted(longest.items(), key=lambda item: -item[1][1])[: options.longest]:
            print(f"    {ms:9.4f} ms  {count:3d} x {kernel[:90]}", flush=True)
        module.cpu()


if __name__ == "__main__":
    main()
