# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions that copy to shared memory in the machine code of the transfer suite's kernels.

`cuobjdump -sass` shows the code of each file: an object (`gpu_vectors.cu.o`), the library or the extension module. A
kernel is one class with one stage policy, so each policy's instruction must be in each kernel of that policy, and in no
other. A kernel without a policy has none of them. `--json FILE` gets the counts; a table goes to standard output.

Status 1: an instruction is missing, or is where it does not belong. Status 2: there is nothing to look at.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FUNCTION = re.compile(r"^\s*Function : (\S+)")
TARGET = re.compile(r"^\s*code for (sm_\w+)")
# An address, perhaps a predicate, the instruction.
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
POLICY = re.compile(r"forebay::simt::stage_policy::(\w+)")
ENTRY = re.compile(r"\bcuda_(?:bounded_)?entry<")
POLICIES = ("plain", "async4", "async16", "bulk")
COPIES = ("async4", "async8", "async16", "bulk", "tensor")


class UnreadableError(Exception):
    """There is nothing to look at, for this reason."""


def copy_of(instruction: str) -> str | None:
    """What kind of copy to shared memory an instruction is."""
    name, *modifiers = instruction.split(".")
    if name == "LDGSTS":
        return "async16" if "128" in modifiers else "async8" if "64" in modifiers else "async4"
    if name == "UBLKCP":
        return "bulk"
    return "tensor" if name == "UTMALDG" else None


@dataclass
class Kernel:
    """A function of the machine code, and how often it has each instruction that copies to shared memory."""

    symbol: str
    target: str
    name: str = ""  # the kernel's class, without its policy
    policy: str | None = None
    instructions: Counter[str] = field(default_factory=Counter)

    @property
    def copies(self) -> dict[str, int]:
        """How many instructions of each kind of copy it has."""
        found = dict.fromkeys(COPIES, 0)
        for instruction, count in self.instructions.items():
            found[copy_of(instruction) or ""] += count
        return found

    @property
    def defects(self) -> list[str]:
        """What it lacks, and what does not belong there."""
        copies = self.copies
        own = self.policy if self.policy in COPIES else None
        wrong = [f"has {count} {kind}" for kind, count in copies.items() if count and kind != own]
        return ([f"has no {own}"] if own and not copies[own] else []) + wrong

    def named(self, demangled: str) -> None:
        """Takes name and policy from the symbol in C++."""
        kernel = kernel_in(demangled)
        policies = set(POLICY.findall(kernel))
        if len(policies) > 1 or not policies <= set(POLICIES):
            raise UnreadableError(f"{demangled}: a kernel has one policy of {', '.join(POLICIES)}")
        self.policy = next(iter(policies), None)
        self.name = without_own_arguments(kernel)


def kernel_in(demangled: str) -> str:
    """The class of a kernel, which is the first template argument of the function that starts it."""
    entry = ENTRY.search(demangled)
    if entry is None:
        return demangled
    depth = 0
    for at in range(entry.end(), len(demangled)):
        depth += {"<": 1, ">": -1}.get(demangled[at], 0)
        if depth < 0 or (depth == 0 and demangled[at] == ","):
            return demangled[entry.end() : at].strip()
    return demangled[entry.end() :]


def without_own_arguments(kernel: str) -> str:
    """A class without the arguments that all kernels have, the machine and the policy."""
    short = re.sub(r"\bforebay::simt::cuda\b", "", POLICY.sub("", kernel)).replace("forebay::transfer::", "")
    arguments = re.sub(r",\s*(?=[,>])", "", short)
    return re.sub(r"<[\s,]*>", "", re.sub(r"<\s*,\s*", "<", arguments)).strip()


def kernels_of(listing: Iterable[str]) -> list[Kernel]:
    """The functions in what `cuobjdump -sass` printed."""
    found: list[Kernel] = []
    target = ""
    for line in listing:
        if match := TARGET.match(line):
            target = match[1]
        elif match := FUNCTION.match(line):
            found.append(Kernel(match[1], target))
        elif found and (match := INSTRUCTION.match(line)) and copy_of(match[1]):
            found[-1].instructions[match[1]] += 1
    return found


def name_all(kernels: list[Kernel], names: list[str]) -> None:
    """Names kernels by their symbols in C++, in the same order."""
    for kernel, name in zip(kernels, names, strict=True):
        kernel.named(name)


def run(command: list[str], given: str | None = None) -> str:
    """What a program printed."""
    try:
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise UnreadableError(f"there is no {command[0]} here: install the CUDA toolkit's") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip() or f"status {error.returncode}"
        raise UnreadableError(f"{' '.join(command)}: {said}") from None


def read(path: Path, cuobjdump: str) -> list[Kernel]:
    """The kernels of a file."""
    kernels = kernels_of(run([cuobjdump, "-sass", str(path)]).splitlines())
    if not kernels:
        raise UnreadableError(f"{path} has no machine code of a GPU")
    symbols = "\n".join(kernel.symbol for kernel in kernels)
    name_all(kernels, run(["c++filt"], symbols).splitlines())
    return kernels


def document(kernels: list[Kernel]) -> dict[str, Any]:
    """The counts of each kernel and policy, and of all."""
    rows = [
        {
            "kernel": kernel.name,
            "policy": kernel.policy,
            "target": kernel.target,
            "copies": kernel.copies,
            "instructions": dict(sorted(kernel.instructions.items())),
            "defects": kernel.defects,
        }
        for kernel in sorted(kernels, key=lambda kernel: (kernel.name, str(kernel.policy), kernel.target))
    ]
    seen = {policy: sum(row["policy"] == policy for row in rows) for policy in POLICIES}
    return {"verified": not any(row["defects"] for row in rows) and all(seen.values()), "seen": seen, "results": rows}


def show(found: dict[str, Any]) -> None:
    """Prints a line for each kernel and policy."""
    width = max(len(row["kernel"]) for row in found["results"])
    print(f"{'kernel':<{width}} {'policy':<8}" + "".join(f"{kind:>8}" for kind in COPIES))
    for row in found["results"]:
        counts = "".join(f"{row['copies'][kind]:>8}" for kind in COPIES)
        wrong = f"  WRONG: {', '.join(row['defects'])}" if row["defects"] else ""
        print(f"{row['kernel']:<{width}} {row['policy'] or '':<8}{counts}{wrong}")
    for policy, count in found["seen"].items():
        print(f"{policy}: {count} kernels{'' if count else '  WRONG: none'}")


def main(arguments: list[str] | None = None) -> int:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="an object, a library or a program")
    parser.add_argument("--cuobjdump", help="the program; by default that of PATH, or of /usr/local/cuda/bin")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the counts go")
    given = parser.parse_args(arguments)
    cuobjdump = given.cuobjdump or shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump"
    try:
        found = document([kernel for path in given.files for kernel in read(path, cuobjdump)])
        if given.json:
            given.json.write_text(json.dumps(found, indent=2) + "\n")
    except (UnreadableError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    show(found)
    return 0 if found["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
