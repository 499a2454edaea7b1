"""The safetensors format: eight bytes of length, a JSON header, the tensors' bytes."""
import json


def write(path, tensors, meta):
    """tensors: name → (dtype's name, array with tobytes and shape)."""
    header, at, parts = {"__metadata__": meta}, 0, []
    for name, (dtype, a) in sorted(tensors.items()):
        parts.append(a.tobytes())
        header[name] = dict(dtype=dtype, shape=list(a.shape), data_offsets=[at, at := at + len(parts[-1])])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as f:
        f.writelines([len(text).to_bytes(8, "little"), text, *parts])


def read(path):
    """name → (dtype's name, shape, bytes)."""
    b = path.read_bytes()
    n = int.from_bytes(b[:8], "little")
    header = json.loads(b[8 : 8 + n])
    return {name: (t["dtype"], t["shape"], b[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]]) for name, t in header.items() if name != "__metadata__"}
