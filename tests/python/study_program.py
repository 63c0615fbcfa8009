# SPDX-License-Identifier: Apache-2.0
"""A program for studies, whose time is that of the model: it computes what it would take on the drive of a URI.

`study_program.py URI [--compute S] [--reads N] [--bytes N] [--chain N] [KEY=VALUE...]` prints a JSON document. With
`--log FILE` it adds the URI to the file. With `--exceeded N` the first N runs of each URI in that log say that the
drive did not keep its times.
"""

import argparse
import json
import re
from pathlib import Path

GIGATRANSFERS = {3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130, 6: 64 * 242 / 256}
POWERS = {"k": 1e3, "M": 1e6, "G": 1e9}


def link_bytes_per_second(name):
    link = re.fullmatch(r"gen(\d)x(\d+)", name)
    return GIGATRANSFERS[int(link[1])] * int(link[2]) / 8 * 1e9 if link else 1e18


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("uri")
    for name in ("compute", "reads", "bytes", "chain"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--exceeded", type=int, default=0)
    parser.add_argument("more", nargs="*")
    given = parser.parse_intermixed_args()
    keys = dict(part.split("=") for part in given.uri.partition(":")[2].split(","))
    rate = keys.get("iops", "1000G")
    iops = float(rate.rstrip("kMG")) * POWERS.get(rate[-1], 1)
    times = [
        given.compute,
        given.reads / iops,
        given.bytes / link_bytes_per_second(keys.get("link", "")),
        given.chain * float(keys.get("latency_us", 0)) / 1e6,
    ]
    before = 0
    if given.log:
        before = given.log.read_text().splitlines().count(given.uri) if given.log.exists() else 0
        with given.log.open("a") as log:
            log.write(f"{given.uri}\n")
    fidelity = "exceeded" if before < given.exceeded else "ok"
    document = {"seconds": max(times), "reads": int(given.reads) or None, "fidelity": fidelity, "verified": True}
    more = (text.split("=") for text in given.more)
    print(json.dumps({**document, **{key: json.loads(value) for key, value in more}}))


if __name__ == "__main__":
    main()
