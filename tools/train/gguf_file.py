"""GGUF files as the bundled model needs them: read whole, changed, written again."""
import struct

import numpy as np

F32, F16, Q4_0, Q5_0, Q8_0 = 0, 1, 2, 6, 8
BLOCK = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q5_0: (32, 22), Q8_0: (32, 34)}
SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
ALIGNMENT = 32


class Gguf:
    """`keys`: name -> (type, value); `tensors`: name -> (shape, rows first; type; bytes)."""

    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(), 0
        magic, version, tensors, keys = self._take("4sIQQ")
        assert magic == b"GGUF" and version == 3
        self.keys = dict(self._key() for _ in range(keys))
        infos = [self._info() for _ in range(tensors)]
        begin = -(-self.at // ALIGNMENT) * ALIGNMENT
        self.tensors = {}
        for name, shape, kind, offset in infos:
            values, size = BLOCK[kind]
            count = int(np.prod(shape)) // values * size
            self.tensors[name] = (shape, kind, self.data[begin + offset:begin + offset + count])

    def _take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def _text(self):
        size, = self._take("Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def _value(self, kind):
        if kind == 8:
            return self._text()
        if kind == 9:
            inner, count = self._take("IQ")
            return inner, [self._value(inner) for _ in range(count)]
        return self._take(SIZES[kind])[0]

    def _key(self):
        name = self._text().decode()
        kind, = self._take("I")
        return name, (kind, self._value(kind))

    def _info(self):
        name = self._text().decode()
        rank, = self._take("I")
        shape = self._take(f"{rank}Q")[::-1]
        kind, offset = self._take("IQ")
        return name, shape, kind, offset

    def values(self, name):
        """The tensor as float32."""
        shape, kind, data = self.tensors[name]
        if kind == F32:
            return np.frombuffer(data, np.float32).reshape(shape)
        if kind == F16:
            return np.frombuffer(data, np.float16).astype(np.float32).reshape(shape)
        blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("q", "i1", BLOCK[Q8_0][0])]))
        assert kind == Q8_0
        return (blocks["scale"].astype(np.float32)[:, None] * blocks["q"]).reshape(shape)

    def write(self, path):
        def text(data):
            return struct.pack("<Q", len(data)) + data

        def value_of(kind, value):
            if kind == 8:
                return text(value)
            if kind == 9:
                return struct.pack("<IQ", value[0], len(value[1])) + b"".join(value_of(value[0], one) for one in value[1])
            return struct.pack("<" + SIZES[kind], value)

        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for name, (kind, value) in self.keys.items():
            head += text(name.encode()) + struct.pack("<I", kind) + value_of(kind, value)
        offset, body = 0, []
        for name, (shape, kind, data) in self.tensors.items():
            head += text(name.encode()) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, offset)
            body.append(data + bytes(-len(data) % ALIGNMENT))
            offset += len(body[-1])
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % ALIGNMENT) + b"".join(body))


def quantise(values, kind):
    """float32 -> bytes of that type, as `reprise convert` rounds them."""
    values = np.ascontiguousarray(values, np.float32)
    if kind == F32:
        return values.tobytes()
    blocks = values.reshape(-1, 32)
    if kind == Q8_0:
        scale = np.abs(blocks).max(1) / 127
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        q = np.rint(blocks * inverse[:, None]).astype(np.int8)
        out = np.zeros(len(blocks), np.dtype([("scale", "<f2"), ("q", "i1", 32)]))
        out["scale"], out["q"] = scale, q
        return out.tobytes()
    # The value farthest from 0 gets the end of the scale on its side.
    half = {Q4_0: 8, Q5_0: 16}[kind]
    most = blocks[np.arange(len(blocks)), np.abs(blocks).argmax(1)]
    scale = most / -half
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    q = np.clip(np.floor(blocks * inverse[:, None] + (half + 0.5)), 0, 2 * half - 1).astype(np.uint8)
    low = (q[:, :16] & 15) | (q[:, 16:] & 15) << 4
    if kind == Q4_0:
        out = np.zeros(len(blocks), np.dtype([("scale", "<f2"), ("q", "u1", 16)]))
    else:
        out = np.zeros(len(blocks), np.dtype([("scale", "<f2"), ("high", "<u4"), ("q", "u1", 16)]))
        out["high"] = ((q >> 4).astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(1, dtype=np.uint32)
    out["scale"], out["q"] = scale, low
    return out.tobytes()
