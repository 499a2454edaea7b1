#!/usr/bin/env python3
"""Compiles the FlashInfer kernels that our comparisons need all at once, instead of one module after the other as they are met.

    flashinfer_modules.py --here [--for beside,peers]                                on a machine that will run them
    flashinfer_modules.py --wheels DIR --cuda CUDA_HOME --out DIR [--jobs N]         ahead, where there is neither a GPU nor PyTorch

Ahead: DIR of wheels has flashinfer_python and apache_tvm_ffi; CUDA_HOME bin/nvcc, include, and lib64 with libcudart.so and libcuda.so.
out/NAME/NAME.so goes to flashinfer/data/aot/NAME/NAME.so of the installed package, where FlashInfer looks before it compiles. Flags, sources and
names are FlashInfer's own: its jit package runs on a stand-in for torch that knows the names of dtypes. It takes jinja2, packaging, requests, tqdm
and NumPy.
"""
import argparse, importlib.machinery, json, os, subprocess, sys, time, types, zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from beside import cases


class Names(types.ModuleType):
    """A module whose every attribute is a class of that name, always the same."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {})
        setattr(self, name, value)
        return value


class Finder:
    """Finds torch, tvm_ffi and filelock, whole, as Names."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "tvm_ffi", "filelock"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Names(spec.name)

    def exec_module(self, module):
        pass


def jit(root, cuda):
    """FlashInfer's jit package, from unpacked wheels."""
    os.environ.update(FLASHINFER_CUDA_ARCH_LIST="9.0a", CUDA_HOME=str(cuda), FLASHINFER_WORKSPACE_BASE=str(root / "work"))
    sys.meta_path.insert(0, Finder())
    import torch, tvm_ffi

    torch._C._GLIBCXX_USE_CXX11_ABI = True
    tvm_ffi.libinfo = types.SimpleNamespace(find_include_path=lambda: str(root / "tvm_ffi/include"),
                                            find_dlpack_include_path=lambda: str(root / "tvm_ffi/3rdparty/dlpack/include"))
    package = types.ModuleType("flashinfer")
    package.__path__ = [str(root / "flashinfer")]
    sys.modules["flashinfer"] = package
    import flashinfer.jit.attention.modules as attention
    import flashinfer.jit.xqa as xqa

    return torch, attention, xqa


def spec(torch, attention, xqa, m):
    """The JitSpec of one of cases' modules."""
    t = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
    if m[0] == "xqa":
        _, q, kv, out, page, d, group, window, q_len = m
        return xqa.gen_xqa_module(t[q], t[kv], page, d, group, window, t[out], q_len)
    kind, q, kv, out, dk, dv, window = m
    if kind == "decode":
        return attention.gen_batch_decode_module(t[q], t[kv], t[out], torch.int32, dk, dv, 0, window, False)
    s = attention.gen_batch_prefill_module(kind, t[q], t[kv], t[out], torch.int32, dk, dv, 0, window, False, False)
    # Half of the work is kernels of custom masks and multi-item scoring, which nobody calls here: they stay undefined, for the linker binds lazily.
    s.sources = [x for x in s.sources if not x.stem.endswith(("mask_2", "mask_3"))]
    s.extra_ldflags = [*(s.extra_ldflags or []), "-Wl,-z,lazy"]
    return s


def build(specs, folder, jobs):
    """Compiles what FlashInfer has not got, all at once; the names of those that failed, after what the compiler said."""
    missing = [s for s in specs if not s.is_aot and not s.jit_library_path.exists()]
    for s in missing:
        s.write_ninja()
    if not missing:
        return []
    top = folder / "all.ninja"
    top.write_text("ninja_required_version = 1.3\n" + "".join(f"subninja {s.ninja_path.resolve()}\n" for s in missing))
    libraries = [str(s.jit_library_path.resolve()) for s in missing]
    run = subprocess.run(["ninja", "-C", str(folder), "-k", "0", "-j", str(jobs), "-f", str(top), *libraries], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode:
        print("\n".join(line[:500] for line in run.stdout.splitlines() if "error" in line or line.startswith("FAILED"))[-4000:], file=sys.stderr)
    return [s.name for s in missing if not s.jit_library_path.exists()]


def link(specs):
    """Puts what has been compiled where FlashInfer looks for what it need not compile. Else it would ask ninja about each module at first use, and
    ninja, whose log of our build lies elsewhere, would compile it again: minutes a module."""
    for s in specs:
        if not s.is_aot and s.jit_library_path.exists():
            s.aot_path.parent.mkdir(parents=True, exist_ok=True)
            s.aot_path.unlink(missing_ok=True)
            s.aot_path.symlink_to(s.jit_library_path.resolve())


def wanted(purposes):
    return list(dict.fromkeys(m for p in purposes.split(",") for m in {"beside": cases.MODULES, "peers": cases.PEER_MODULES}[p]))


def specs_here(purposes):
    """Module → JitSpec, of this machine's FlashInfer."""
    import torch
    import flashinfer.jit.attention.modules as attention
    import flashinfer.jit.xqa as xqa

    return {m: spec(torch, attention, xqa, m) for m in wanted(purposes)}


def here(purposes="beside", jobs=os.cpu_count()):
    """Compiles into this machine's FlashInfer."""
    import flashinfer.jit.env as env

    env.FLASHINFER_JIT_DIR.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    specs = specs_here(purposes).values()
    carried = sum(s.is_aot for s in specs)
    failed = build(specs, env.FLASHINFER_JIT_DIR, jobs)
    link(specs)
    print(json.dumps(dict(modules=len(specs), carried=carried, failed=failed, seconds=round(time.perf_counter() - start, 1))), flush=True)


def compiled(purposes="beside"):
    """Those of the wanted modules that this machine's FlashInfer has, compiled by here, itself, or ahead; from now on it compiles none."""
    specs = specs_here(purposes)
    link(specs.values())
    os.environ["FLASHINFER_DISABLE_JIT"] = "1"
    return [m for m, s in specs.items() if s.is_aot]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--here", action="store_true", help="with this machine's PyTorch, FlashInfer and nvcc, into FlashInfer's own folder")
    ap.add_argument("--wheels", type=Path)
    ap.add_argument("--cuda", type=Path)
    ap.add_argument("--out", type=Path)
    ap.add_argument("--for", dest="purposes", default="beside,peers")
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    a = ap.parse_args()
    if a.here:
        return here(a.purposes, a.jobs)
    root = a.out.absolute() / "src"
    for name, folder in (("flashinfer_python", "flashinfer"), ("apache_tvm_ffi", "tvm_ffi")):
        for wheel in [] if (root / folder).exists() else a.wheels.glob(name + "-*.whl"):  # files made anew would be compiled anew
            zipfile.ZipFile(wheel).extractall(root)
    parts = jit(root, a.cuda.absolute())
    specs = [spec(*parts, m) for m in wanted(a.purposes)]
    failed = build(specs, root, a.jobs)
    for s in specs:
        if s.jit_library_path.exists():
            to = a.out / s.name / f"{s.name}.so"
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(s.jit_library_path.read_bytes())
    print(f"{len(specs)} modules, {sum(x.stat().st_size for x in a.out.glob('*/*.so')) >> 20} MiB")
    sys.exit(f"not built: {failed}" if failed else 0)


if __name__ == "__main__":
    main()
