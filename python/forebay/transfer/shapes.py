# SPDX-License-Identifier: Apache-2.0
"""The launches of the published study, and the commands that measure with them."""

from collections.abc import Iterable
from dataclasses import dataclass

# What the published kernels fix of a launch, in the units of our workloads; the rest is our own choice. Copies of 4
# bytes are the stage policy `async4`. A cube of 12 inputs along each edge is a tile of 10 outputs.
PUBLISHED_SHAPES: dict[str, dict[str, int]] = {
    "vector_seq": {"threads": 256, "tile": 4096},
    "vector_rand": {"threads": 256, "tile": 4096},
    "saxpy": {"tile": 2048},
    "gemm": {"tile": 32},
    "conv2d": {"threads": 64, "tile": 32},
    "conv3d": {"threads": 64, "tile": 10},
    "lavamd": {"tile": 100},
    "nw": {"tile": 16},
    "hotspot": {"tile": 16},
    "knn": {"tile": 16},
    **{
        f"{network}_{what}": {"tile": 16}
        for network in ("resnet18", "resnet50", "yolov3_tiny", "yolov3")
        for what in ("inference", "training")
    },
}

METRICS = {
    "control": "smsp__sass_thread_inst_executed_op_control_pred_on.sum",
    "memory": "smsp__sass_thread_inst_executed_op_memory_pred_on.sum",
    "bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "time": "gpu__time_duration.sum",
}


@dataclass(frozen=True)
class Need:
    """A measurement that a claim rests on. `kind` is the command: run, sweep, pipeline, or ncu."""

    kind: str
    workload: str
    mode: str
    size: str
    parameter: str = ""
    values: tuple[int, ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()

    @property
    def options(self) -> str:
        """Options of the launch, as the study has it."""
        shape = dict(self.fixed) or PUBLISHED_SHAPES.get(self.workload, {})
        return "".join(f" --{name} {value}" for name, value in shape.items())


def differs(workload: str, shape: dict[str, int], swept: str = "") -> str:
    """How a launch differs from that of the study, in words; empty if it does not. What is `swept` is left out."""
    wrong = [
        f"{name} {shape.get(name)} (published: {value})"
        for name, value in PUBLISHED_SHAPES.get(workload, {}).items()
        if name != swept and shape.get(name) != value
    ]
    return f"{workload} with {', '.join(wrong)}" if wrong else ""


def commands(needs: Iterable[Need]) -> list[str]:
    """The commands that measure all of it, those of one launch together."""
    groups: dict[tuple[str, ...], list[Need]] = {}
    for need in needs:
        # Each program that ncu looks at has a file of its own.
        apart = (need.workload, need.mode) if need.kind == "ncu" else ()
        key = (need.kind, need.size, need.parameter, str(need.values), need.options, *apart)
        groups.setdefault(key, []).append(need)
    return [_command(group) for group in groups.values()]


def _command(group: list[Need]) -> str:
    first = group[0]
    workloads = "".join(f" --workload {name}" for name in dict.fromkeys(need.workload for need in group))
    modes = "".join(f" --mode {name}" for name in dict.fromkeys(need.mode for need in group))
    if first.kind == "ncu":
        file = f"{first.workload}.{first.mode}.{first.size}.csv"
        return (
            f"ncu --csv --page raw --print-units base --metrics {','.join(METRICS.values())} --log-file {file} "
            f"forebay transfer run{workloads} --size {first.size}{modes}{first.options} --repetitions 1 --no-trace"
        )
    if first.kind == "pipeline":
        return (
            f"forebay transfer pipeline{workloads} --size {first.size} --json jobs-{first.workload}-{first.size}.json"
        )
    # One file takes all results of one launch and size, whichever command they are of.
    launch = first.options.replace(" --", "-").replace(" ", "")
    options = f"{workloads} --size {first.size}{modes}{first.options}"
    if first.kind == "sweep":
        values = ",".join(map(str, first.values))
        swept = f"--parameter {first.parameter} --values {values}"
        return f"forebay transfer sweep{options} {swept} --json sweep-{first.parameter}-{first.size}{launch}.json"
    return f"forebay transfer run{options} --json run-{first.size}{launch}.json"
