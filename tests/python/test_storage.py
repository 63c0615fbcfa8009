# SPDX-License-Identifier: Apache-2.0
"""Storage as Python programs use it: what is refused at the call, Ctrl-C, forks, and what is not silent."""

import contextlib
import ctypes
import pickle
import signal
import sys
import textwrap
import threading
from concurrent.futures import CancelledError, Future

import numpy as np
import pytest
from forebay import OperationFailed, RefusedInput, Storage, create_drive
from forebay._buffers import memory_of
from forebay._native import interruptible
from processes import started

SIZE = 4 << 20
DEADLINE_S = 30


@pytest.fixture
def storage():
    with Storage(f"emulated:size={SIZE}", device="cpu") as opened:
        yield opened


class Record(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p))


POINTERS = {
    "objects": np.empty(3, object),
    "a field of objects": np.empty(3, [("a", "i4"), ("b", object)]),
    "strings of ctypes": (ctypes.c_char_p * 3)(),
    "structures with a string": (Record * 3)(),
    "pointers": (ctypes.POINTER(ctypes.c_int) * 3)(),
}


@pytest.mark.parametrize("name", POINTERS)
@pytest.mark.parametrize("method", ["pread", "pwrite"])
def test_a_buffer_of_pointers_is_refused_at_the_call(storage, name, method):
    with pytest.raises(RefusedInput, match="pointers") as refused:
        getattr(storage, method)(POINTERS[name])
    assert refused.value.field == "buffer"


def test_a_refused_buffer_is_named_by_its_dtype(storage):
    with pytest.raises(RefusedInput, match=r"'ndarray of object'.*astype"):
        storage.pread(np.empty(3, object))


@pytest.mark.parametrize(
    "buffer",
    [np.zeros(3, [("Offset", "i4"), ("OP", "c16")]), np.zeros(3, "c16"), np.zeros((2, 3)), bytearray(5), np.zeros(0)],
)
def test_a_buffer_of_numbers_is_taken(storage, buffer):
    assert storage.pwrite(buffer, 512).result() == memoryview(buffer).nbytes
    assert storage.pread(buffer, 512).result() == memoryview(buffer).nbytes


@pytest.mark.parametrize(
    ("buffer", "part"),
    [
        (b"bytes", "read-only"),
        (np.zeros(8)[::2], "not contiguous"),
        (np.zeros((3, 4)).T, "not contiguous"),
        (
            np.zeros(3, "M8[s]"),
            "dates or times, for which Python has no buffer; pass them as integers: array.view('i8')",
        ),
        (np.zeros(3, "m8[s]"), "array.view('i8')"),
        (np.zeros(3, [("when", "M8[s]")]), "array.view('u1')"),
        ([1, 2, 3], "has no buffer in host memory"),
        (None, "has no buffer in host memory"),
        ("text", "has no buffer in host memory"),
    ],
)
def test_a_buffer_that_cannot_be_filled_is_refused_at_the_call(storage, buffer, part):
    for read in (storage.pread, lambda buffer: storage.read_extent("x", buffer)):
        with pytest.raises(RefusedInput) as refused:
            read(buffer)
        assert refused.value.field == "buffer"
        assert part in refused.value.remedy
    if part != "read-only":
        with pytest.raises(RefusedInput):
            storage.pwrite(buffer)


@pytest.mark.parametrize("offset", [-1, 1.0, 0.5, True, None, "0", 2**63, 2**64, SIZE, SIZE - 511])
@pytest.mark.parametrize("method", ["pread", "pwrite"])
def test_an_offset_that_cannot_be_is_refused_at_the_call(storage, method, offset):
    with pytest.raises(RefusedInput) as refused:
        getattr(storage, method)(bytearray(512), offset)
    assert (refused.value.field, refused.value.value) == ("file_offset", str(offset))


def test_an_offset_of_an_extent_is_refused_at_the_call(storage):
    storage.create_extent("x", 1 << 20)
    for offset in (-1, 1.5, True, 1 << 20, 2**64):
        with pytest.raises(RefusedInput, match=r"^offset: "):
            storage.read_extent("x", bytearray(512), offset)
    with pytest.raises(RefusedInput):
        storage.create_extent("y", 1.5)


def test_offsets_of_numpy_are_numbers(storage):
    assert storage.pread(bytearray(512), np.int64(512)).result() == 512


def test_a_list_of_drives_is_refused_with_the_way_to_write_it():
    with pytest.raises(RefusedInput, match=r"write Storage\(\*uris\)"):
        Storage(["emulated:size=4M"])


@pytest.mark.parametrize("uri", ["emulated:size=4M\0", "emulated:backing=file,path=a\0b", "emulated:size=\udcff"])
def test_a_drive_that_is_no_text_is_refused(uri):
    with pytest.raises(RefusedInput):
        Storage(uri)


def test_the_refusal_of_drives_names_the_argument():
    for uris in ((), ("emulated:size=4M",) * 65, ("emulated:size=4M", "emulated:size=4M,lba_bytes=4096")):
        with pytest.raises(RefusedInput) as refused:
            Storage(*uris, device="cpu")
        assert refused.value.field == "uris"


@pytest.mark.parametrize("size", [0, SIZE, -1])
def test_the_refusal_of_an_extents_size_names_the_argument(storage, size):
    for make in (storage.create_extent, lambda *extent: storage.new_extent(*extent).__enter__()):
        with pytest.raises(RefusedInput) as refused:
            make("x", size)
        assert refused.value.field == "size_bytes"


@pytest.mark.parametrize("depth", [-1, 1.5, 2**32, True])
def test_a_queue_depth_that_cannot_be_is_refused(depth):
    with pytest.raises(RefusedInput, match="queue_depth"):
        Storage("emulated:size=4M", queue_depth=depth)


USES = {
    "pread": lambda s: s.pread(bytearray(512)),
    "pwrite": lambda s: s.pwrite(bytearray(512)),
    "read_extent": lambda s: s.read_extent("x", bytearray(512)),
    "write_extent": lambda s: s.write_extent("x", bytearray(512)),
    "flush": lambda s: s.flush(),
    "extents": lambda s: s.extents(),
    "create_extent": lambda s: s.create_extent("x", 512),
    "new_extent": lambda s: s.new_extent("x", 512).__enter__(),
    "remove_extent": lambda s: s.remove_extent("x"),
    "report": lambda s: s.report(),
    "reset_statistics": lambda s: s.reset_statistics(),
    "size_bytes": lambda s: s.size_bytes,
    "block_bytes": lambda s: s.block_bytes,
    "raw_writable": lambda s: s.raw_writable,
}


def test_every_use_is_in_the_table():
    public = {name for name in dir(Storage) if not name.startswith("_")} - {"close"}
    assert public == set(USES)


@pytest.mark.parametrize("use", USES)
def test_a_closed_storage_says_so_alike(use):
    storage = Storage("emulated:size=4M", device="cpu")
    storage.close()
    with pytest.raises(OperationFailed) as failed:
        USES[use](storage)
    assert str(failed.value) == "the storage is closed: open it again"
    storage.close()  # again, which is nothing


def test_repr_says_what_is_open_and_what_is_closed():
    storage = Storage("emulated:size=4M", "emulated:size=8M", device="cpu")
    drives = "<forebay.Storage on 'emulated:size=4M', 'emulated:size=8M': "
    assert repr(storage) == drives + "8388608 bytes in blocks of 512, device cpu>"
    storage.close()
    assert repr(storage) == drives + "closed>"


def test_repr_of_a_storage_that_did_not_open_says_so():
    storage = Storage.__new__(Storage)
    with pytest.raises(RefusedInput):
        storage.__init__("emulated:size=1")
    assert repr(storage) == "<forebay.Storage on 'emulated:size=1': not open>"


def test_create_drive_makes_the_file_that_a_storage_opens(tmp_path):
    uri = f"file:{tmp_path / 'a.img'},size=4M"
    create_drive(uri)
    with Storage(uri, device="cpu") as storage:
        assert storage.size_bytes == SIZE
        back = bytearray(b"x" * SIZE)
        storage.pread(back).result()
        assert not any(back)
    with pytest.raises(RefusedInput, match="exists"):
        create_drive(uri)
    with pytest.raises(RefusedInput, match=r"^uri: "):
        create_drive(tmp_path / "b.img")


# ---- errors


@pytest.mark.parametrize("error", [RefusedInput("field", "v" * 300, "remedy"), OperationFailed("it failed")])
def test_an_error_is_the_same_in_another_process(error):
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 (it was written here)
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


# ---- writes that fail


@pytest.fixture
def read_only(tmp_path):
    path = tmp_path / "a.img"
    path.write_bytes(bytes(SIZE))
    return f"emulated:backing=file,path={path}"


FAILED = r"a write of 512 bytes at byte 1024 failed, and the program did not ask its future: .*; call result\(\)"


def test_a_write_that_fails_unseen_is_raised_at_close(read_only):
    storage = Storage(read_only, device="cpu", read_only=True)
    storage.pwrite(bytes(512), 1024)
    with pytest.raises(OperationFailed, match=FAILED) as failed:
        storage.close()
    assert failed.value.__cause__ is not None
    storage.close()  # said once
    with pytest.raises(OperationFailed, match="closed"):
        storage.flush()


def test_several_writes_that_fail_unseen_are_counted(read_only):
    storage = Storage(read_only, read_only=True)
    for _ in range(3):
        storage.pwrite(bytes(512), 1024)
    with pytest.raises(OperationFailed, match="and 2 more"), storage:
        pass


def test_a_write_that_fails_unseen_is_a_note_of_what_ends_the_block(read_only):
    storage = Storage(read_only, read_only=True)
    storage.pwrite(bytes(512), 1024)
    with pytest.raises(KeyError) as error, storage:
        raise KeyError("own")
    (note,) = error.value.__notes__
    assert "did not ask its future" in note


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_a_write_whose_failure_was_seen_is_not_raised_again(read_only, ask):
    with Storage(read_only, read_only=True) as storage:
        write = storage.pwrite(bytes(512), 1024)
        with contextlib.suppress(RefusedInput, OperationFailed):
            getattr(write, ask)()


def run_python(script, *arguments, interrupt=False, status=None):
    """Runs a script; with `interrupt` sends it Ctrl-C at its first line. Returns what it said."""
    with started([sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]) as run:
        if interrupt:
            assert run.stdout.readline() == "ready\n", run.stderr.read()
            run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=DEADLINE_S)
    if status is not None:
        assert run.returncode == status, err
    return out, err


def test_a_write_that_fails_unseen_is_said_at_the_end_of_the_program(read_only):
    _, err = run_python(
        """
        import sys, forebay
        storage = forebay.Storage(sys.argv[1], read_only=True)
        storage.pwrite(bytes(512), 1024)
        """,
        read_only,
        status=0,
    )
    assert "did not ask its future" in err


def test_a_write_that_fails_unseen_is_said_when_nothing_refers_to_the_storage_any_more(read_only):
    _, err = run_python(
        """
        import concurrent.futures, gc, sys, forebay
        storage = forebay.Storage(sys.argv[1], read_only=True)
        write = storage.pwrite(bytes(512), 1024)
        concurrent.futures.wait([write])
        del storage, write
        gc.collect()
        """,
        read_only,
        status=0,
    )
    assert err.count("did not ask its future") == 1


def test_a_write_that_was_begun_is_done_though_the_program_ends(tmp_path):
    path = tmp_path / "a.img"
    path.write_bytes(bytes(64 << 20))
    run_python(
        """
        import sys, forebay
        storage = forebay.Storage(f"emulated:backing=file,path={sys.argv[1]},bandwidth=200M")
        storage.pwrite(b"x" * (64 << 20))
        """,
        path,
        status=0,
    )
    assert path.read_bytes() == b"x" * (64 << 20)


# ---- transfers in pieces


def test_a_transfer_of_many_pieces_moves_every_byte():
    with Storage("emulated:size=64M", device="cpu") as storage:
        data = np.random.default_rng(3).integers(0, 256, 40_000_001, dtype=np.uint8)
        writes = [storage.pwrite(data[at : at + 10_000_000], 777 + at) for at in range(0, len(data), 10_000_000)]
        assert sum(write.result() for write in writes) == len(data)
        back = np.zeros_like(data)
        assert storage.pread(back, 777).result() == len(data)
        assert np.array_equal(back, data)


def test_an_extent_is_moved_in_pieces_and_none_of_them_goes_beyond_it():
    with Storage("emulated:size=64M", device="cpu") as storage:
        storage.create_extent("a", 20_000_000)
        storage.create_extent("b", 20_000_000)
        data = np.random.default_rng(4).integers(0, 256, 20_000_000, dtype=np.uint8)
        storage.write_extent("a", data)
        with pytest.raises(RefusedInput, match="beyond"):
            storage.write_extent("a", data, 1)
        back = np.zeros_like(data)
        storage.read_extent("a", back)
        assert np.array_equal(back, data)
        storage.read_extent("b", back)
        assert not back.any()


# ---- Ctrl-C

INTERRUPTED = {
    "a read in a with block": """
        with forebay.Storage(uri) as storage:
            read = storage.pread(bytearray(1 << 30))
            print("ready", flush=True)
            read.result()
        """,
    "a read without one": """
        storage = forebay.Storage(uri)
        read = storage.pread(bytearray(1 << 30))
        print("ready", flush=True)
        read.result()
        """,
    "several writes": """
        with forebay.Storage(uri) as storage:
            writes = [storage.pwrite(bytes(100 << 20), i * (100 << 20)) for i in range(10)]
            print("ready", flush=True)
            writes[-1].result()
        """,
    "a write that close waits for": """
        storage = forebay.Storage(uri)
        storage.pwrite(bytes(1 << 30))
        print("ready", flush=True)
        storage.close()
        """,
    "a finally that closes": """
        storage = forebay.Storage(uri)
        try:
            write = storage.pwrite(bytes(1 << 30))
            print("ready", flush=True)
            write.result()
        finally:
            storage.close()
        """,
    "an extent": """
        with forebay.Storage(uri) as storage:
            storage.create_extent("x", 1000 << 20)
            print("ready", flush=True)
            storage.write_extent("x", bytes(1000 << 20))
        """,
    "a benchmark": """
        from forebay import bench
        with forebay.Storage(uri) as storage:
            print("ready", flush=True)
            bench.run(storage, bench.Job("read", bs=4096, runtime=600))
        """,
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupt_ends_a_program_and_frees_its_drive(name, tmp_path):
    """Each transfer takes 200 s, so that a process which ends within the deadline did not wait for it."""
    path = tmp_path / "a.img"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    uri = f"emulated:backing=file,path={path},bandwidth=5M"
    script = "import sys, time, forebay\nuri = sys.argv[1]\n" + textwrap.dedent(INTERRUPTED[name])
    with started([sys.executable, "-c", script, uri]) as run:
        assert run.stdout.readline() == "ready\n"
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == -signal.SIGINT, err
    assert err.rstrip().endswith("KeyboardInterrupt"), err
    assert "Exception ignored" not in err
    Storage(uri, device="cpu").close()


def test_an_interrupt_ends_a_slow_open():
    _, err = run_python(
        """
        import forebay, os, threading, time
        def tell():
            while not any(thread.name == "forebay-call" for thread in threading.enumerate()):
                time.sleep(0.01)
            print("ready", flush=True)
        threading.Thread(target=tell, daemon=True).start()
        began = time.monotonic()
        try:
            forebay.Storage("emulated:profile=970-pro,size=1T,precondition=random")
        except KeyboardInterrupt:
            while len(os.listdir("/proc/self/task")) > 1:  # nobody goes on with it
                time.sleep(0.01)
            raise SystemExit(3 if time.monotonic() - began < 10 else 4)
        """,
        interrupt=True,
        status=3,
    )
    assert err == ""


def test_an_interrupt_while_the_thread_of_a_call_starts_ends_the_call(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    told = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        interruptible(told.wait, 60, on_interrupt=told.set)
    assert told.is_set()


class AtTheGate:
    """The extension's storage, of which a call waits for other streams until transfers are cancelled."""

    def __init__(self, native):
        self._native = native
        self.waits, self.opens = threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._native, name)

    def start_transfer(self, ended, number, writes, address, size_bytes, on_gpu, offset, stream, *more):
        if stream is None:
            return self._native.start_transfer(ended, number, writes, address, size_bytes, on_gpu, offset, None, *more)
        self.waits.set()
        self.opens.wait()
        raise CancelledError

    def cancel_transfers(self):
        self.opens.set()
        self._native.cancel_transfers()


def test_a_call_that_waits_for_other_streams_holds_up_no_other_and_can_be_cancelled(storage):
    transfers = storage._transfers
    transfers._native = gate = AtTheGate(transfers._native)
    outcome = Future()

    def call():
        try:
            outcome.set_result(transfers.start(memory_of(bytearray(512), writable=True), 0, writes=False, stream=7))
        except CancelledError as error:
            outcome.set_exception(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    assert gate.waits.wait(DEADLINE_S)
    other = threading.Thread(target=lambda: storage.pread(bytearray(512)).result(), daemon=True)
    other.start()
    other.join(DEADLINE_S)
    assert not other.is_alive(), "another transfer waits for the call"
    ending = threading.Thread(target=lambda: transfers.end(cancel=True), daemon=True)
    ending.start()
    with pytest.raises(CancelledError):
        outcome.result(DEADLINE_S)
    ending.join(DEADLINE_S)
    assert not ending.is_alive(), "the end waits for a transfer that was not started"


def test_a_progress_report_may_be_under_way_when_the_program_ends():
    run_python(
        """
        import os, time, forebay
        from forebay import bench
        class Slow:  # goes while the interpreter ends, and lets other threads have its lock
            def __del__(self, sleep=time.sleep):
                sleep(2)
        slow = Slow()
        def tell(phase, share):
            os.write(1, b"ready\\n")  # print may still hold the lock of its buffer when Ctrl-C comes
            while True:
                time.sleep(0.01)
        storage = forebay.Storage("emulated:size=8M", device="cpu")
        bench.run(storage, bench.Job("read", bs=4096, runtime=600), tell)
        """,
        interrupt=True,
        status=-signal.SIGINT,
    )


def test_a_transfer_may_end_while_the_program_ends():
    run_python(
        """
        import threading, time, forebay
        class Slow:  # goes while the interpreter ends, and lets other threads have its lock
            def __del__(self, sleep=time.sleep):
                sleep(3)
        slow = Slow()
        storage = forebay.Storage("emulated:size=8M,bandwidth=1M", device="cpu")
        data = bytearray(1 << 20)  # a second
        from forebay._native import core
        ended = core().EndedTransfers()
        address = core().address_of(data)
        storage._native.start_transfer(ended, 1, False, address, len(data), False, 0, None, None, None)
        threading.Thread(target=ended.wait, daemon=True).start()
        time.sleep(0.2)
        """,
        status=0,
    )


# ---- forks


FORK = """
    import gc, os, sys, forebay
    storage = forebay.Storage("emulated:size=64M,bandwidth=50M", device="cpu")
    data = bytes(range(256)) * 2
    storage.pwrite(data, 512).result()
    pending = storage.pread(bytearray(60 << 20)) if {pending} else None
    child = os.fork()
    if child == 0:
        {child}
    _, status = os.waitpid(child, 0)
    back = bytearray(512)
    storage.pread(back, 512).result()
    assert back == data
    storage.close()
    print(os.waitstatus_to_exitcode(status))
    """
CHILDREN = {
    "uses it": """
        for use in (lambda: storage.pread(bytearray(512)), lambda: storage.pwrite(data), storage.flush, storage.report,
                    lambda: storage.size_bytes, storage.extents):
            try:
                use()
            except forebay.OperationFailed as error:
                assert "worker_init_fn" in str(error) and "spawn" in str(error), error
            else:
                raise AssertionError("no refusal")
        os._exit(0)""",
    "closes it": "storage.close(); sys.exit(0)",
    "describes it": "assert 'opened by process' in repr(storage); sys.exit(0)",
    "ends a with block": """
        with storage:
            pass
        sys.exit(0)""",
    "forgets it": "del storage, pending; gc.collect(); sys.exit(0)",
    "ends": "sys.exit(0)",
    "opens its own": """
        with forebay.Storage("emulated:size=4M", device="cpu") as own:
            own.pwrite(bytes(512)).result()
            own.flush()
        sys.exit(0)""",
}


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("child", CHILDREN)
def test_a_forked_child_is_refused_and_does_not_hang(child, pending):
    lines = textwrap.indent(textwrap.dedent(CHILDREN[child]).strip(), " " * 8).strip()
    out, err = run_python(FORK.format(child=lines, pending=pending), status=0)
    assert (out, err) == ("0\n", "")


def test_a_future_of_the_parent_is_refused_in_a_child():
    out, err = run_python(
        """
        import os, forebay
        with forebay.Storage("emulated:size=64M,bandwidth=50M", device="cpu") as storage:
            read = storage.pread(bytearray(60 << 20))
            child = os.fork()
            if child == 0:
                try:
                    read.result()
                except forebay.OperationFailed:
                    os._exit(0)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        status=0,
    )
    assert (out, err) == ("0\n", "")


def test_processes_of_multiprocessing_that_fork_are_refused():
    out, err = run_python(
        """
        import multiprocessing, forebay
        storage = forebay.Storage("emulated:size=4M", device="cpu")
        def use(at):
            try:
                return storage.pread(bytearray(512), at).result()
            except forebay.OperationFailed as error:
                return str(error)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            answers = pool.map(use, [0, 512])
        storage.close()
        print(all("fork" in answer for answer in answers))
        """,
        status=0,
    )
    assert (out, err) == ("True\n", "")


def test_a_transfer_for_which_no_thread_starts_is_told_and_close_does_not_wait_for_it(monkeypatch):
    def no_thread(_self):
        raise RuntimeError("can't start new thread")

    opened = Storage("emulated:size=1M")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OperationFailed, match=r"no thread can be started.*ulimit -u"):
            opened.pwrite(b"abc")
    assert opened.pwrite(b"abc").result() == 3, "the next one finds a thread"
    opened.close()


def test_one_thread_is_enough_where_no_more_start(monkeypatch):
    def no_thread(_self):
        raise RuntimeError("can't start new thread")

    with Storage("emulated:size=1M") as opened:
        assert opened.pwrite(b"abc").result() == 3
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            assert opened.pwrite(b"def").result() == 3


def test_ctrl_c_while_a_thread_starts_leaves_a_storage_that_closes(monkeypatch):
    start = threading.Thread.start

    def interrupted(self):
        start(self)
        raise KeyboardInterrupt

    opened = Storage("emulated:size=1M")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.pwrite(b"abc")
    opened.close()


def test_a_callback_of_a_future_may_close_the_storage():
    opened = Storage("emulated:size=1M,latency_us=100000")
    closed = threading.Event()
    failures = []

    def close(_future):
        try:
            opened.close()
        except BaseException as error:
            failures.append(error)
        closed.set()

    opened.pread(bytearray(8)).add_done_callback(close)
    assert closed.wait(60)
    assert failures == []


def test_a_refusal_is_one_line():
    assert str(RefusedInput("name", "a\nb\t\x1b[1m", "give another")) == r"name: 'a\nb\t\x1b[1m': give another"


def test_a_cache_for_kernels_is_in_the_report():
    with Storage("emulated:size=4M", device="cpu") as storage:
        assert storage.report()["cache"] is None
    with Storage("emulated:size=4M", device="cpu", cache_bytes=1 << 20) as storage:
        assert storage.report()["cache"]["page_bytes"] == 4096
    with Storage("emulated:size=4M", device="cpu", cache_bytes=1 << 20, page_bytes=512) as storage:
        cache = storage.report()["cache"]
        assert (cache["bytes"], cache["page_bytes"]) == (1 << 20, 512)
        storage.pwrite(bytes(range(256)), 4096).result()
        back = bytearray(256)
        storage.pread(back, 4096).result()
        assert back == bytes(range(256))
    for field, options in (
        ("page_bytes", {"page_bytes": 4096}),
        ("page_bytes", {"page_bytes": 1000, "cache_bytes": 1 << 20}),
        ("page_bytes", {"page_bytes": 2**32, "cache_bytes": 1 << 20}),
        ("cache_bytes", {"cache_bytes": 4096}),
        ("cache_bytes", {"cache_bytes": -1}),
        ("cache_bytes", {"cache_bytes": 0.5}),
    ):
        with pytest.raises(RefusedInput) as refused:
            Storage("emulated:size=4M", device="cpu", **options)
        assert refused.value.field == field
