# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory of a GPU, of PyTorch and CuPy, over drives that reach it and drives that do not."""

import os
import subprocess
import sys

import pytest
from forebay import RefusedInput, Storage, build_info

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not build_info()["gpus"], reason="there is no GPU that this build can use"),
    pytest.mark.filterwarnings("default"),  # what other libraries warn of
]

MIB = 1 << 20
LONG_CYCLES = 200_000_000  # of the GPU: about a tenth of a second
PLACES = {
    "direct": ("emulated:size=64M,backing=hbm,sms=4", "cuda:0"),
    "staged": ("emulated:size=64M", "cuda:0"),
    "staged for the cpu": ("emulated:size=64M", "cpu"),
    "copied": ("emulated:size=64M,backing=hbm,sms=4,residency=served", "cuda:0"),
}
# Besides those between drives and memory of a GPU, which they have in "direct" alone.
COUNTS = {
    "direct": "gpu_copied_bytes",
    "copied": "gpu_copied_bytes",
    "staged": "gpu_staged_bytes",
    "staged for the cpu": "gpu_staged_bytes",
}


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(params=PLACES)
def place(request):
    if "served" in PLACES[request.param][0] and "FOREBAY_DAEMON" not in os.environ:
        pytest.skip("FOREBAY_DAEMON names no drive daemon")
    return request.param


@pytest.fixture
def storage(place):
    uri, device = PLACES[place]
    with Storage(uri, device=device) as opened:
        yield opened


def test_a_tensor_of_torch_is_written_and_read_back(torch, storage, place):
    numbers = torch.randn(1000, 1024, device="cuda")
    torch.cuda.synchronize()
    back = torch.zeros_like(numbers)
    torch.cuda.synchronize()
    for offset in (0, 4096, 100):
        assert storage.pwrite(numbers, offset).result() == numbers.nbytes
        back.zero_()
        torch.cuda.synchronize()
        assert storage.pread(back, offset).result() == numbers.nbytes
        assert torch.equal(back, numbers)
    moved = storage.report()["transfers"]
    assert moved["gpu_direct_bytes"] + moved[COUNTS[place]] == 6 * numbers.nbytes
    assert (moved["gpu_direct_bytes"] > 0) == (place == "direct")
    assert moved["host_bytes"] == 0


def test_an_allocation_is_registered_once(torch, storage, place):
    whole = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    reads = [storage.pread(part, i * MIB) for i, part in enumerate(whole.split(MIB))]
    assert sum(read.result() for read in reads) == 8 * MIB
    assert storage.report()["transfers"]["registered_allocations"] == (1 if place == "direct" else 0)


def test_a_tensor_of_the_host_of_torch_is_filled_in_place(torch, storage):
    numbers = torch.arange(1000, dtype=torch.float64)
    storage.pwrite(numbers, 8).result()
    for back in (torch.zeros_like(numbers), torch.zeros_like(numbers).pin_memory()):
        storage.pread(back, 8).result()
        assert torch.equal(back, numbers)
    assert storage.report()["transfers"]["host_bytes"] == 3 * numbers.nbytes


@pytest.mark.parametrize("default", [False, True])
def test_a_transfer_is_ordered_with_its_stream_and_no_call_waits(torch, storage, default):
    stream = torch.cuda.default_stream() if default else torch.cuda.Stream()
    buffer = torch.zeros(MIB, dtype=torch.int32, device="cuda")
    seen = torch.zeros_like(buffer)
    torch.cuda.synchronize()
    storage.pread(buffer, 0).result()  # the first transfer registers and page-locks memory
    with torch.cuda.stream(stream):
        for number in range(1, 6):
            torch.cuda._sleep(LONG_CYCLES)
            buffer.fill_(number)
            before = torch.cuda.Event()
            before.record(stream)
            # The stream orders them: the read begins after what waits for the end of the write.
            write = storage.pwrite(buffer, 0, stream=stream)
            buffer.zero_()
            read = storage.pread(buffer, 0, stream=stream)
            seen.copy_(buffer)
            assert not before.query(), "a call waited for the GPU"
            stream.synchronize()
            assert write.result() == read.result() == buffer.nbytes
            assert torch.all(seen == number)


def test_a_transfer_that_fails_lets_its_stream_go_on(torch):
    with Storage("emulated:size=64M,errors_ppm=500000,seed=3", device="cpu") as failing:
        stream = torch.cuda.Stream()
        buffer = torch.zeros(16 * MIB, dtype=torch.uint8, device="cuda")
        read = failing.pread(buffer, 0, stream=stream)
        stream.synchronize()
        assert read.exception() is not None


def test_reads_go_on_while_a_cuda_graph_is_captured(torch, storage):
    numbers = torch.arange(1_000_000, device="cuda")
    back, captured = torch.zeros_like(numbers), torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    storage.pwrite(numbers).result()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # forbids every thread what could disturb it
        captured.add_(1)
        storage.pread(back).result()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(back, numbers)
    assert torch.all(captured == 1)


def test_a_stream_that_is_being_captured_is_refused(torch, storage):
    tensor, captured = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        captured.add_(1)
        with pytest.raises(RefusedInput, match=r"^stream: .* captured into a CUDA graph"):
            storage.pread(tensor, stream=torch.cuda.current_stream())


def test_the_default_stream_is_served_while_another_is_captured(torch, storage):
    numbers = torch.arange(1_000_000, device="cuda")
    back, captured = torch.zeros_like(numbers), torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    storage.pwrite(numbers).result()
    default = torch.cuda.default_stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.add_(1)
        assert storage.pread(back, stream=default).result() == back.nbytes
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(back, numbers)
    assert torch.all(captured == 1)


def test_more_streams_than_may_wait_are_all_served(torch, storage):
    numbers = torch.arange(4096, device="cuda")
    torch.cuda.synchronize()
    storage.pwrite(numbers).result()
    streams = [torch.cuda.Stream() for _ in range(64)]  # more than there are channels to the GPU
    backs = [torch.zeros_like(numbers) for _ in streams]
    torch.cuda._sleep(1)  # CUDA loads a kernel when it is launched first, and then waits for all streams
    backs[0].add_(0)
    torch.cuda.synchronize()  # ends when the engine has left
    reads = []
    for stream, back in zip(streams, backs, strict=True):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG_CYCLES // 10)
            reads.append(storage.pread(back, stream=stream))
            back.add_(1)
    assert [read.result() for read in reads] == [numbers.nbytes] * len(streams)
    torch.cuda.synchronize()
    assert all(torch.equal(back, numbers + 1) for back in backs)


FEW_CHANNELS = """
import sys
import torch
from forebay import RefusedInput, Storage

tensor = torch.zeros(4096, device="cuda")
torch.cuda.synchronize()
with Storage(sys.argv[1], device=sys.argv[2]) as storage:
    try:
        storage.pread(tensor, stream=torch.cuda.current_stream())
    except RefusedInput as refused:
        print(refused)
    assert storage.pread(tensor).result() == tensor.nbytes
"""


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("channels", ["1", "7"])
def test_with_too_few_channels_to_the_gpu_a_stream_is_refused(place, channels):
    run = subprocess.run(
        [sys.executable, "-c", FEW_CHANNELS, *PLACES[place]],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": channels},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert f"CUDA gives this process {channels} in all: set CUDA_DEVICE_MAX_CONNECTIONS to 8 to 32" in run.stdout


CTRL_C = """
import signal
import sys
import threading
import torch
from forebay import Storage

tensor = torch.zeros(4096, device="cuda")
streams = [torch.cuda.Stream() for _ in range(9)]  # of which 8 may wait
torch.cuda.synchronize()
with Storage(sys.argv[1], device=sys.argv[2]) as storage:
    storage.pread(tensor).result()
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(int(sys.argv[3]))
    reads = [storage.pread(tensor, stream=stream) for stream in streams[:8]]
    main = threading.main_thread().ident
    threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
    try:
        storage.pread(tensor, stream=streams[8])
        print("it did not wait")
    except KeyboardInterrupt:
        print("interrupted", "before" if not streams[0].query() else "after", "the others had ended")
    torch.cuda.synchronize()
    assert [read.result() for read in reads] == [tensor.nbytes] * 8
    assert storage.pread(tensor, stream=streams[8]).result() == tensor.nbytes
"""


@pytest.mark.usefixtures("torch")
def test_ctrl_c_ends_a_call_that_waits_for_other_streams(place):
    run = subprocess.run(
        [sys.executable, "-c", CTRL_C, *PLACES[place], str(30 * LONG_CYCLES)],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["interrupted before the others had ended"]


GROWING = """
import sys
import torch
from forebay import Storage

tensor = torch.randint(256, (48 << 20,), dtype=torch.uint8, device="cuda")  # of several pieces
back = torch.zeros_like(tensor)
torch.cuda.synchronize()
with Storage(sys.argv[1], device=sys.argv[2]) as storage:
    storage.pwrite(tensor).result()
    storage.pread(back).result()
    print(storage.report()["transfers"][sys.argv[3]])
assert torch.equal(tensor, back)
"""


@pytest.mark.usefixtures("torch")
def test_memory_of_an_allocator_that_maps_pieces_is_moved(place):
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    command = [sys.executable, "-c", GROWING, *PLACES[place], COUNTS[place]]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) == 2 * 48 * MIB


@pytest.mark.parametrize("place", ["direct"])
def test_memory_that_is_freed_and_taken_again_is_registered_again(torch, storage):
    numbers = torch.arange(4 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    storage.pwrite(numbers).result()
    for _ in range(3):
        back = torch.zeros_like(numbers)
        torch.cuda.synchronize()
        storage.pread(back).result()
        assert torch.equal(back, numbers)
        del back
        torch.cuda.empty_cache()


def test_an_array_of_cupy_is_written_and_read_back(storage):
    cupy = pytest.importorskip("cupy")
    numbers = cupy.arange(100_000, dtype="f4").reshape(100, 1000)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    back = cupy.zeros_like(numbers)
    cupy.cuda.get_current_stream().synchronize()
    storage.pwrite(numbers, 512, stream=stream).result()
    storage.pread(back, 512, stream=stream).result()
    assert bool((back == numbers).all())


def test_an_object_with_the_cuda_array_interface_alone_is_filled(torch, storage):
    class Array:
        def __init__(self, tensor):
            self.tensor = tensor
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    numbers = torch.arange(5000, device="cuda")
    back = torch.zeros_like(numbers)
    torch.cuda.synchronize()
    storage.pwrite(Array(numbers), 1000).result()
    storage.pread(Array(back), 1000).result()
    assert torch.equal(back, numbers)


def test_tensors_that_cannot_be_moved_are_refused_at_the_call(torch, storage):
    tensor = torch.zeros(64, 64, device="cuda")
    torch.cuda.synchronize()
    for buffer, part in (
        (tensor.T[:, :3], "not contiguous"),
        (tensor[:, ::2], "not contiguous"),
        (tensor.clone().requires_grad_(), "gradient"),
    ):
        for move in (storage.pwrite, storage.pread):
            with pytest.raises(RefusedInput, match=r"^buffer: ") as refused:
                move(buffer)
            assert part in refused.value.remedy


def test_a_stream_of_another_gpu_is_refused(torch, storage):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    tensor = torch.zeros(64, device="cuda:0")
    torch.cuda.synchronize()
    with pytest.raises(RefusedInput, match=r"^stream: 'of cuda:1': the buffer is in memory of cuda:0"):
        storage.pread(tensor, stream=torch.cuda.Stream(device="cuda:1"))
