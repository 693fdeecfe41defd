"""Makes the fixtures of src/picture: small files of all kinds, what Pillow decodes of them, and what the image
processor of Hugging Face Transformers makes of 200 generated pictures.

usage: make_picture_fixtures.py            (needs transformers, torchvision, pillow)

tests/corpus/picture_fuzz/*      the files, which are the corpus of the fuzz target as well
tests/data/pictures/decoded.json {file: [width, height, SHA-256 of the RGB bytes]}
tests/data/pictures/patched.json a list: the picture (pixel() below makes it), the rules, the size, the SHA-256 of the
                                 resized RGB bytes and that of the values (f32, little endian)
tests/data/pictures/fitted.json  a list of the same kind, without values, for the processors of Gemma 3 and Gemma 4
"""
import hashlib
import io
import json
import os
import pathlib
import random

# torchvision resizes bytes bilinearly in integers, as Pillow does, where torch says AVX2, and in floats elsewhere.
os.environ["ATEN_CPU_CAPABILITY"] = "avx2"

import numpy
import torch
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional
from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
from transformers.models.gemma4.image_processing_gemma4 import Gemma4ImageProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor, smart_resize

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests/corpus/picture_fuzz"
DATA = ROOT / "tests/data/pictures"


def sha(data):
    return hashlib.sha256(data).hexdigest()


def generated(width, height, seed, kind):
    """Noise (0), a gradient (1), edges (2): the same numbers as in patches_test.cc."""
    y, x, c = numpy.meshgrid(numpy.arange(height), numpy.arange(width), numpy.arange(3), indexing="ij")
    if kind == 0:
        state = ((y * width + x) * 3 + c + seed).astype(numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        value = state >> numpy.uint64(56)
    elif kind == 1:
        value = (x * 255 // width + y * (c + 1) + seed) % 256
    else:
        value = numpy.where(((x // (3 + seed % 7)) + (y // (2 + c))) % 2 == 0, 0, 255)
    return value.astype(numpy.uint8)


def patched(rng):
    cases = []
    for index in range(200):
        big = index % 50 == 49
        width, height = (rng.randint(300, 900), rng.randint(300, 900)) if big else (rng.randint(2, 220), rng.randint(2, 220))
        if max(width, height) > 100 * min(width, height):
            continue
        seed, kind = rng.randint(0, 1 << 20), index % 3
        least = rng.choice([1024, 4096, 16384])
        most = rng.choice([16384, 65536]) if least < 16384 else 65536
        patch, merge = rng.choice([(16, 2), (14, 2), (8, 2), (16, 1)])
        clip = index % 5 == 4
        mean = [0.48145466, 0.4578275, 0.40821073] if clip else [0.5] * 3
        deviation = [0.26862954, 0.26130258, 0.27577711] if clip else [0.5] * 3
        pixels = generated(width, height, seed, kind)
        processor = Qwen2VLImageProcessor(
            patch_size=patch, merge_size=merge, temporal_patch_size=2, image_mean=mean, image_std=deviation,
            size={"shortest_edge": least, "longest_edge": most})
        values = processor(images=[Image.fromarray(pixels)], return_tensors="pt")["pixel_values"].numpy()
        h, w = smart_resize(height, width, patch * merge, least, most)
        tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]
        resized = functional.resize(tensor, [h, w], interpolation=functional.InterpolationMode.BICUBIC, antialias=True)
        rgb = resized[0].numpy().transpose(1, 2, 0)
        cases.append({"width": width, "height": height, "seed": seed, "kind": kind, "patch": patch, "merge": merge,
                      "least": least, "most": most, "clip": clip, "to_width": w, "to_height": h,
                      "rgb": sha(rgb.tobytes()), "values": sha(values.astype("<f4").tobytes())})
    return cases


def fitted(rng):
    """What the processors of Gemma 3 (a square, bilinear) and Gemma 4 (so many tokens, bicubic) make of pictures."""
    cases = []
    while len(cases) < 120:
        square = len(cases) % 2 == 0
        big = len(cases) % 24 >= 22
        size = (300, 900) if big else (2, 220)
        width, height, seed, kind = rng.randint(*size), rng.randint(*size), rng.randint(0, 1 << 20), len(cases) // 2 % 3
        image = Image.fromarray(generated(width, height, seed, kind))
        if square:
            side = rng.choice([32, 224, 448])
            made = Gemma3ImageProcessor(size={"height": side, "width": side}, do_rescale=False, do_normalize=False,
                                        do_pan_and_scan=False)(images=[image], return_tensors="pt")["pixel_values"][0]
            rgb, limit = made.numpy().transpose(1, 2, 0), side
        else:
            limit, patch = rng.choice([70, 140]), 16
            made = Gemma4ImageProcessor(patch_size=patch, max_soft_tokens=limit, do_rescale=False)(
                images=[image], return_tensors="pt")
            places = made["image_position_ids"][0].numpy()
            columns, rows = places.max(axis=0) + 1
            rgb = numpy.zeros((rows * patch, columns * patch, 3))
            for (x, y), values in zip(places, made["pixel_values"][0].numpy()):
                if x >= 0:
                    rgb[y * patch:(y + 1) * patch, x * patch:(x + 1) * patch] = values.reshape(patch, patch, 3)
        assert (rgb == rgb.astype(numpy.uint8)).all()
        cases.append({"width": width, "height": height, "seed": seed, "kind": kind, "square": square, "limit": limit,
                      "to_width": rgb.shape[1], "to_height": rgb.shape[0],
                      "rgb": sha(rgb.astype(numpy.uint8).tobytes())})
    return cases


def files(rng):
    """name: bytes"""
    out = {}
    rgb = Image.fromarray(generated(19, 13, 5, 2))
    smooth = Image.fromarray(generated(37, 21, 9, 1))
    alpha = Image.merge("RGBA", [*rgb.split(), Image.fromarray(generated(19, 13, 77, 0)[:, :, 0])])

    def save(name, image, kind, **options):
        data = io.BytesIO()
        image.save(data, kind, **options)
        out[name] = data.getvalue()

    save("rgb.png", rgb, "PNG")
    save("rgba.png", alpha, "PNG")
    save("grey.png", rgb.convert("L"), "PNG")
    save("grey_alpha.png", alpha.convert("LA"), "PNG")
    save("palette.png", rgb.quantize(16), "PNG")
    save("bits.png", rgb.convert("1"), "PNG")
    palette = rgb.quantize(4)
    save("transparent_palette.png", palette, "PNG", transparency=1)
    exif = Image.Exif()
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        save(f"turned_{orientation}.jpg", smooth, "JPEG", exif=exif, quality=70)
    exif[0x0112] = 6
    save("turned.png", rgb, "PNG", exif=exif)
    save("turned.webp", rgb, "WEBP", exif=exif, lossless=True)
    for name, subsampling in {"444": 0, "422": 1, "420": 2}.items():
        save(f"rgb_{name}.jpg", smooth, "JPEG", subsampling=subsampling, quality=85)
    save("progressive.jpg", smooth, "JPEG", progressive=True, quality=60)
    save("grey.jpg", smooth.convert("L"), "JPEG")
    save("cmyk.jpg", smooth.convert("CMYK"), "JPEG")
    save("lossy.webp", smooth, "WEBP", quality=70)
    save("lossless.webp", rgb, "WEBP", lossless=True)
    save("alpha.webp", alpha, "WEBP", lossless=True, exact=True)
    out["cut.png"] = out["rgb.png"][:-30]
    out["cut.jpg"] = out["rgb_444.jpg"][:-200]
    out["cut.webp"] = out["lossy.webp"][:-40]
    # A header that promises a billion pixels.
    import struct
    import zlib
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32000, 32000, 8, 2, 0, 0, 0))
    out["bomb.png"] = header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    # 16 bits a sample, interlaced.
    sixteen = b"".join(b"\0" + bytes(rng.randrange(256) for _ in range(5 * 6)) for _ in range(4))
    out["rgb16.png"] = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 4, 16, 2, 0, 0, 0)) +
                        chunk(b"IDAT", zlib.compress(sixteen)) + chunk(b"IEND", b""))
    gifs(out)
    return out


def gifs(out):
    rgb = Image.fromarray(generated(19, 13, 5, 2))
    smooth = Image.fromarray(generated(61, 47, 9, 1))

    def save(name, image, **options):
        data = io.BytesIO()
        image.save(data, "GIF", **options)
        out[name] = data.getvalue()

    save("rgb.gif", rgb.quantize(64), interlace=0)
    save("interlaced.gif", smooth.quantize(256), interlace=1)
    save("grey.gif", smooth.convert("L"))
    save("bits.gif", rgb.convert("1"))
    save("transparent.gif", rgb.quantize(5), transparency=1)
    save("moving.gif", rgb.quantize(8), save_all=True, append_images=[smooth.crop((0, 0, 19, 13)).quantize(8)], duration=50)
    # A frame that lies beside and beyond its screen, with colours of its own, behind a comment.
    frame = bytes([2]) + b"\x02\x84\x51\x00"
    control = b"!\xf9\x04\x01\x05\x00\x02\x00"
    out["apart.gif"] = (b"GIF89a\x04\x00\x03\x00\x80\x01\x00" + bytes(range(6)) + b"!\xfe\x05hello\x00" + control +
                        b",\x03\x00\x02\x00\x02\x00\x01\x00\x81" + bytes(range(100, 112)) + frame + b";")
    out["cut.gif"] = out["rgb.gif"][:-40]
    out["bomb.gif"] = b"GIF89a\xff\xff\xff\xff\x70\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00" + frame + b";"


def main():
    rng = random.Random(20261119)
    CORPUS.mkdir(parents=True, exist_ok=True)
    DATA.mkdir(parents=True, exist_ok=True)
    decoded = {}
    for name, data in files(rng).items():
        (CORPUS / name).write_bytes(data)
        if name.startswith(("cut", "bomb", "cmyk")):
            continue
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        decoded[name] = [image.width, image.height, sha(image.tobytes())]
    (DATA / "decoded.json").write_text(json.dumps(decoded, indent=0) + "\n")
    cases = patched(rng)
    (DATA / "patched.json").write_text("[" + ",\n".join(json.dumps(case) for case in cases) + "]\n")
    more = fitted(random.Random(20261120))
    (DATA / "fitted.json").write_text("[" + ",\n".join(json.dumps(case) for case in more) + "]\n")
    print(len(decoded), "files,", len(cases), "and", len(more), "pictures")


if __name__ == "__main__":
    main()
