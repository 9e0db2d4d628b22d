# SPDX-License-Identifier: Apache-2.0
"""Files of tensors, exchanged with a reader and a writer that know nothing of ours but the format.

interop.py STORE_TOOL GRADSLOT
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

import numpy
import torch

TOOL, GRADSLOT = sys.argv[1:3]
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
          "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16,
          "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
NUMPY_ONLY = {"U16": numpy.uint16, "U32": numpy.uint32, "U64": numpy.uint64}


def write(path, tensors, metadata, spaces=0):
    """tensors: name -> (dtype, shape, bytes), laid out in this order."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode() + b" " * spaces
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(data for _, _, data in tensors.values())


def read(path):
    """name -> (dtype, shape, bytes), and the metadata; asserts what the format demands."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        text, data = f.read(length), f.read()
    assert text[:1] == b"{" and (8 + length) % 8 == 0
    header = json.loads(text)
    metadata = header.pop("__metadata__", {})
    places = sorted(entry["data_offsets"] for entry in header.values())
    assert [end for _, end in places[:-1]] == [begin for begin, _ in places[1:]]
    assert places[0][0] == 0 and places[-1][1] == len(data)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        size = torch.empty(0, dtype=DTYPES[entry["dtype"]]).element_size() \
            if entry["dtype"] in DTYPES else numpy.dtype(NUMPY_ONLY[entry["dtype"]]).itemsize
        assert end - begin == size * math.prod(entry["shape"])
        assert begin % size == 0, f"{name} is not aligned"
        tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return tensors, metadata


def as_torch(tensor):
    dtype, shape, data = tensor
    if not data:
        return torch.empty(shape, dtype=DTYPES[dtype])
    return torch.frombuffer(bytearray(data), dtype=DTYPES[dtype]).reshape(shape)


def as_double(tensor):
    dtype, shape, data = tensor
    if dtype in NUMPY_ONLY:
        return numpy.frombuffer(data, NUMPY_ONLY[dtype]).astype(numpy.float64)
    return as_torch(tensor).double().numpy().reshape(-1)


def samples():
    random = numpy.random.RandomState(7)
    tensors = {}
    for i, dtype in enumerate([*DTYPES, *NUMPY_ONLY]):
        for shape in ([3], [5, 7], [], [2, 0], [1, 2, 3, 1, 1, 1, 1, 3]):
            n = math.prod(shape)
            if dtype == "BOOL":
                data = random.randint(0, 2, n).astype(numpy.uint8).tobytes()
            elif dtype in NUMPY_ONLY:
                data = random.bytes(n * numpy.dtype(NUMPY_ONLY[dtype]).itemsize)
            else:
                data = random.bytes(n * torch.empty(0, dtype=DTYPES[dtype]).element_size())
            if len(tensors) < 60:
                tensors[f"{dtype}/é \"{i}\"/{shape}"] = (dtype, shape, data)
    return tensors


def run(*command, status=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == status, f"{command}: {done.returncode}: {done.stderr}"
    return done.stdout


def close(got, want):
    if not math.isfinite(want):
        return got is None
    return got is not None and abs(got - want) <= 1e-6 * max(abs(want), 1e-300)


def check_stats(stats, tensor):
    values = as_double(tensor)
    finite = values[numpy.isfinite(values)]
    assert stats["nonfinite"] == len(values) - len(finite)
    if len(finite) == 0:
        assert stats["min"] is None and stats["norm"] is None
        return
    with numpy.errstate(over="ignore"):
        norm = float(numpy.sqrt(numpy.sum(finite * finite)))
        mean = float(numpy.sum(finite)) / len(finite)
    for key, want in (("min", finite.min()), ("max", finite.max()), ("norm", norm)):
        assert close(stats[key], float(want)), (key, stats[key], want)
    if stats["mean"] is not None and math.isfinite(mean):
        assert abs(stats["mean"] - mean) <= 1e-6 * float(numpy.abs(finite).max())


def files(folder):
    theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
    for spaces in range(8):
        tensors, metadata = samples(), {"format": "pt", "é": "\n\u0001\""}
        write(theirs, tensors, metadata, spaces)
        if os.path.exists(ours):
            os.unlink(ours)
        run(TOOL, "copy", theirs, ours)
        assert read(ours) == (tensors, metadata)
    for path in theirs, ours:
        seen = json.loads(run(GRADSLOT, "inspect", path, "--json", "--stats"))
        assert seen["sound"] and seen["metadata"] == metadata
        assert len(seen["tensors"]) == len(tensors)
        for entry in seen["tensors"]:
            dtype, shape, data = tensors[entry["name"]]
            assert (entry["dtype"], entry["shape"], entry["bytes"]) == (dtype, shape, len(data))
            check_stats(entry["stats"], tensors[entry["name"]])
    write(theirs, {}, {})
    os.unlink(ours)
    run(TOOL, "copy", theirs, ours)


def weights_of(step, shape):
    values = [math.ldexp(math.sin(step + i), i % 40 - 20) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).float().reshape(shape)


def exports(folder):
    checkpoints, out = os.path.join(folder, "checkpoints"), os.path.join(folder, "out")
    want = {name: weights_of(5, shape) for name, shape in
            (("layer/../w", [7, 5]), ("words", [6, 4]), ("hashed", [3, 4]))}
    run(TOOL, "make", checkpoints, "5")
    one = os.path.join(checkpoints, "checkpoint-00000001")
    kept, _ = read(os.path.join(one, "weights.safetensors"))
    assert kept.keys() == want.keys()
    for name, tensor in kept.items():
        assert torch.equal(as_torch(tensor), want[name])
    read(os.path.join(one, "state.safetensors"))
    for option, dtype in (("f32", "F32"), ("bf16", "BF16"), ("f16", "F16")):
        run(GRADSLOT, "export", one, out, "--dtype", option)
        got, metadata = read(out)
        assert metadata == {"format": "pt", "gradslot.mode": "ssp", "gradslot.step": "5"}
        assert got.keys() == want.keys()
        for name, tensor in got.items():
            assert tensor[0] == dtype
            assert torch.equal(as_torch(tensor), want[name].to(DTYPES[dtype])), name


with tempfile.TemporaryDirectory() as scratch:
    files(scratch)
    exports(scratch)
print("ok")
