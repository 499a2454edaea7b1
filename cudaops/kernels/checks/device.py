"""Where kernels run: the CPU stand-in, or a GPU through libcuda; and what params.h and launch.h say of them."""
import ctypes, gzip, os, re
import numpy as np

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

CTYPES = {"int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float, "double": ctypes.c_double}


def read_structs():
    text = re.sub(r"//[^\n]*", "", open(os.path.join(HERE, "params.h")).read())
    out = {}
    for body, name in re.findall(r"typedef struct \{([^}]*)\} (\w+);", text):
        fields = []
        for decl in filter(None, (" ".join(d.split()) for d in body.split(";"))):
            kind, field, count = re.match(r"^(.*?[\s*])(\w+)(?:\[(\d+)\])?$", decl).groups()
            t = ctypes.c_void_p if "*" in kind else CTYPES[kind.strip()]
            fields.append((field, t * int(count) if count else t))
        out[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return out


P = read_structs()


def launch_facts(kind, d, target):
    text = open(os.path.join(HERE, "launch.h")).read()
    m = re.search(rf"#define GAZE_{kind}_{d}_{target.upper()} (.*)", text)
    return [int(x) for x in m.group(1).split(",")] if m else None


def divide_by(d):
    """The multiplier and the shift that stand for a divisor: n // d is n·2·multiplier >> 32 + shift for 0 ≤ n < 2³¹."""
    shift = (d - 1).bit_length()
    return -(-(1 << (31 + shift)) // d), shift


def set_divisors(p):
    """Of DecodeParams: what follows from other fields."""
    p.group = p.q_heads // p.kv_heads
    p.group_mul, p.group_shift = divide_by(p.group)
    p.page_mul, p.page_shift = divide_by(p.page_size)


def decode_facts(d, e4m3, rows, target):
    """Those of the decode kernel with the lowest tile that holds so many rows, or the highest."""
    for r in 8, 16, 32:
        found = launch_facts("DECODE_E4M3" if e4m3 else "DECODE", f"{d}_R{r}", target)
        facts = found or facts
        if not found or r >= rows:
            return facts
    return facts


class Emu:
    """Buffers end at an unmapped page, and begin after one."""

    cuts = False

    sms = 5  # so that few keys are already split

    def __init__(self, lib):
        self.lib = ctypes.CDLL(lib)
        self.lib.emu_params.restype = ctypes.c_size_t
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        self.libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.maps = {}

    def alloc(self, n):
        page = 4096
        room = (n + 15) // 16 * 16
        size = (room + page - 1) // page * page
        base = self.libc.mmap(None, size + 2 * page, 3, 0x22, -1, 0)
        assert base not in (None, ctypes.c_void_p(-1).value)
        self.libc.mprotect(base, page, 0)
        self.libc.mprotect(base + page + size, page, 0)
        at = base + page + size - room
        self.maps[at] = (base, size + 2 * page)
        return at

    def free(self, at):
        self.libc.munmap(*self.maps.pop(at))

    def write(self, at, data):
        ctypes.memmove(at, data.ctypes.data, data.nbytes)

    def read(self, at, n):
        return np.frombuffer(ctypes.string_at(at, n), np.uint8).copy()

    def launch(self, symbol, grid, threads, shared, params):
        n = self.lib.emu_params(symbol.encode())
        assert n == ctypes.sizeof(params), f"{symbol}: parameters of {n} bytes, params.h says {ctypes.sizeof(params)}"
        g = tuple(grid) + (1, 1)
        assert self.lib.emu_launch(symbol.encode(), g[0], g[1], g[2], threads, shared, ctypes.byref(params)) == 0, symbol

    def has(self, symbol):
        return self.lib.emu_params(symbol.encode()) != ctypes.c_size_t(-1).value

    def tensor_map(self, at, dt, dims, strides, box):
        """EmuMap of emu/hopper_emu.h."""
        raw = np.zeros(32, np.uint32)
        raw[:18] = np.array([at, *dims, dt.size, *strides], np.uint64).view(np.uint32)
        raw[18:22] = box
        return raw.view(np.uint64)


class Cuda:
    cuts = True  # tensor cores cut off what is 2⁻²⁵ of a sum, or less

    def __init__(self, cubins, target):
        import torch  # its primary context, allocator and streams are used when timing

        self.torch = torch
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.cu = ctypes.CDLL("libcuda.so.1")
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.functions, self.modules = {}, []
        # The portable cubin runs on 8.x alone; elsewhere the driver compiles its PTX.
        kind = "ptx" if target == "sm80" and torch.cuda.get_device_capability()[0] != 8 else "cubin"
        for f in sorted(os.listdir(cubins)):
            if re.search(rf"_{target}\.{kind}(\.gz)?$", f):
                m, image = ctypes.c_void_p(), open(os.path.join(cubins, f), "rb").read()
                image = gzip.decompress(image) if f.endswith(".gz") else image
                self.ok(self.cu.cuModuleLoadData(ctypes.byref(m), image + b"\0"), f)
                self.modules.append((m, image))
        assert self.modules, f"no *_{target}.{kind}[.gz] in {cubins}"

    def ok(self, code, what):
        if code:
            s = ctypes.c_char_p()
            self.cu.cuGetErrorName(code, ctypes.byref(s))
            raise RuntimeError(f"{what}: {s.value.decode() if s.value else code}")

    def function(self, symbol, shared=0):
        key = (symbol, shared)
        if key not in self.functions:
            f = ctypes.c_void_p()
            # Asking a module for what it has not is an error that a sanitizer reports; images name what they have.
            m = next((m for m, image in self.modules if re.search(rb"\b%s\b" % symbol.encode(), image)), None)
            if m is None:
                return None
            self.ok(self.cu.cuModuleGetFunction(ctypes.byref(f), m, symbol.encode()), symbol)
            if shared > 48 << 10:
                self.ok(self.cu.cuFuncSetAttribute(f, 8, shared), symbol)
            self.functions[key] = f
        return self.functions[key]

    def has(self, symbol):
        return self.function(symbol) is not None

    def alloc(self, n):
        p = ctypes.c_uint64()
        self.ok(self.cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(max(n, 16))), "alloc")
        return p.value

    def free(self, at):
        self.cu.cuMemFree_v2(ctypes.c_uint64(at))

    def write(self, at, data):
        self.ok(self.cu.cuMemcpyHtoD_v2(ctypes.c_uint64(at), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes)), "write")

    def read(self, at, n):
        out = np.empty(n, np.uint8)
        self.ok(self.cu.cuMemcpyDtoH_v2(ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(at), ctypes.c_size_t(n)), "read (after the launch)")
        return out

    def tensor_map(self, at, dt, dims, strides, box):
        """A CUtensorMap of rank 4: 128-byte swizzle, no interleave, 256-byte L2 promotion, zeros outside."""
        raw = np.zeros(32, np.uint64)
        at16 = raw.ctypes.data + (-raw.ctypes.data) % 64
        u64, u32 = lambda x: (ctypes.c_uint64 * len(x))(*x), lambda x: (ctypes.c_uint32 * len(x))(*x)
        self.ok(self.cu.cuTensorMapEncodeTiled(ctypes.c_void_p(at16), {"f16": 6, "bf16": 9}[dt.name], 4, ctypes.c_void_p(at), u64(dims), u64(strides), u32(box),
                                               u32([1] * 4), 0, 3, 3, 0), f"tensor map {dims} {strides} {box}")
        return np.frombuffer(ctypes.string_at(at16, 128), np.uint64)

    def launch(self, symbol, grid, threads, shared, params, stream=0):
        f = self.function(symbol, shared)
        assert f is not None, f"no kernel {symbol}"
        g = tuple(grid) + (1, 1)
        args = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        self.ok(self.cu.cuLaunchKernel(f, g[0], g[1], g[2], threads, 1, 1, shared, ctypes.c_void_p(stream), args, None), symbol)
