"""Times Douse and eager PyTorch on a GPU, on the same exported programs, in one run.

    python benchmarks/gpu.py [--douse target/release/douse] [--resident] [--kernels] [--no-calls] [--tf32] [--products cublaslt] [NAME ...]     # needs torch and torchvision with CUDA

For each workload of workloads.py, or policies.py (those need lerobot): exports it, checks that Douse's answer is PyTorch's, with and without CUDA graphs, then prints the median milliseconds of
a call: PyTorch's eagerly and replayed from a graph, Douse's likewise, and how long the host works on Douse's. All include the copies of inputs to the
device and of outputs to the host; --resident adds a line without them: inputs are on the device, outputs stay there, and a call ends when the device is done. With
--kernels also the time that one call's kernels take on the device, for both (Nsight Compute's `gpu__time_duration`, PyTorch's profiler), what that is of the
floor (the least bytes over the measured copy bandwidth), and the kernels that take longest; --no-calls leaves the times of whole calls out, which are mostly copies
where tensors are large.
"""
import argparse
import collections
import csv
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file
from torch.profiler import ProfilerActivity, profile

import policies
import workloads

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ["gaussian_policy_b1_f32", "resnet50_b1_f16", "vit_b16_b1_bf16", "tiny_decode_bf16", "softmax_8192_bf16", "layernorm_gelu_bf16"]


def eager(module, args, calls=20, resident=False):
    times, there = [], [a.cuda() for a in args]
    with torch.no_grad():
        for i in range(calls + 3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            if resident:
                module(*there)
                torch.cuda.synchronize()
            else:
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


def captured(module, args, calls=20, resident=False):
    """The same replayed from a CUDA graph; NaN where PyTorch cannot capture it."""
    try:
        with torch.no_grad():
            static = [a.cuda() for a in args]
            host = [a.pin_memory() for a in args]
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    module(*static)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = torch.utils._pytree.tree_leaves(module(*static))
            times = []
            for i in range(calls + 3):
                start = time.perf_counter()
                if resident:
                    graph.replay()
                    torch.cuda.synchronize()
                else:
                    for to, source in zip(static, host):
                        to.copy_(source, non_blocking=True)
                    graph.replay()
                    [t.cpu() for t in out]
                if i >= 3:
                    times.append((time.perf_counter() - start) * 1e3)
            return statistics.median(times)
    except Exception as error:
        print(f"  (not captured: {str(error).splitlines()[0][:100]})")
        torch.cuda.synchronize()
        return float("nan")


def show_kernels(options, bench, module, args, outs, bandwidth):
    floor = workloads.bytes_min(module, args, outs) / bandwidth
    found = kernels([*bench, "--calls", "1", "--warm-up", "1", "--json", "-"])
    total, peer = sum(ms for _, ms in found), eager_kernels(module, args)
    print(f"{'  kernels':28s} {peer:9.4f} {'':9s} {total:9.4f} {'':9s} {total / peer:6.2f}  floor {floor:.4f}, {floor / max(total, 1e-9):.0%} of it; {len(found)} kernels")
    longest = collections.defaultdict(lambda: [0, 0.0])
    for kernel, ms in found:
        longest[kernel][0] += 1
        longest[kernel][1] += ms
    for kernel, (count, ms) in sorted(longest.items(), key=lambda item: -item[1][1])[: options.longest]:
        print(f"    {ms:9.4f} ms  {count:3d} x {kernel[:90]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--douse", default=str(ROOT / "target/release/douse"))
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--no-calls", action="store_true")
    parser.add_argument("--resident", action="store_true")
    parser.add_argument("--products", default="own", help="who does Douse's products: own, or cublaslt")
    parser.add_argument("--tf32", action="store_true", help="both engines round operands of float32 products and convolutions to TF32; without, neither does")
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--longest", type=int, default=3, help="kernels to show")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
    folder = pathlib.Path(tempfile.mkdtemp())
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, copies {(bandwidth := copy_bandwidth()) / 1e9:.2f} TB/s")
    print(f"{'workload':28s} {'eager':>9s} {'captured':>9s} {'Douse':>9s} {'graph':>9s} {'host':>9s} {'on device':>9s} {'ratio':>6s}  largest difference, plain and graph (largest value)")
    for name in options.names:
        torch.manual_seed(0)
        module, args = {**workloads.WORKLOADS, **policies.POLICIES}[name]()
        program, inputs, outputs = folder / f"{name}.pt2", folder / f"{name}.in.safetensors", folder / f"{name}.out.safetensors"
        with torch.no_grad():
            torch.export.save(torch.export.export(module, args, strict=False), program)
            save_file({f"i{i}": a.contiguous() for i, a in enumerate(args)}, inputs)
            outs = torch.utils._pytree.tree_leaves(module.cuda()(*[a.cuda() for a in args]))
            wanted = outs[0].cpu().double()
        common, differences = [str(program), "--device", "cuda", "--products", options.products, *["--tf32"][: int(options.tf32)], "--input", str(inputs)], []
        for more in [[], ["--cuda-graph"]]:
            run = [options.douse, "run", *common, *more, "--output", str(outputs), "--calls", "6" if more and stateless(program) else "1"]
            done = subprocess.run(run, capture_output=True, text=True)
            if done.returncode:
                print(f"{name:28s} {done.stderr.strip()[:160]}", flush=True)
                break
            answers = load_file(outputs)  # their names sort as they stand in the program
            got = answers[min(answers)].double()
            differences.append(f"{(got - wanted).abs().max():.3g}")
        else:
            if options.no_calls:
                print(f"{name:28s} {'':76s}  {' '.join(differences)} ({wanted.abs().max():.3g})", flush=True)
            for resident in [False, True][: 0 if options.no_calls else 1 + options.resident]:
                row = compare(options, module, args, common, resident)
                print(f"{'  resident' if resident else name:28s} {row}  {' '.join(differences)} ({wanted.abs().max():.3g})", flush=True)
            if options.kernels:
                show_kernels(options, [options.douse, "bench", *common], module, args, outs, bandwidth)


def compare(options, module, args, common, resident):
    """Milliseconds of a call: PyTorch's two, Douse's two, what of the last is the host's and the device's; the ratio of the better ones."""
    theirs = [engine(module, args, options.calls, resident) for engine in (eager, captured)]
    ours = []
    for more in [[], ["--cuda-graph"]]:
        command = [options.douse, "bench", *common, *more, *["--resident"][: int(resident)], "--calls", str(options.calls), "--json", "-"]
        figures = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
        ours.append(figures["median"])
    best = min(t for t in theirs if t == t)
    return (
        f"{theirs[0]:9.4f} {theirs[1]:9.4f} {ours[0]:9.4f} {ours[1]:9.4f} {figures['host_median'] or 0:9.4f} {figures['device_median'] or 0:9.4f} {ours[1] / best:6.2f}"
    )


def stateless(program):
    """A program that keeps nothing gives the same answer in every call, so that its replayed answer can be compared."""
    signature = torch.export.load(program).graph_signature
    return not signature.buffers_to_mutate and not signature.user_inputs_to_mutate


if __name__ == "__main__":
    main()
