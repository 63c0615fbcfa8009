# SPDX-License-Identifier: Apache-2.0
"""The terms of the transfer suite's report, each in a sentence or two, for readers without the study."""

INTRODUCTION = (
    "A program that computes on a GPU moves its data from the host's memory to the GPU's, from there to the small "
    "shared memory of the GPU's multiprocessors, and the results back. There are several ways for each step. This "
    "report says how long the same work takes with each of them. Every row was verified: the results were compared "
    "with a reference before anything was timed."
)

TERMS = (
    ("workload", "A program of known work: micro (one kernel), application (a whole algorithm) or network (a neural "
     "network, inference or training). `forebay transfer list` says what each computes."),
    ("size", "How much memory the workload has on the GPU, about: tiny 0.5 to 8 MB, small 8 to 64 MB, medium 64 to "
     "512 MB, large 0.5 to 1 GB, super 1 to 8 GB, mega 4 to 32 GB. Most networks have less."),
    ("mode", "A way to move data. It has three parts: transfer (host to GPU and back), allocation (where the GPU's "
     "memory comes from) and stage (how a tile of data gets from there to shared memory)."),
    ("standard", "The mode that others are compared with: copies of ordinary memory, cudaMalloc, loads and stores."),
    ("async", "As standard, but tiles come by asynchronous copies of 4 bytes, so a thread need not carry them."),
    ("uvm, uvm_async", "Managed memory, which the system moves between host and GPU by itself. Here it is asked to "
     "move inputs before the kernels start, and results after them (prefetch); uvm_async has asynchronous copies too."),
    ("pm, pm_async", "Page-locked host memory, which the GPU's copy engine reads without a copy in between; pm_async "
     "has asynchronous copies too."),
    ("total", "From the allocation of the GPU's memory until it is free again, on the host's clock. Context, host "
     "memory and its page-locking are made before."),
    ("page-locking", "What it takes, once, to lock the host's buffers. It is in no total."),
    ("kernels", "In tables: from the start of the first kernel to the end of the last, by events of the GPU. In bars "
     "of traced runs: the time in which a kernel runs and nothing is copied."),
    ("copies", "Time in which data is copied or pages move between host and GPU. If a kernel runs meanwhile, the time "
     "counts as copies only."),
    ("allocation", "Time of allocating and freeing, while neither copies nor kernels run."),
    ("host", "Time in which our own host threads copy or touch pages, and nothing of the above happens."),
    ("calls", "Time in another call of CUDA, while nothing of the above happens: it starts work, prepares pages "
     "or waits."),
    ("unattributed", "The rest of the wall time, which no record explains."),
    ("cold, warm", "Cold is the first run of a mode, the one that was verified. Warm are the runs after it. They are "
     "never mixed."),
    ("median, quartiles", "Half of the warm runs are faster than the median; half of them lie between the quartiles, "
     "which stand behind it in brackets. A super or mega row has few runs, so its quartiles say little."),
    ("against standard", "The median total over that of the standard mode of the same launch, less one: -43 % means "
     "that 43 % of the time is saved."),
    ("launch", "Blocks x threads of a block, the tile (how much a block stages at a time, in the workload's own unit) "
     "and the stages (buffers for tiles)."),
    ("refused", "The GPU cannot do this, or lacks the memory. The reason stands beside."),
)  # fmt: skip

ARMS = {
    "malloc": "Each job allocates with cudaMalloc and frees with cudaFree, one after the other.",
    "pool_threshold_0": "A memory pool (cudaMallocAsync) that gives what is freed back to the system at once.",
    "pool_threshold_max": "A memory pool that keeps what is freed.",
    "pool_side_stream": "As pool_threshold_max, and the memory of the next job is allocated on a second stream while "
    "this one runs.",
    "host_thread": "A second thread of the host allocates for the next job while this one runs.",
    "triple_buffering": "Three sets of buffers, so that copies to the GPU, kernels and copies back overlap.",
}

PIPELINE = (
    "A series of equal jobs runs, one after the other. Each needs memory of its own on the GPU. The arms differ in "
    "where that comes from and what happens at the same time."
)

CLAIMS = (
    "A study compared the six modes on three hosts: B and C with an A100 behind PCIe 4.0, and D with an H100 behind "
    "PCIe 5.0 (Li and others, Performance Implications of Pipelining the Data Transfer in CPU-GPU Heterogeneous "
    "Systems, ACM TACO, 2025, doi.org/10.1145/3746231). Each claim is held against our figures with a rule. Its limits "
    "were set before anything was measured; how the totals of A18 and A20 are computed was not. "
    "Claims use means, as the study does; all other figures here are medians. Only figures of host D are judged. A "
    "saving is positive if the mode is faster; a change is positive if a time or a count is larger."
)

VERDICTS = {
    "confirmed": "all figures agree",
    "refuted": "a figure does not agree",
    "not testable here": "the study has no figure of a host like ours",
    "not measured": "rows lack; the commands that measure them stand beside",
}


def about_gpu(gpu: str) -> str:
    """What GPU this is, beside the study's."""
    if not gpu:
        return "The files do not say which GPU it was. The study's host D has an H100."
    if "H100" in gpu:
        return f"Measured on {gpu}. The study's host D has an H100 too; its other parts differ."
    return f"Measured on {gpu}. The study's host D has an H100, so figures of kernels may differ for that reason alone."
