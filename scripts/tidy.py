# SPDX-License-Identifier: Apache-2.0
"""Rules of the source tree that no formatter knows: licences, lengths, layers, CUDA's places, links, names and prose.

Prints ``file:line: what is wrong`` for each breach and exits 1 if there is any.
"""

import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import prose
import public_names

ROOT = Path(__file__).resolve().parent.parent

# A layer may include itself and the layers named here (docs/internals/design.md, "Layers").
BELOW: dict[str, set[str]] = {}
for _layer, _direct in {
    "simt": [],
    "memory": ["simt"],
    "nvme": ["memory"],
    "driver": ["nvme"],
    "emulator": ["driver"],  # for the two interfaces in driver/spaces.hpp, which it implements
    "drive": ["driver", "emulator"],
    "queue": ["drive"],
    "cache": ["queue"],
    "storage": ["cache", "queue"],
}.items():
    BELOW[_layer] = set(_direct).union(*(BELOW.get(below, set()) for below in _direct))

SOURCE = {".hpp", ".cpp", ".cu", ".cuh"}
LICENSED = SOURCE | {".py", ".cmake", ".bash"}
LINES_MAX = 800  # of a file of C++, CUDA or Python
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]forebay/([\w/.]+)[>"]')
PRIVATE_INCLUDE = re.compile(r'^\s*#\s*include\s+"(?:\.\./)*(\w+)/[\w/.]+"')  # of src/<layer>
HEADERS = Path("include/forebay")
INTERNAL = "detail"  # below it lie the layers' own headers; those above it are public
# Code that is written as a user would write it.
OUTSIDE = ("apps", "docs", "examples", "tests/api", "tests/package", "README.md")
ONLY_IN_SIMT = re.compile(
    r"__CUDA_ARCH__|\b__(syncwarp|shfl_sync|ballot_sync|activemask|threadfence\w*|nanosleep)\b|\basm\b"
)
# Copies between global and shared memory have one home, also for benchmarks and tests.
ASYNCHRONOUS_COPIES = re.compile(r"cp\.async|\bmbarrier\.|__pipeline_|cuda::(memcpy_async|pipeline|barrier)\b")
COPIES_HOME = HEADERS / INTERNAL / "simt" / "cuda_copies.hpp"
QUOTED = re.compile(r"<!-- quoted from (\S+) -->\n```\w*\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def tracked() -> list[Path]:
    """Lists the files that git tracks or would track, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [Path(name) for name in sorted(set(listing.stdout.split("\0"))) if name and (ROOT / name).is_file()]


def layer_of(path: Path) -> str | None:
    """Returns the layer that an internal header or a file in src belongs to, or None."""
    parts = path.parts
    if parts[:3] == (*HEADERS.parts, INTERNAL) and len(parts) > 4:
        return parts[3]
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return None


@functools.cache
def layers_used(header: str) -> frozenset[str]:
    """Returns the layers that a header includes, itself or through public headers; its own, if it is internal.

    So a public header needs no place among the layers: it stands just above those that it uses.
    """
    if layer := layer_of(HEADERS / header):
        return frozenset({layer})
    path = ROOT / HEADERS / header
    lines = path.read_text().splitlines() if path.is_file() else []
    included = (INCLUDE.match(line) for line in lines)
    return frozenset().union(*(layers_used(include[1]) for include in included if include))


def check_includes(path: Path, lines: list[str]) -> Iterator[str]:
    """Checks that a layer includes only layers below it, and that what is written as users write it is public."""
    layer = layer_of(path)
    outside = str(path).startswith(OUTSIDE)
    for number, line in enumerate(lines, 1):
        private = PRIVATE_INCLUDE.match(line) if path.parts[0] == "src" else None
        if private and layer in BELOW and private[1] in BELOW.keys() - BELOW[layer] - {layer}:
            yield f"{path}:{number}: {layer} may not include {private[1]}, which is not below it"
        include = INCLUDE.match(line)
        if not include:
            continue
        if layer in BELOW:
            for other in sorted(layers_used(include[1]) & BELOW.keys() - BELOW[layer] - {layer}):
                yield f"{path}:{number}: {layer} may not include {include[1]}, which is of {other}, not below it"
        if outside and include[1].startswith(INTERNAL + "/"):
            yield f"{path}:{number}: {include[1]} is internal: include a header that lies directly in {HEADERS}"


def check_source(path: Path, lines: list[str]) -> Iterator[str]:
    """Checks one file of C++ or CUDA."""
    if path.suffix == ".hpp" and "#pragma once" not in lines[:12]:
        yield f"{path}:1: a header starts with its licence, its \\file comment and #pragma once"
    layer = layer_of(path)
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0]
        if layer != "simt" and path.parts[0] in {"include", "src", "apps"} and ONLY_IN_SIMT.search(code):
            yield f"{path}:{number}: CUDA's own words appear only under simt/"
        if path != COPIES_HOME and ASYNCHRONOUS_COPIES.search(code):
            yield f"{path}:{number}: asynchronous copies stand only in {COPIES_HOME}: use M::copy_async or a stager"
        if path.parts[0] in {"include", "src", "apps"} and "no_unique_address" in code:
            yield f"{path}:{number}: nvcc lays such a member out otherwise than the host's compiler: make it a base"
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"{path}:{number}: unfinished work is not left in the source"


def check_length(path: Path, lines: list[str]) -> Iterator[str]:
    """Checks that a file is short enough to be about one thing."""
    if len(lines) > LINES_MAX:
        yield f"{path}:{LINES_MAX + 1}: more than {LINES_MAX} lines: split it: one concept a file"


def check_page(path: Path, lines: list[str]) -> Iterator[str]:
    """Checks that the relative links of a Markdown page lead somewhere."""
    for number, line in enumerate(lines, 1):
        for target in LINK.findall(line):
            if "://" not in target and not target.startswith("mailto:") and not (ROOT / path.parent / target).exists():
                yield f"{path}:{number}: nothing is at the link {target}"


def check_quotes(path: Path, text: str) -> Iterator[str]:
    """Checks that what a page quotes is what the file says, so that examples are code that is built and run."""
    for quote in QUOTED.finditer(text):
        source = ROOT / quote[1]
        if not source.is_file() or quote[2] not in source.read_text():
            number = text.count("\n", 0, quote.start()) + 1
            yield f"{path}:{number}: {quote[1]} does not say what is quoted from it"


def check_reachable(pages: set[Path], files: list[Path]) -> Iterator[str]:
    """Checks that links and pictures lead from README.md and docs/index.md to every file under docs/.

    The programs of docs/examples are what pages quote; the tests build them.
    """
    queue = [Path("README.md"), Path("docs/index.md")]
    seen: set[Path] = set()
    while queue:
        page = queue.pop()
        if page in seen:
            continue
        seen.add(page)
        if page not in pages:
            continue
        for target in LINK.findall((ROOT / page).read_text()):
            if "://" not in target:
                queue.append((ROOT / page.parent / target).resolve().relative_to(ROOT))
    for file in files:
        if file.parts[0] == "docs" and file.parts[1] != "examples" and file not in seen:
            yield f"{file}:1: no link leads here from README.md or docs/index.md"


def main() -> int:
    """Checks the tree and returns the exit status."""
    breaches: list[str] = []
    pages: set[Path] = set()
    for path in tracked():
        if path.suffix not in LICENSED | {".md"} and path.name != "CMakeLists.txt":
            continue
        lines = (ROOT / path).read_text().splitlines()
        if path.suffix != ".md" and not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:2]):
            breaches.append(f"{path}:1: the line 'SPDX-License-Identifier: Apache-2.0' is missing")
        if path.suffix in SOURCE | {".md"}:
            breaches.extend(check_includes(path, lines))
        if path.suffix in SOURCE | {".py"}:
            breaches.extend(check_length(path, lines))
        if path.suffix in SOURCE:
            breaches.extend(check_source(path, lines))
        breaches.extend(prose.check(path, "\n".join(lines)))
        if path.suffix == ".md":
            pages.add(path)
            breaches.extend(check_page(path, lines))
            breaches.extend(check_quotes(path, "\n".join(lines)))
    breaches.extend(check_reachable(pages, tracked()))
    # The changelog names what is gone.
    breaches.extend(public_names.check(ROOT, sorted(pages - {Path("CHANGELOG.md")})))
    print("\n".join(breaches), end="\n" if breaches else "")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
