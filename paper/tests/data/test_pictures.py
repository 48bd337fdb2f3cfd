"""Picture files that are damaged, or that ask for much."""

import struct
import subprocess
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from pairgrad_paper.data import DataError
from pairgrad_paper.data.pictures import decode


def png(width, height):
    """A PNG file of this size whose pixels are missing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">II5B", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(9460, 9460), (30_000, 30_000), (2**31 - 1, 2**31 - 1)])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_picture_of_too_many_pixels_is_refused_by_its_name(tmp_path, size):
    (tmp_path / "x.png").write_bytes(png(*size))
    with pytest.raises(DataError, match=r"x\.png: expected a picture that Pillow can decode, got .*pixels"):
        decode(tmp_path / "x.png")


def test_no_program_is_started_for_a_picture(tmp_path, monkeypatch):
    """Pillow would hand PostScript to Ghostscript, under whatever name it comes."""
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n")
    started = []
    for name in ("Popen", "check_call"):
        monkeypatch.setattr(subprocess, name, lambda *arguments, **_: started.append(arguments))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    with pytest.raises(DataError, match=r"x\.png: expected a picture"):
        decode(tmp_path / "x.png")
    assert started == []


@pytest.mark.parametrize("kind", ["bmp", "gif", "jpeg", "png", "ppm", "tiff", "webp"])
def test_every_format_is_read(tmp_path, kind):
    pixels = np.full((5, 4, 3), 255, dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / f"x.{kind}")
    assert torch.equal(decode(tmp_path / f"x.{kind}"), torch.full((3, 5, 4), 255, dtype=torch.uint8))
