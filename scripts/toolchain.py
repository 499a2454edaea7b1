#!/usr/bin/env python3
"""Installs the pinned CUDA compiler, headers and disassembler, and a stub libcuda to link against, into .cache/cuda.

    scripts/toolchain.py          install (nothing to do when it is there)
    scripts/toolchain.py env      print the cgo flags, for a shell's eval
    scripts/toolchain.py where    print the folder of the compiler

Everything comes from Python wheels through pip, by version and SHA-256: cubins must come out the same everywhere. No GPU, driver
or root is needed. An interrupted run starts over where whole wheels are missing.
"""

import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

# (distribution, version, SHA-256 of the Linux x86-64 wheel). The compiler's parts are of one release; cuobjdump and nvdisasm
# have no wheels of it and read its cubins; gorgonia.org/cu compiles against CUDA 12 headers only.
WHEELS = [
    ("nvidia-cuda-nvcc", "13.0.88", "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"),
    ("nvidia-nvvm", "13.0.88", "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0"),
    ("nvidia-cuda-crt", "13.0.88", "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"),
    ("nvidia-cuda-runtime", "13.0.96", "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"),
    ("nvidia-cuda-cccl", "13.0.85", "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"),
    ("nvidia-cuda-nvdisasm", "13.5.37", "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca"),
    ("nvidia-cuda-cuobjdump", "13.5.37", "38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58"),
    ("nvidia-cuda-runtime-cu12", "12.9.79", "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3"),
]

ROOT = Path(os.environ.get("GAZE_CUDA", Path(__file__).resolve().parent.parent / ".cache" / "cuda"))
COMPILER = ROOT / "nvidia" / "cu13"
HEADERS = ROOT / "nvidia" / "cuda_runtime" / "include"
STUB = ROOT / "stub"
STAMP = ROOT / "installed"
PINS = hashlib.sha256((repr(WHEELS) + Path(__file__).read_text()).encode()).hexdigest()


def fail(why):
    sys.exit(f"toolchain: {why}")


def download():
    """Fetches the wheels that are missing or damaged, one by one; pip checks every hash."""
    wheels = ROOT / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    have = {}
    for w in wheels.iterdir():
        digest = hashlib.sha256(w.read_bytes()).hexdigest()
        if digest in {d for _, _, d in WHEELS}:
            have[digest] = w
        else:
            w.unlink()
    for name, version, digest in WHEELS:
        if digest in have:
            continue
        print(f"toolchain: fetching {name} {version}", file=sys.stderr)
        pin = ROOT / "pin.txt"
        pin.write_text(f"{name}=={version} --hash=sha256:{digest}\n")
        pip = [sys.executable, "-m", "pip", "download", "-q", "--progress-bar=on", "--no-deps", "--only-binary=:all:",
               "--disable-pip-version-check", "--require-hashes", "-r", str(pin), "-d", str(wheels)]
        if subprocess.run(pip, stdout=sys.stderr).returncode:
            fail(f"pip could not fetch {name} {version} (its words are above). Needed once, about 115 MB in all: pip for this Python and "
                 f"a way to its package index or a mirror of it; wheels put into {wheels} by hand do as well.")
    return sorted(wheels.glob("*.whl"))


def unpack(wheels):
    """Unpacks into a folder aside and swaps it in whole. Wheels carry no run bits for these programs."""
    aside = ROOT / "nvidia.part"
    shutil.rmtree(aside, ignore_errors=True)
    for w in wheels:
        with zipfile.ZipFile(w) as z:
            z.extractall(aside, [n for n in z.namelist() if n.startswith("nvidia/")])
    for folder in ("bin", "bin/crt", "nvvm/bin"):
        for f in (aside / "nvidia" / "cu13" / folder).iterdir():
            if f.is_file():
                f.chmod(f.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    shutil.rmtree(ROOT / "nvidia", ignore_errors=True)
    (aside / "nvidia").rename(ROOT / "nvidia")
    shutil.rmtree(aside)


def symbols(header):
    """Every driver function that cuda.h declares, under the names that its macros give them too."""
    text = header.read_text()
    names = set(re.findall(r"\bCUresult\s+CUDAAPI\s+(cu\w+)\s*\(", text))
    for name, versioned in re.findall(r"#\s*define\s+(cu[A-Z]\w*)\s+(cu[A-Z]\w*)\s*$", text, re.M):
        names |= {name, versioned}
    for name, ptds in re.findall(r"#\s*define\s+(cu[A-Z]\w*)\s+__CUDA_API_PT(?:DS|SZ)\((cu\w+)\)", text):
        names |= {name, ptds}
    return sorted(names)


def build_stub():
    """libcuda.so that only a linker reads: a program finds the driver's own at run time."""
    names = symbols(HEADERS / "cuda.h")
    if len(names) < 300:
        fail(f"cuda.h names {len(names)} functions, several hundred are expected: its form must have changed")
    STUB.mkdir(exist_ok=True)
    source = STUB / "libcuda.c"
    source.write_text("/* names only, see scripts/toolchain.py */\n" + "".join(f"int {n}(void) {{ return 34; }}\n" for n in names))
    cc = os.environ.get("CC", "cc")
    if not shutil.which(cc):
        fail(f"no C compiler {cc}: cgo needs one too")
    done = subprocess.run([cc, "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", str(STUB / "libcuda.so"), str(source)])
    if done.returncode:
        fail(f"{cc} could not build the stub libcuda")


def install():
    if STAMP.exists() and STAMP.read_text() == PINS:
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        fail(f"the pinned compiler runs on Linux x86-64, this is {platform.system()} {platform.machine()}")
    unpack(download())
    build_stub()
    nvcc = subprocess.run([str(COMPILER / "bin" / "nvcc"), "--version"], capture_output=True, text=True)
    if nvcc.returncode:
        fail(f"the installed nvcc does not run: {nvcc.stdout}{nvcc.stderr}")
    STAMP.write_text(PINS)
    print(f"toolchain: {nvcc.stdout.strip().splitlines()[-1]} in {COMPILER}", file=sys.stderr)


def main():
    match sys.argv[1:]:
        case []:
            install()
        case ["env"]:
            print(f'export CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -I{HEADERS}" CGO_LDFLAGS="-O2 -g -L{STUB}"')
        case ["where"]:
            print(COMPILER)
        case _:
            fail(__doc__)


if __name__ == "__main__":
    main()
