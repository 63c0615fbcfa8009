# SPDX-License-Identifier: Apache-2.0
"""Tensors that a storage reads and writes: by DLPack, by the CUDA array interface, and in the order of streams."""

import ctypes
import gc
import threading

import numpy as np
import pytest
from forebay import RefusedInput, Storage, build_info
from forebay._buffers import stream_handle

SIZE = 4 << 20
HOST, CUDA, LOCKED_HOST, ROCM = 1, 2, 3, 10
UNSIGNED, OPAQUE = 1, 3
READ_ONLY = 1
DEADLINE_S = 60

without_gpu = pytest.mark.skipif(bool(build_info()["gpus"]), reason="there is a GPU")


@pytest.fixture
def storage():
    with Storage(f"emulated:size={SIZE}", device="cpu") as opened:
        yield opened


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, DESTRUCTOR)


class Library:
    """A tensor of a library that knows nothing but DLPack, over ``memory``."""

    dtype = "u8"

    def __init__(
        self,
        memory,
        *,
        shape=None,
        strides=None,
        device=HOST,
        code=UNSIGNED,
        bits=8,
        offset=0,
        version=(1, 0),
        read_only=False,
    ):
        self.memory = memory
        self.device = device
        self.released = 0
        self.version = version
        self.options = None
        shape = shape or (len(memory) - offset,)
        self.keep = [(ctypes.c_int64 * len(shape))(*shape)]
        if strides:
            self.keep.append((ctypes.c_int64 * len(strides))(*strides))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) if memory else 0
        tensor = Tensor(address, device, 0, len(shape), code, bits, 1, self.keep[0], None, offset)
        if strides:
            tensor.strides = self.keep[1]
        if version:
            self.whole = Versioned(*version, None, None, READ_ONLY if read_only else 0, tensor)
        else:
            self.whole = Managed(tensor, None, None)
        self.destructor = DESTRUCTOR(self.release)

    def release(self, _capsule):
        self.released += 1

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **options):
        if not self.version and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.options = options
        name = b"dltensor_versioned" if self.version else b"dltensor"
        return new_capsule(ctypes.addressof(self.whole), name, self.destructor)


@pytest.mark.skipif(bool(build_info()["gpus"]), reason="7 is taken for a stream of the GPU")
def test_a_tensor_that_the_extension_refuses_is_released_at_once(storage):
    tensor = Library(bytearray(512))
    gc.disable()
    try:
        with pytest.raises(RefusedInput, match=r"^stream: "):
            storage.pread(tensor, stream=7)
        assert tensor.released == 1
    finally:
        gc.enable()


@pytest.mark.parametrize("version", [None, (1, 0), (1, 3)])
@pytest.mark.parametrize("device", [HOST, LOCKED_HOST])
def test_a_tensor_of_the_host_is_filled_in_place(storage, version, device):
    storage.pwrite(bytes(range(256)), 1000).result()
    memory = bytearray(264)
    tensor = Library(memory, shape=(4, 8, 8), offset=8, version=version, device=device)
    assert storage.pread(tensor, 1000).result() == 256
    assert memory == bytes(8) + bytes(range(256))
    assert "stream" not in tensor.options
    assert storage.pwrite(tensor, 4096).result() == 256
    back = bytearray(256)
    storage.pread(back, 4096).result()
    assert back == bytes(range(256))


def test_arrays_that_share_by_dlpack_alone_are_filled_in_place(storage):
    class Array:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    numbers = np.arange(1000, dtype="f4").reshape(10, 100)
    extent = storage.create_extent("x", 4000)
    storage.write_extent("x", Array(numbers))
    for read in (
        lambda array: storage.read_extent("x", array),
        lambda array: storage.pread(array, extent["first_byte"]).result(),
    ):
        back = np.zeros_like(numbers)
        read(Array(back))
        assert np.array_equal(back, numbers)
    with storage.new_extent("y", 4000) as write:
        write(Array(numbers), 0)
    storage.read_extent("y", Array(back))
    assert np.array_equal(back, numbers)


def test_a_tensor_is_kept_until_its_transfer_has_ended():
    with Storage(f"emulated:size={SIZE},latency_us=200000", device="cpu") as slow:
        tensor = Library(bytearray(512))
        read = slow.pread(tensor)
        gc.collect()
        assert tensor.released == 0 or read.done()
        read.result()
        del read
        gc.collect()
    assert tensor.released == 1


def test_a_tensor_without_elements_moves_nothing(storage):
    assert storage.pread(Library(bytearray(), shape=(0, 3), strides=(7, 7))).result() == 0


def test_an_axis_of_one_element_may_have_any_stride(storage):
    assert storage.pread(Library(bytearray(8), shape=(1, 8), strides=(99, 1))).result() == 8


@pytest.mark.parametrize(
    ("tensor", "remedy"),
    [
        (Library(bytearray(64), shape=(4, 8), strides=(16, 1)), "not contiguous"),
        (Library(bytearray(64), shape=(8, 8), strides=(1, 8)), "not contiguous"),
        (Library(bytearray(64), code=OPAQUE, bits=64, shape=(8,)), "pointers"),
        (Library(bytearray(64), device=ROCM), "DLPack device 10:0"),
        (Library(bytearray(64), version=(2, 0)), "knows DLPack 1"),
    ],
)
def test_a_tensor_that_cannot_be_moved_is_refused_at_the_call(storage, tensor, remedy):
    for move in (storage.pread, storage.pwrite):
        with pytest.raises(RefusedInput) as refused:
            move(tensor)
        assert refused.value.field == "buffer"
        assert remedy in refused.value.remedy


def test_a_read_only_tensor_is_written_but_not_read_into(storage):
    tensor = Library(bytearray(b"x" * 64), read_only=True)
    with pytest.raises(RefusedInput, match=r"buffer: 'Library of u8': is read-only by DLPack"):
        storage.pread(tensor)
    assert storage.pwrite(tensor).result() == 64


def test_what_a_library_says_against_sharing_is_told(storage):
    class Unwilling:
        def __dlpack_device__(self):
            return HOST, 0

        def __dlpack__(self, **_options):
            raise BufferError("it requires gradients; use tensor.detach()")

    class NoCapsule(Unwilling):
        def __dlpack__(self, **_options):
            return "text"

    class NoDevice(Unwilling):
        def __dlpack_device__(self):
            raise RuntimeError("it is on no device")

    for tensor, part in (
        (Unwilling(), "use tensor.detach()"),
        (NoCapsule(), "returns no DLPack capsule"),
        (NoDevice(), "it is on no device"),
    ):
        with pytest.raises(RefusedInput, match=r"^buffer: ") as refused:
            storage.pread(tensor)
        assert part in refused.value.remedy


@without_gpu
def test_memory_of_a_gpu_is_refused_where_there_is_none(storage):
    tensor = Library(bytearray(64), device=CUDA)
    with pytest.raises(RefusedInput, match=r"^buffer: .*there is no GPU, or CUDA is not built in"):
        storage.pread(tensor)
    assert tensor.options["stream"] == -1  # its library makes no stream wait
    assert storage.report()["transfers"]["gpu_staged_bytes"] == 0


class CudaArray:
    def __init__(self, **differing):
        self.__cuda_array_interface__ = {
            "shape": (4, 8),
            "typestr": "<f4",
            "data": (0x1000, False),
            "strides": None,
            "version": 3,
            **differing,
        }


@without_gpu
@pytest.mark.parametrize("strides", [None, (32, 4)])
def test_a_cuda_array_is_refused_where_there_is_no_gpu(storage, strides):
    with pytest.raises(RefusedInput, match=r"^buffer: .*there is no GPU"):
        storage.pwrite(CudaArray(strides=strides))


@pytest.mark.parametrize(
    ("differing", "remedy"),
    [
        ({"strides": (64, 4)}, "not contiguous"),
        ({"strides": (4, 16)}, "not contiguous"),
        ({"typestr": "|O8"}, "pointers"),
        ({"data": (0x1000, True)}, "is read-only"),
        ({"data": None}, "incomplete"),
        ({"typestr": 3}, "incomplete"),
    ],
)
def test_a_cuda_array_that_cannot_be_filled_is_refused_at_the_call(storage, differing, remedy):
    with pytest.raises(RefusedInput) as refused:
        storage.pread(CudaArray(**differing))
    assert refused.value.field == "buffer"
    assert remedy in refused.value.remedy


# ---- streams


class Torch:
    cuda_stream = 0x7000


class Cupy:
    ptr = 0x7001


class Protocol:
    def __cuda_stream__(self):
        return 0, 0x7002


@pytest.mark.parametrize(
    ("stream", "handle"),
    [(None, None), (0, 0), (2, 2), (np.int64(7), 7), (Torch(), 0x7000), (Cupy(), 0x7001), (Protocol(), 0x7002)],
)
def test_a_stream_is_a_number_or_has_one(stream, handle):
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("stream", ["0", -1, 2**64, True, 1.0, object(), [1]])
def test_what_is_no_stream_is_refused_at_the_call(storage, stream):
    with pytest.raises(RefusedInput, match="pass a CUDA stream") as refused:
        storage.pread(bytearray(8), stream=stream)
    assert refused.value.field == "stream"


@pytest.mark.parametrize("stream", [-1, "1", True])
def test_what_a_cuda_array_calls_its_stream_must_be_one(storage, stream):
    with pytest.raises(RefusedInput, match="pass a CUDA stream") as refused:
        storage.pread(CudaArray(stream=stream))
    assert refused.value.field == "stream"


@without_gpu
def test_a_stream_is_refused_where_there_is_no_gpu(storage):
    with pytest.raises(RefusedInput, match=r"^stream: '7': there is no GPU"):
        storage.pwrite(bytearray(8), stream=7)


# ---- depth


def test_forty_reads_are_on_the_drive_at_the_same_time():
    """A busy machine may stop this test for longer than a read takes, so it tries again."""
    with Storage(f"emulated:size={SIZE},latency_us=500000", device="cpu") as slow:

        def statistics():
            return slow.report()["drives"][0]["statistics"]

        for _ in range(20):
            while (seen := statistics())["completions_posted"] != seen["commands_fetched"]:
                pass  # the drive counts a completion after it has posted it
            slow.reset_statistics()
            reads = [slow.pread(bytearray(4096), 4096 * i) for i in range(40)]
            fetched = 0
            while fetched < len(reads):
                seen = statistics()
                fetched = seen["commands_fetched"]
            assert [read.result() for read in reads] == [4096] * 40
            if seen["completions_posted"] == 0:
                return
    pytest.fail("in each try a read was over before the last had begun")


def test_report_counts_the_bytes_that_were_moved(storage):
    storage.pwrite(bytes(1000), 10).result()
    storage.pread(bytearray(24), 10).result()
    assert storage.report()["transfers"] == {
        "host_bytes": 1024,
        "gpu_direct_bytes": 0,
        "gpu_copied_bytes": 0,
        "gpu_staged_bytes": 0,
        "registered_allocations": 0,
    }
    storage.reset_statistics()
    assert storage.report()["transfers"]["host_bytes"] == 0


def test_a_callback_of_a_future_may_ask_another_and_may_fail(storage, monkeypatch):
    told = threading.Event()
    answers = []
    ends = []
    monkeypatch.setattr(threading, "excepthook", lambda seen: ends.append(seen.exc_type))

    def ask(_future):
        answers.append(storage.pread(bytearray(16)).result())
        told.set()
        raise SystemExit

    storage.pread(bytearray(8)).add_done_callback(ask)
    assert told.wait(DEADLINE_S)
    assert storage.pread(bytearray(32)).result() == 32, "the thread that tells futures goes on"
    assert (answers, ends) == ([16], [SystemExit])


# ---- the options of a storage


def test_options_are_keywords():
    drives = ("emulated:size=4M", "emulated:size=4M,seed=1")
    with Storage(*drives, device="cpu", queues_per_drive=2, queue_depth=64, stripe_bytes=131_072) as opened:
        report = opened.report()
        assert (report["queues_per_drive"], report["queue_depth"], report["stripe_bytes"]) == (2, 64, 131_072)
    with Storage(*drives, device="cpu", stripe_bytes=0) as opened:
        assert opened.report()["stripe_bytes"] == 0
    with Storage(
        drives[0], device="cpu", cache_bytes=1 << 20, cache_policy="s3_fifo", cache_overflow_frames=16,
        cache_statistics=True, requests=128, prp_list_pages=2, timeout_s=2, flush_timeout_s=np.float32(2.5),
    ) as opened:  # fmt: skip
        cache = opened.report()["cache"]
        assert (cache["policy"], cache["overflow_frames"], cache["counters"]["hits"]) == ("s3_fifo", 16, 0)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("queues_per_drive", {"queues_per_drive": -1}),
        ("queue_depth", {"queue_depth": 1}),
        ("requests", {"requests": 2**28 + 1}),
        ("prp_list_pages", {"prp_list_pages": 0}),
        ("stripe_bytes", {"stripe_bytes": 1000}),
        ("stripe_bytes", {"stripe_bytes": 1.5}),
        ("timeout_s", {"timeout_s": 0}),
        ("timeout_s", {"timeout_s": -1.0}),
        ("timeout_s", {"timeout_s": "10"}),
        ("timeout_s", {"timeout_s": True}),
        ("timeout_s", {"timeout_s": float("nan")}),
        ("flush_timeout_s", {"flush_timeout_s": float("inf")}),
        ("cache_policy", {"cache_policy": "lru", "cache_bytes": 1 << 20}),
        ("cache_policy", {"cache_policy": None}),
        ("cache_bytes", {"cache_statistics": True}),
        ("cache_bytes", {"cache_staging_pages": 16}),
        ("cache_host_bytes", {"cache_host_bytes": 1000, "cache_bytes": 1 << 20}),
        ("cache_overflow_frames", {"cache_overflow_frames": 2**32, "cache_bytes": 1 << 20}),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(field, options):
    with pytest.raises(RefusedInput) as refused:
        Storage("emulated:size=4M", "emulated:size=4M,seed=1", device="cpu", **options)
    assert refused.value.field == field
