# SPDX-License-Identifier: Apache-2.0
"""Documents of the transfer suite in which every claim of the study holds, to be changed by tests."""

import json

from forebay import transfer
from forebay.transfer.shapes import METRICS, PUBLISHED_SHAPES

MICRO = ("vector_seq", "vector_rand", "saxpy", "gemv", "gemm", "conv2d", "conv3d")
APPLICATIONS = (
    "lavamd",
    "nw",
    "kmeans",
    "srad",
    "backprop",
    "pathfinder",
    "hotspot",
    "lud",
    "bayesian",
    "knn",
)
NETWORKS = tuple(
    f"{net}_{what}" for net in ("resnet18", "resnet50", "yolov3_tiny", "yolov3") for what in ("inference", "training")
)
GPU = {"name": "NVIDIA H100 80GB HBM3", "driver": "580.95.05"}
KERNELS = 0.2  # of a standard run, which takes 1 s
COPIES = 0.6
FIXED = {"blocks": {"threads": 256}, "threads": {"blocks": 256}, "tile": {"blocks": 4096, "threads": 256}}
OWN_SHAPE = {"blocks": 1024, "threads": 256, "tile": 64, "stages": 2}


class World:
    """Ratios to the standard mode, by workload and mode, and what tests may change of them."""

    def __init__(self):
        self.total, self.kernels, self.copies, self.locking = {}, {}, {}, {}
        for names, ratios in (
            (MICRO, {"async": 1.05, "uvm": 0.52, "uvm_async": 0.51, "pm": 0.56, "pm_async": 0.55}),
            (APPLICATIONS, {"async": 1.0, "uvm": 0.95, "uvm_async": 0.94, "pm": 0.772, "pm_async": 0.77}),
            (NETWORKS, {"async": 1.0, "uvm": 1.1, "uvm_async": 1.1, "pm": 0.9, "pm_async": 0.9}),
        ):
            self.set(self.total, names, ratios)
        self.total |= {("vector_seq", "async"): 0.9263, ("conv2d", "pm_async"): 1 / 4.96}
        self.total |= {("lud", "async"): 0.7997, ("knn", "async"): 1.2522}
        self.kernels |= {("vector_seq", "async"): 0.5758, ("conv3d", "async"): 2.4337}
        self.kernels |= {("kmeans", "uvm_async"): 0.9162, ("kmeans", "uvm"): 1.0994}
        self.set(self.copies, APPLICATIONS, {"uvm": 0.5197, "pm": 0.4196})
        for name in NETWORKS:
            inference = name.endswith("inference")
            self.copies[name, "pm"] = 0.7025 if inference else 0.5086
            self.locking[name, "pm"] = 2.0643 if inference else 0.353
        self.locking |= {(name, "pm"): 0.5 for name in (*MICRO, *APPLICATIONS)}
        self.standard_kernels = KERNELS
        # Seconds of vector_seq at a value of the parameter, total and kernels, by mode.
        self.sweeps = {
            "blocks": {v: {"standard": (1.0, 0.2), "async": (1.01, 0.2)} for v in (16, 256, 4096)},
            "threads": {
                32: {"standard": (3.0, 1.779), "async": (2.5, 1.2706)},
                1024: {"standard": (1.0, 0.1), "async": (1.0, 0.0953)},
            },
            "tile": {
                256: {"standard": (1.0, 0.2), "async": (1.0, 0.19032)},
                8192: {"standard": (0.98, 0.18), "async": (0.97, 0.165)},
                16384: {"standard": (1.0, 0.2), "async": (1.1, 0.18174)},
            },
        }
        self.jobs = {"tiny": {"malloc": 1.0, "pool_side_stream": 1.2}, "large": {"malloc": 1.44, "pool_side_stream": 1}}
        self.counters = {
            ("control", "knn"): 1.6662,
            ("memory", "vector_seq"): 0.8438,
            ("memory", "conv3d"): 2.0782,
            ("memory", "lud"): 1.1749,
            ("memory", "knn"): 1.434,
            ("bytes", "vector_seq"): 1.7355,
            ("bytes", "lud"): 1.2658,
            ("bytes", "conv3d"): 0.4056,
            ("bytes", "knn"): 0.8893,
        }
        self.uvm_bytes = 0.611

    @staticmethod
    def set(table, names, ratios):
        """Sets the ratios of all these workloads."""
        table |= {(name, mode): ratio for name in names for mode, ratio in ratios.items()}

    def write(self, folder):
        """Writes all documents into a folder that is made, and returns the files."""
        folder.mkdir()
        documents = {
            "super": run_document("super", [self.row(name, mode, "super") for name in ALL for mode in MODES]),
            "mega": run_document("mega", [self.row(name, mode, "mega") for name in MICRO for mode in MODES]),
            **{f"sweep-{parameter}": self.sweep(parameter) for parameter in self.sweeps},
            **{f"jobs-{size}": jobs_document(size, arms) for size, arms in self.jobs.items()},
            "ncu": self.ncu(),
        }
        files = []
        for name, document in documents.items():
            files.append(folder / f"{name}.json")
            files[-1].write_text(json.dumps(document))
        return files

    def row(self, name, mode, size, shape=None):
        """A result of a run, in the study's launch unless another is given."""
        at = (name, mode)
        kernels = self.standard_kernels * self.kernels.get(at, 1.0)
        total = self.total.get(at, 1.0)
        copies = COPIES * self.copies.get(at, 1.0)
        traced = {"total": total, "kernels": kernels, "copies": copies, "allocation": 0.1, "host": 0.05, "calls": 0.02}
        traced["unattributed"] = 0.03
        return {
            "workload": name,
            "mode": mode,
            "size": size,
            "shape": shape or {**OWN_SHAPE, **PUBLISHED_SHAPES.get(name, {})},
            "verified": True,
            "cold": times(total * 2, kernels),
            "warm": [times(total * 0.9, kernels), times(total * 1.1, kernels)],
            "page_locking_seconds": self.locking.get(at, 0.0),
            "traced": traced,
        }

    def sweep(self, parameter):
        """The document of a sweep."""
        rows = []
        for value, by_mode in self.sweeps[parameter].items():
            for mode, (total, kernels) in by_mode.items():
                shape = {**OWN_SHAPE, "tile": 4096, **FIXED[parameter], parameter: value}
                row = {**self.row("vector_seq", mode, "large", shape), "parameter": parameter, "value": value}
                rows.append({**row, "warm": [times(total, kernels)], "traced": None, "traced_reason": "no CUPTI"})
        document = run_document("large", rows)
        document["options"] |= {"parameter": parameter, "values": list(self.sweeps[parameter])}
        return document

    def ncu(self):
        """Counters: of each workload in the standard mode 1000 in 1 s, and in others what the ratios say."""
        rows = []
        for name in ALL:
            for mode in ("standard", "async", "uvm"):
                sums = {METRICS[counter]: 1000.0 for counter in ("control", "memory", "bytes")} | {METRICS["time"]: 1.0}
                if mode == "async":
                    for (counter, of), ratio in self.counters.items():
                        sums[METRICS[counter]] *= ratio if of == name else 1
                if mode == "uvm":
                    sums[METRICS["time"]] = 1 / self.uvm_bytes
                rows.append({"workload": name, "mode": mode, "size": "large", "metrics": sums})
        return {"counters": rows}


MODES = tuple(transfer.STUDY_MODES)
ALL = (*MICRO, *APPLICATIONS, *NETWORKS)


def times(total, kernels):
    """One run."""
    return {"total": total, "allocation": 0.01, "release": 0.01, "kernels": kernels}


def run_document(size, rows, gpu=GPU):
    """What `forebay transfer run` writes."""
    return {
        "options": {
            "size": size,
            "shape": {},
            "seed": 1,
            "repetitions": 2,
            "device": "cuda:0",
            "commit": "abc",
            "gpu": gpu,
        },
        "plan": {"workloads": list(dict.fromkeys(row["workload"] for row in rows)), "modes": list(MODES)},
        "verified": True,
        "fidelity": "ok",
        "results": rows,
        "forebay": {"version": "1", "commit": "abc", "host": "box"},
    }


def jobs_document(size, arms):
    """What `forebay transfer pipeline` writes."""
    rows = [
        {"arm": arm, "workload": "vector_seq", "size": size, "jobs": 16, "verified": True, "seconds": [seconds] * 3}
        for arm, seconds in arms.items()
    ]
    options = {"workload": "vector_seq", "size": size, "jobs": 16, "allocation": "malloc", "device": "cuda:0"}
    return {**run_document(size, rows), "options": options}
