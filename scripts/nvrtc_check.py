"""Compiles every `.cu` below the folders given with NVRTC, for several architectures, and prints what fails.

    cargo run -p douse-compiler --example emit_all -- sm_90a OUT tests/cases
    python scripts/nvrtc_check.py [--arch sm_90a]... OUT

Needs no GPU. NVRTC comes from the PyPI package `nvidia-cuda-nvrtc`.
"""

import argparse
import ctypes
import importlib.util
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

OPTIONS = ["--std=c++17", "--fmad=false"]  # as douse_compiler::emit::OPTIONS


def library():
    spec = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(p) for p in spec.submodule_search_locations] if spec else []
    found = sorted(p for folder in folders for p in folder.glob("*/lib/libnvrtc.so.1*"))
    if not found:
        sys.exit("NVRTC is not there: pip install nvidia-cuda-nvrtc")
    # Packages before 13.1 do not say that it lies beside.
    for builtins in found[-1].parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(str(found[-1]))


def compile_source(nvrtc, source, arch):
    """The compiler's log, or None where it compiled."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
    options = [f"--gpu-architecture={arch}", *OPTIONS]
    array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    status = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return None if status == 0 else log.value.decode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--arch", action="append")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    archs = args.arch or ["sm_80", "sm_90a", "sm_120"]
    nvrtc = library()
    files = sorted(f for folder in args.folders for f in folder.rglob("*.cu"))
    sources = {}  # equal modules are compiled once
    for file in files:
        sources.setdefault(file.read_text(), file)
    work = [(file, source, arch) for source, file in sources.items() for arch in archs]
    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        logs = pool.map(lambda item: compile_source(nvrtc, item[1], item[2]), work)
        for (file, _, arch), log in zip(work, logs):
            if log is not None:
                failed += 1
                errors = [line for line in log.splitlines() if "error" in line]
                print(f"{file.name} {arch}: {errors[0] if errors else log[:300]}")
    print(f"{len(files)} modules, {len(work)} compiled, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
