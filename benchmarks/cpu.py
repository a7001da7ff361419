"""Times Douse and eager PyTorch on the CPU, on the same exported programs, in turn, in one run.

    cargo build --release
    python benchmarks/cpu.py [--threads 2] [--folder FOLDER] [NAME ...]     # needs torch and torchvision

For each workload: exports it (weights are random), checks that Douse's answer is PyTorch's, then times rounds of calls of each in turn and
prints the median milliseconds of a call, and their ratio.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
from torch import nn

import workloads

ROOT = pathlib.Path(__file__).resolve().parent.parent


def resnet50():
    from torchvision.models import resnet50

    return resnet50().eval(), (torch.randn(1, 3, 224, 224),)


def vit_b16():
    from torchvision.models import vit_b_16

    model = vit_b_16().eval()
    nn.init.normal_(model.heads.head.weight, std=0.05)  # torchvision leaves it 0, and every answer with it
    return model, (torch.randn(1, 3, 224, 224),)


def decoder_step():
    model = workloads.Decoder(vocab=8192, d=512, layers=8, heads=8, kv_heads=4, ff=1536, max_len=512).eval()
    return model, (torch.randint(0, 1000, (1, 1)), torch.tensor([100]))


WORKLOADS = {"resnet50_b1_f32": resnet50, "vit_b16_b1_f32": vit_b16, "decoder_step_f32": decoder_step}


def eager(model: nn.Module, args, calls: int) -> list[float]:
    times = []
    with torch.no_grad():
        for _ in range(3):
            model(*args)
        for _ in range(calls):
            start = time.perf_counter()
            model(*args)
            times.append((time.perf_counter() - start) * 1e3)
    return times


def douse(binary, program, inputs, threads, calls) -> float:
    command = [binary, "bench", program, "--calls", str(calls), "--threads", str(threads), "--json", "-"]
    for file in inputs:
        command += ["--input", file]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--douse", default=str(ROOT / "target/release/douse"))
    parser.add_argument("--folder", type=pathlib.Path, help="where the exported programs are kept")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    folder = options.folder or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'workload':24s} {'PyTorch ms':>11s} {'Douse ms':>9s} {'ratio':>6s}  largest difference")
    for name in options.names:
        torch.manual_seed(0)
        model, args = WORKLOADS[name]()
        program = folder / f"{name}.pt2"
        with torch.no_grad():
            torch.export.save(torch.export.export(model, args, strict=False), program)
            wanted = model(*args)
        inputs = []
        for i, arg in enumerate(args):
            np.save(folder / f"{name}.{i}.npy", arg.numpy())
            inputs.append(str(folder / f"{name}.{i}.npy"))
        answer = folder / f"{name}.npz"
        command = [options.douse, "run", str(program), "--output", str(answer)]
        done = subprocess.run(command + [x for f in inputs for x in ("--input", f)], capture_output=True, text=True)
        if done.returncode:
            print(f"{name:24s} {done.stderr.strip()}")
            continue
        got = torch.from_numpy(next(iter(np.load(answer).values())))
        difference = (got - wanted).abs().max().item()
        if not torch.allclose(got, wanted, rtol=1e-3, atol=1e-4 * wanted.abs().max().item()):
            print(f"{name:24s} WRONG: off by {difference:.3g}")
            continue
        theirs, ours = [], []
        for _ in range(options.rounds):
            theirs += eager(model, args, options.calls)
            ours.append(douse(options.douse, str(program), inputs, options.threads, options.calls))
        a, b = statistics.median(theirs), statistics.median(ours)
        print(f"{name:24s} {a:11.2f} {b:9.2f} {b / a:6.2f}  {difference:.2g}", flush=True)


if __name__ == "__main__":
    main()
