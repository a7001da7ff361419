"""Times Douse and eager PyTorch on a GPU, on the same exported programs, in one run.

    python benchmarks/gpu.py [--douse target/release/douse] [NAME ...]     # needs torch and torchvision with CUDA

For each workload of workloads.py: exports it, checks that Douse's answer is PyTorch's, with and without CUDA graphs, then prints the median milliseconds of
a call: PyTorch's eagerly and replayed from a graph, Douse's likewise. All include the copies of inputs to the device and of outputs to the host.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file

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


def captured(module, args, calls=20):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--douse", default=str(ROOT / "target/release/douse"))
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    print(f"{'workload':28s} {'eager':>9s} {'captured':>9s} {'Douse':>9s} {'graph':>9s} {'ratio':>6s}  largest difference, plain and graph (largest value)")
    for name in options.names:
        torch.manual_seed(0)
        module, args = workloads.WORKLOADS[name]()
        program, inputs, outputs = folder / f"{name}.pt2", folder / f"{name}.in.safetensors", folder / f"{name}.out.safetensors"
        with torch.no_grad():
            torch.export.save(torch.export.export(module, args, strict=False), program)
            save_file({f"i{i}": a.contiguous() for i, a in enumerate(args)}, inputs)
            theirs = eager(module.cuda(), args)
            wanted = torch.utils._pytree.tree_leaves(module(*[a.cuda() for a in args]))[0].cpu().double()
            theirs_captured = captured(module, args)
        differences, ours = [], []
        for more in [[], ["--cuda-graph"]]:
            common = [str(program), "--device", "cuda", "--input", str(inputs), *more]
            run = [options.douse, "run", *common, "--output", str(outputs), "--calls", "6" if more and stateless(program) else "1"]
            done = subprocess.run(run, capture_output=True, text=True)
            if done.returncode:
                print(f"{name:28s} {theirs:9.3f} {done.stderr.strip()[:160]}", flush=True)
                break
            got = next(iter(load_file(outputs).values())).double()
            differences.append(f"{(got - wanted).abs().max():.3g}")
            bench = subprocess.run([options.douse, "bench", *common, "--calls", "50", "--json", "-"], capture_output=True, text=True)
            ours.append(json.loads(bench.stdout)["median"])
        else:
            best = min(t for t in (theirs, theirs_captured) if t == t)
            print(
                f"{name:28s} {theirs:9.3f} {theirs_captured:9.3f} {ours[0]:9.3f} {ours[1]:9.3f} {ours[1] / best:6.2f}"
                f"  {' '.join(differences)} ({wanted.abs().max():.3g})",
                flush=True,
            )


def stateless(program):
    """A program that keeps nothing gives the same answer in every call, so that its replayed answer can be compared."""
    signature = torch.export.load(program).graph_signature
    return not signature.buffers_to_mutate and not signature.user_inputs_to_mutate


if __name__ == "__main__":
    main()
