"""Times Douse and eager PyTorch on a GPU, on the same exported programs, in one run.

    python benchmarks/gpu.py [--douse target/release/douse] [NAME ...]     # needs torch and torchvision with CUDA

For each workload of workloads.py: exports it, checks that Douse's answer is PyTorch's, then prints the median milliseconds of a call. Both include the
copies of inputs to the device and of outputs to the host.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--douse", default=str(ROOT / "target/release/douse"))
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    print(f"{'workload':28s} {'PyTorch ms':>11s} {'Douse ms':>9s} {'ratio':>6s}  largest difference (largest value)")
    for name in options.names:
        torch.manual_seed(0)
        module, args = workloads.WORKLOADS[name]()
        program, inputs, outputs = folder / f"{name}.pt2", folder / f"{name}.in.safetensors", folder / f"{name}.out.safetensors"
        with torch.no_grad():
            torch.export.save(torch.export.export(module, args, strict=False), program)
            save_file({f"i{i}": a.contiguous() for i, a in enumerate(args)}, inputs)
            theirs = eager(module.cuda(), args)
            wanted = torch.utils._pytree.tree_leaves(module(*[a.cuda() for a in args]))[0].cpu().double()
        run = [options.douse, "run", str(program), "--device", "cuda", "--input", str(inputs), "--output", str(outputs)]
        done = subprocess.run(run, capture_output=True, text=True)
        if done.returncode:
            print(f"{name:28s} {theirs:11.3f} {done.stderr.strip()[:160]}", flush=True)
            continue
        got = next(iter(load_file(outputs).values())).double()
        bench = [options.douse, "bench", str(program), "--device", "cuda", "--calls", "20", "--input", str(inputs), "--json", "-"]
        ours = json.loads(subprocess.run(bench, capture_output=True, text=True).stdout)["median"]
        print(f"{name:28s} {theirs:11.3f} {ours:9.3f} {ours / theirs:6.2f}  {(got - wanted).abs().max():.3g} ({wanted.abs().max():.3g})", flush=True)


if __name__ == "__main__":
    main()
