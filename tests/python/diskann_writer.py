# SPDX-License-Identifier: Apache-2.0
"""Writes the files of a disk index of DiskANN, byte by byte as diskannpy 0.7.0 does."""

import struct

import numpy as np

SECTOR = 4096


def disk_index(vectors, lists, *, medoid=0, degree=None):
    """The bytes of PREFIX_disk.index: lists of neighbours of any length."""
    degree = degree or max(map(len, lists))
    length = vectors[0].nbytes + 4 * (degree + 1)
    nodes = []
    for vector, around in zip(vectors, lists, strict=True):
        list_bytes = struct.pack(f"<I{len(around)}I", len(around), *around)
        nodes.append((vector.tobytes() + list_bytes).ljust(length, b"\0"))
    per_sector = SECTOR // length
    step = per_sector or 1
    groups = [b"".join(nodes[i : i + step]) for i in range(0, len(nodes), step)]
    body = b"".join(group + b"\0" * (-len(group) % SECTOR) for group in groups)
    numbers = (len(vectors), len(vectors[0]), medoid, length, per_sector, 0, 0, 0, SECTOR + len(body))
    return struct.pack("<II9Q", 9, 1, *numbers).ljust(SECTOR, b"\0") + body


def matrix(array):
    return struct.pack("<II", *array.shape) + array.tobytes()


def pivots(centres, centroid, chunk_offsets):
    """The bytes of PREFIX_pq_pivots.bin."""
    parts = [
        matrix(np.asarray(centres, "<f4")),
        matrix(np.asarray(centroid, "<f4").reshape(-1, 1)),
        matrix(np.asarray(chunk_offsets, "<u4").reshape(-1, 1)),
    ]
    begins = np.cumsum([SECTOR, *map(len, parts)])
    return matrix(begins.astype("<u8").reshape(-1, 1)).ljust(SECTOR, b"\0") + b"".join(parts)


def metadata(dtype, metric, shape):
    """The bytes of PREFIX_metadata.bin."""
    return struct.pack("<4Q", ("float32", "int8", "uint8").index(dtype), ("l2", "mips").index(metric), *shape)


def split(dimension, chunks):
    """Where chunks begin whose lengths differ by 1 at most."""
    return [dimension * chunk // chunks for chunk in range(chunks + 1)]


def write(prefix, vectors, lists, centres, centroid, chunk_offsets, codes, *, medoid=0):
    """Writes the files that an import reads; the names begin with ``prefix``."""
    files = {
        "_disk.index": disk_index(vectors, lists, medoid=medoid),
        "_pq_pivots.bin": pivots(centres, centroid, chunk_offsets),
        "_pq_compressed.bin": matrix(codes),
        "_metadata.bin": metadata(vectors.dtype.name, "l2", vectors.shape),
    }
    for ending, data in files.items():
        prefix.with_name(prefix.name + ending).write_bytes(data)


def sample(count, dimension, seed=5):
    """Drawn vectors, uint8."""
    return np.random.default_rng(seed).integers(0, 200, (count, dimension), np.uint8)


def write_sample(prefix, vectors, lists=None):
    """Writes the files of an index over a few vectors: each has edges to its nearest ones and to the next ones.

    Args:
        prefix: How the names of the files begin, a path.
        vectors: Of shape (count, dimension); a code has four bytes, of as many components each.
        lists: Other neighbours.
    """
    count, dimension = vectors.shape
    rows = vectors.astype(np.float32)
    if lists is None:
        squares = ((rows[:, None] - rows[None]) ** 2).sum(2)
        near = np.argsort(squares, axis=1, kind="stable")
        lists = []
        for node in range(count):
            some = [*near[node, :9].tolist(), *((node + step) % count for step in (1, 7, 50))]
            lists.append([one for one in dict.fromkeys(some) if one != node])
    centroid = rows.mean(0)
    centres = rows[np.arange(256) % count] - centroid
    offsets = split(dimension, 4)
    codes = np.empty((count, 4), np.uint8)
    for chunk in range(4):
        part = slice(offsets[chunk], offsets[chunk + 1])
        apart = ((rows[:, None, part] - centroid[part] - centres[None, :, part]) ** 2).sum(2)
        codes[:, chunk] = apart.argmin(1)
    write(prefix, vectors, lists, centres, centroid, offsets, codes)
