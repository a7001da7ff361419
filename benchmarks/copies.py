"""Counts the copies and the driver calls of a command from its first launch of a CUDA graph on, as CUPTI, CUDA's profiling interface, sees them.

    python benchmarks/copies.py -- target/release/douse bench model.pt2 --device cuda --cuda-graph --resident --calls 100
    python benchmarks/copies.py --control         # PyTorch, with a copy to the host in its graph: shows that those are seen

Needs a C compiler and CUPTI with its headers, which PyTorch's wheels bring (nvidia-cuda-cupti), or a CUDA toolkit in CUDA_HOME.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent / "cupti" / "copies.c"

CONTROL = """
import torch
x, out = torch.ones(8, device="cuda"), torch.zeros(8).pin_memory()
(x + 1).cpu()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out.copy_(x + 1, non_blocking=True)
for _ in range(100):
    graph.replay()
torch.cuda.synchronize()
assert out[0] == 2
"""


def cupti():
    """The folder of cupti.h, that of cuda.h, and the library."""
    roots = [pathlib.Path(os.environ["CUDA_HOME"])] if "CUDA_HOME" in os.environ else []
    spec = importlib.util.find_spec("nvidia")
    for parent in spec.submodule_search_locations if spec else []:
        roots += [pathlib.Path(parent) / name for name in ("cu13", "cuda_cupti")]
    roots += [pathlib.Path("/usr/local/cuda"), pathlib.Path("/usr/local/cuda/extras/CUPTI")]
    first = lambda pattern: next((path for root in roots for path in sorted(root.glob(pattern))), None)
    header, cuda, library = first("**/cupti.h"), first("**/cuda.h"), first("**/libcupti.so*")
    if not (header and cuda and library):
        sys.exit(f"no CUPTI: looked for cupti.h, cuda.h and libcupti.so in {', '.join(map(str, roots))}: install nvidia-cuda-cupti, or set CUDA_HOME")
    return header.parent, cuda.parent, library


def count(command):
    """Runs the command; what copies.c counted."""
    with tempfile.TemporaryDirectory() as folder:
        header, cuda, library = cupti()
        injected, report = pathlib.Path(folder) / "copies.so", pathlib.Path(folder) / "counts.json"
        flags = ["-O2", "-shared", "-fPIC", f"-I{header}", f"-I{cuda}", f"-Wl,-rpath,{library.parent}"]
        subprocess.run(["cc", *flags, str(SOURCE), str(library), "-o", str(injected)], check=True)
        environment = dict(os.environ, CUDA_INJECTION64_PATH=str(injected), COPIES_JSON=str(report))
        subprocess.run(command, check=True, env=environment)
        if not report.exists():
            sys.exit("nothing was counted: the command used no CUDA driver")
        return json.loads(report.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--control", action="store_true")
    parser.add_argument("command", nargs="*")
    arguments = parser.parse_args()
    if arguments.control == bool(arguments.command):
        parser.error("either --control or a command")
    counts = count([sys.executable, "-c", CONTROL] if arguments.control else arguments.command)
    for name in ("graph_launches", "device_to_host", "host_to_device", "device_to_device", "other_copies", "memsets", "dropped"):
        print(f"{name.replace('_', ' '):20}{counts[name]:8}")
    for name, calls in sorted(counts["calls"].items(), key=lambda item: -item[1]):
        print(f"  {name:40}{calls:8}")


if __name__ == "__main__":
    main()
