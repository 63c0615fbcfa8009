# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with PyTorch, and computes with CuPy, on a GPU that a served drive's engine shares.

Where the forebay package can be imported, a thread of this process writes and reads a drive of its own meanwhile, and
checks every byte and the drive's counts. Needs a daemon, which FOREBAY_DAEMON names. Ends by itself whatever happens:
status 0 all held, 1 something did not, or it took longer than it may.
"""

import argparse
import faulthandler
import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

STEPS_MIN = 1500
BATCH = 1024
FEATURES = 16
LOSS_BOUND = 0.05  # of targets with variance 1
CHUNK = 64 << 10


def train(seconds: float, seed: int, stop: threading.Event) -> dict[str, Any]:
    """Trains until the time is over, and frees and synchronises on the way as programs do."""
    import torch

    torch.manual_seed(seed)
    gpu = torch.device("cuda:0")
    teacher = torch.randn(2, FEATURES, device=gpu) / FEATURES**0.5
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 128),
        torch.nn.Tanh(),
        torch.nn.Linear(128, 128),
        torch.nn.Tanh(),
        torch.nn.Linear(128, 1),
    ).to(gpu)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begun, told = time.monotonic(), time.monotonic()
    losses: list[float] = []
    steps = frees = 0
    running = torch.zeros((), device=gpu)
    while (time.monotonic() - begun < seconds or steps < STEPS_MIN) and not stop.is_set():
        x = torch.randn(BATCH, FEATURES, device=gpu)
        hidden = torch.tanh(2 * x @ teacher.T)
        y = hidden.sum(1, keepdim=True)
        y = (y - y.mean()) / y.std()
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running += loss.detach()
        steps += 1
        if steps % 100 == 0:
            losses.append(running.item() / 100)
            running.zero_()
            scratch = torch.empty(random.randrange(1 << 20, 64 << 20), dtype=torch.uint8, device=gpu)
            del scratch
            torch.cuda.empty_cache()  # cudaFree
            torch.cuda.synchronize()
            frees += 1
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"train: {told - begun:.0f} s: {steps} steps, loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
    return {
        "steps": steps,
        "frees": frees,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "verified": losses[-1] < LOSS_BOUND < losses[0],
    }


def compute_with_cupy(seconds: float, stop: threading.Event) -> dict[str, Any]:
    """Kernels that are compiled, loaded and launched for the first time, one after the other."""
    try:
        import cupy
    except ImportError as error:
        return {"skipped": str(error), "verified": True}
    begun = time.monotonic()
    kernels = 0
    x = cupy.arange(1 << 20, dtype=cupy.int64)
    while time.monotonic() - begun < seconds and not stop.is_set():
        fresh = cupy.ElementwiseKernel("int64 x", "int64 y", f"y = 3 * x + {kernels}", f"fresh_{kernels}")
        if int(fresh(x).sum()) != 3 * ((1 << 20) * ((1 << 20) - 1) // 2) + kernels * (1 << 20):
            return {"kernels": kernels, "verified": False}
        kernels += 1
        cupy.get_default_memory_pool().free_all_blocks()
        stop.wait(0.2)
    return {"kernels": kernels, "verified": True}


def use_a_drive(uri: str, device: str, seconds: float, seed: int, stop: threading.Event) -> dict[str, Any]:
    """Writes and reads chunks of a drive of this thread's own; counts and bytes must be the drive's."""
    try:
        from forebay import OperationFailed, Storage
        from forebay.storage import build_info
    except ImportError as error:
        return {"skipped": str(error), "verified": True}
    try:
        built = build_info()
    except OperationFailed as error:
        return {"skipped": str(error), "verified": True}
    if not built["gpus"]:
        device = "cpu"  # an extension without CUDA: its threads reach a drive on a GPU through the daemon
    dice = random.Random(seed)
    wrong = reads = writes = 0
    begun = time.monotonic()
    with Storage(uri, device=device) as storage:
        written: dict[int, bytes] = {}
        storage.reset_statistics()
        while time.monotonic() - begun < seconds and not stop.is_set():
            at = dice.randrange(storage.size_bytes // CHUNK) * CHUNK
            if at not in written or dice.random() < 0.3:
                written[at] = dice.randbytes(CHUNK)
                storage.pwrite(written[at], at).result(60)
                writes += 1
            else:
                back = bytearray(CHUNK)
                storage.pread(back, at).result(60)
                reads += 1
                wrong += bytes(back) != written[at]
        counted = storage.report()["drives"][0]["statistics"]
    ours = {
        "read_commands": reads,
        "write_commands": writes,
        "bytes_read": reads * CHUNK,
        "bytes_written": writes * CHUNK,
    }
    drive = {key: counted[key] for key in ours}
    return {
        "device": device,
        "client": ours,
        "drive": drive,
        "wrong_chunks": wrong,
        "verified": wrong == 0 and ours == drive,
    }


def main() -> int:
    """Runs all of them at the same time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drive", default="emulated:size=64M,backing=hbm,sms=2,queues=160,residency=served,seed=77")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--limit", type=float, default=0, help="after which it ends with a traceback; 0: 120 s more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without-training", action="store_true", help="the drive alone, where there is no PyTorch")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.limit or options.seconds + 120, exit=True)
    stop = threading.Event()
    results: dict[str, Any] = {}

    def run(name: str, function: Any, *arguments: Any) -> None:
        try:
            results[name] = function(*arguments, stop)
        except Exception as error:  # what went wrong is a result, and ends the others
            results[name] = {"verified": False, "error": f"{type(error).__name__}: {error}"}
        if not results[name]["verified"]:
            stop.set()

    beside = [
        threading.Thread(
            target=run,
            args=("drive", use_a_drive, options.drive, options.device, options.seconds, options.seed),
            daemon=True,
        )
    ]
    if not options.without_training:
        beside.append(threading.Thread(target=run, args=("cupy", compute_with_cupy, options.seconds), daemon=True))
    for thread in beside:
        thread.start()
    if not options.without_training:
        run("training", train, options.seconds, options.seed)
    for thread in beside:
        thread.join()
    verified = all(result["verified"] for result in results.values())
    document = {"schema_version": 1, "seed": options.seed, "verified": verified, **results}
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    print(f"train_beside_a_drive: {'OK' if verified else 'FAILED'} {json.dumps(results)}", flush=True)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
