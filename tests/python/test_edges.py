# SPDX-License-Identifier: Apache-2.0
"""The command contract at its edges: every command with every bad input file and every bad output there is.

A command either does its work, or ends within five seconds with status 1 or 2 and one true line on standard error.
"""

import functools
import gzip
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import diskann_writer
import pytest
import transfer_world
import typer
from forebay.cli import app

PROCESSOR_LIMIT_S = 5  # what is promised
LIMIT_S = 20  # of waiting: the machine may be busy
SERVER = Path(__file__).with_name("command_server.py")
IMAGE = "emulated:backing=file,path=@image"
PROFILE = "emulated:profile=@profile,size=8M"


@dataclass(frozen=True)
class Line:
    """A command line. A word with `@` names a file: an input by its kind, or an output (`@new...`)."""

    words: str
    more: tuple[str, ...] = ()  # further lines of the same command, for other inputs
    endless: bool = False  # where all is well it runs until it is interrupted
    fine: tuple[str, ...] = ()  # bad outputs that are good ones for it

    @property
    def lines(self) -> list[str]:
        return [self.words, *self.more]


FULL = ("full device", "a file of /proc")  # what is found out only when it is written
BENCH = " --size 64K --allow-destroy"
FOLDERS = ("directory", "a directory", "folder that is missing", "no name")  # where a folder can be or is
COMMANDS = {
    "doctor": Line(""),
    **{
        f"bench {kind}": Line(f"--drive {IMAGE}{BENCH}", (f"--drive {PROFILE}{BENCH}",))
        for kind in ("randread", "randwrite", "read", "write", "randrw")
    },
    "drive create": Line("@new.img --size 1M", ("@new.img --size 1M --profile @profile", "@image --size 16M --resize")),
    "drive info": Line(IMAGE, (PROFILE,)),
    "drive extents": Line("@data"),
    "drive attach": Line("pci:ffff:ff:1f.7"),  # where no machine has a drive
    "drive detach": Line("pci:ffff:ff:1f.7"),
    "drive ls": Line(IMAGE, (PROFILE,)),
    "drive import": Line(f"{IMAGE} other @data", (f"{PROFILE} other @data",)),
    "drive export": Line(f"{IMAGE} data @new.bin"),
    "drive rm": Line(f"{IMAGE} data"),
    "drive calibrate": Line("@fio --name fitted --output @new.toml"),
    "drive serve": Line(f"{IMAGE},residency=served --socket @new.sock", endless=True, fine=("socket", *FULL)),
    "drive export-nbd": Line(
        f"{IMAGE} --allow-destroy --socket @new.sock",
        (f"{PROFILE} --socket @new.sock",),
        endless=True,
        fine=FULL,
    ),
    "graph convert": Line("@sg @new.sg", ("@el @new.el",)),
    "graph info": Line("@sg", ("@wsg", "@el", "@gr", "@mtx")),
    "graph model": Line("-f @sg", ("-f @el --cache-bytes 64K",)),
    "graph bfs": Line(
        "-n 1 -f @sg",
        (
            f"-n 1 -f @el --drive {IMAGE}",
            f"-n 1 -f @el --drive {PROFILE}",
            "-n 1 -f @sg --memory host --plot @new.png",
        ),
    ),
    "graph sssp": Line("-n 1 -f @wsg", ("-n 1 -f @gr --memory host",)),
    "graph pr": Line("-n 1 -f @sg --memory host"),
    "graph cc": Line("-n 1 -f @el --memory host"),  # of a matrix it reads no values
    "graph tc": Line("-n 1 -s -f @sg --memory host"),
    "graph spmv": Line(f"-n 1 -f @mtx --drive {IMAGE}"),
    "search build": Line(
        f"@u8bin --drive {IMAGE}",
        (f"@fbin --drive {IMAGE}", f"synthetic:10x4 --drive {PROFILE} --checkpoints @new.kept"),
        fine=FOLDERS,
    ),
    "search import": Line(f"@diskann --dtype uint8 --drive {IMAGE}", (f"@diskann --dtype uint8 --drive {PROFILE}",)),
    "search query": Line(
        f"@u8bin --vectors @u8bin -k 1 --drive {IMAGE}",
        (
            "@fbin --vectors @fbin --base @fbin -k 1",
            "@u8bin --vectors @u8bin -k 1 --truth @ibin --filter @ibin --output @new.ibin",
        ),
    ),
    "search info": Line(f"--drive {IMAGE}", (f"--drive {PROFILE}",)),
    "transfer list": Line(""),
    "transfer report": Line("@transfer --out @new.report", fine=FOLDERS),
    "transfer run": Line("--workload saxpy --mode plain --device cpu"),
    "transfer pipeline": Line("--workload saxpy"),  # which needs a GPU
    "transfer sweep": Line("--workload saxpy --mode plain --device cpu --values 8"),
    "transfer advise": Line("--workload saxpy --results @results", ("--profile @program --results @results",)),
    "demo": Line(
        f"--wordnet @wordnet --plot @new.png --drive {IMAGE}", ("--wordnet @noun",), fine=("folder that is missing",)
    ),
    "replay": Line(f"@trace --drive {IMAGE}", (f"@gz --drive {PROFILE}",)),
    "study": Line("@study", ("--trace @trace --drive emulated:size=1M --device cpu",)),
    # A daemon of its own runs first, and says its own line: test_serve.py.
    "run": Line("-- program"),
}


def discovered(group, prefix=()):
    """Every command of the program, with what typer knows of it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from discovered(command, (*prefix, name))
        else:
            yield " ".join((*prefix, name)), command


DISCOVERED = dict(discovered(typer.main.get_command(app)))


def test_every_command_is_in_the_table():
    assert sorted(COMMANDS) == sorted(DISCOVERED), "say in COMMANDS which files the command reads and writes"


def has_json(command):
    return any("--json" in parameter.opts for parameter in DISCOVERED[command].params)


# ---- what the files are


SUFFIX = {kind: f".{kind}" for kind in ("sg", "wsg", "el", "gr", "mtx", "fbin", "u8bin", "ibin")}
SUFFIX |= {
    "transfer": ".json",
    "study": ".toml",
    "fio": ".json",
    "profile": ".toml",
    "program": ".toml",
    "results": ".json",
    "image": ".img",
    "gz": ".gz",
    "trace": ".csv",
}
LARGE = {
    "fio": 16 << 20,
    "results": 16 << 20,
    "profile": 1 << 20,
    "program": 1 << 20,
}  # bytes of files that are large for their kind
DISKANN_FILES = ("_disk.index", "_pq_pivots.bin", "_pq_compressed.bin", "_metadata.bin")
# Kinds of which any bytes are good data.
ANY_BYTES = ("data", "image")


def fio_job(name, bs, depth, iops, latency):
    return {
        "jobname": name,
        "groupid": 0,
        "error": 0,
        "job options": {"rw": "randread", "bs": bs, "iodepth": str(depth)},
        "read": {"iops": iops, "lat_ns": {"mean": latency}, "clat_ns": {"mean": latency}},
        "write": {"iops": 0},
    }


def good_sg(path):
    path.write_bytes(struct.pack("<?qq", False, 2, 2) + struct.pack("<3q2i", 0, 1, 2, 1, 0))


def good_wsg(path):
    path.write_bytes(struct.pack("<?qq", False, 2, 2) + struct.pack("<3q4i", 0, 1, 2, 1, 7, 0, 7))


def good_fio(path):
    jobs = [fio_job("lone", "4k", 1, 10_000, 100_000), fio_job("small", "4k", 64, 200_000, 320_000)]
    jobs.append(fio_job("large", "128k", 64, 20_000, 3_200_000))
    path.write_text(json.dumps({"jobs": [{**job, "groupid": at} for at, job in enumerate(jobs)]}))


def good_transfer(path):
    rows = [transfer_world.World().row("saxpy", "standard", "small")]
    path.write_text(json.dumps(transfer_world.run_document("small", rows)))


def good_wordnet(path):
    path.mkdir()
    synset = "{} 03 {} 01 {} 0 {} | a gloss\n"
    nouns = synset.format("00001740", "n", "entity", "001 ~ 00001930 n 0000")
    nouns += synset.format("00001930", "n", "thing", "001 @ 00001740 n 0000")
    (path / "data.noun").write_text(nouns)
    for name in ("data.verb", "data.adj", "data.adv"):
        (path / name).write_text("  1 a licence\n")


def good_diskann(prefix):
    diskann_writer.write_sample(prefix, diskann_writer.sample(20, 4))


@functools.cache
def image_bytes():
    """A drive with the extent `data`."""
    with tempfile.TemporaryDirectory() as folder:
        image, data = Path(folder, "good.img"), Path(folder, "good.bin")
        image.write_bytes(bytes(8 << 20))
        data.write_bytes(b"data" * 1024)
        uri = f"emulated:backing=file,path={image}"
        command = [sys.executable, "-m", "forebay", "drive", "import", uri, "data", str(data)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return image.read_bytes()


def good_image(path):
    with path.open("wb") as file:
        file.write(image_bytes()[: 2 << 20])  # the rest is zero
        file.truncate(8 << 20)


PROFILE_TEXT = (Path(__file__).parents[2] / "profiles" / "d7-ps1010.toml").read_text()
STUDY_TEXT = """\
command = ["bash", "-c", 'echo "{\\"seconds\\": 1, \\"fidelity\\": \\"ok\\"}"', "{drive}"]
[grid]
iops = ["1k", "2k"]
"""
PROGRAM_TEXT = """\
bytes_in = 1e9
bytes_out = 1e9
scratch_bytes = 0
operations = 1e9
shared_accesses = 1e9
reuse = 1
allocations = 2
"""
TRANSFER_TIMES = {"total": 1.0, "allocation": 0.1, "release": 0.1, "kernels": 0.2}
TRANSFER_RESULT = {
    "workload": "gemm",
    "mode": "standard",
    "size": "small",
    "shape": {},
    "verified": True,
    "cold": TRANSFER_TIMES,
    "warm": [TRANSFER_TIMES],
    "page_locking_seconds": 0.0,
}
TRACE = b"1,host,0,Read,0,4096,1\n2,host,0,Read,4096,4096,1\n"
GOOD_FILES = {
    "sg": good_sg,
    "wsg": good_wsg,
    "el": lambda path: path.write_text("0 1\n1 2\n"),
    "gr": lambda path: path.write_text("c a comment\np sp 2 1\na 1 2 7\n"),
    "mtx": lambda path: path.write_text("%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 2 7\n"),
    "fbin": lambda path: path.write_bytes(struct.pack("<2I8f", 2, 4, *range(8))),
    "u8bin": lambda path: path.write_bytes(struct.pack("<2I8B", 2, 4, *range(8))),
    "ibin": lambda path: path.write_bytes(struct.pack("<2I2i", 2, 1, 0, 1)),
    "fio": good_fio,
    "transfer": good_transfer,
    "profile": lambda path: path.write_text(PROFILE_TEXT),
    "study": lambda path: path.write_text(STUDY_TEXT),
    "program": lambda path: path.write_text(PROGRAM_TEXT),
    "results": lambda path: path.write_text(json.dumps({"options": {}, "results": [TRANSFER_RESULT]})),
    "trace": lambda path: path.write_bytes(TRACE),
    "gz": lambda path: path.write_bytes(gzip.compress(TRACE)),
    "data": lambda path: path.write_bytes(b"data" * 1024),
    "image": good_image,
    "wordnet": good_wordnet,
    "noun": good_wordnet,
    "diskann": good_diskann,
}


def bad_files(folder, suffix, kind):
    """Files that are not what they should be, by what is wrong with them."""
    folder.mkdir(parents=True)
    at = {}

    def put(name, data):
        at[name] = folder / f"{name.replace(' ', '-')}{suffix}"
        if data is not None:
            at[name].write_bytes(data)
        return at[name]

    put("missing", None)
    put("directory", None).mkdir()
    os.mkfifo(put("fifo without a writer", None))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(put("socket", None)))
    loop = put("symlink loop", None)
    loop.symlink_to(loop.name)
    put("dangling symlink", None).symlink_to("nowhere")
    put("endless device", None).symlink_to("/dev/zero")
    put("empty device", None).symlink_to("/dev/null")
    put("terminal", None).symlink_to("/dev/tty")
    put("memory of the process", None).symlink_to("/proc/self/mem")
    at["folder that is a file"] = folder / f"empty{suffix}" / f"file{suffix}"
    at["name too long"] = folder / ("x" * 300 + suffix)
    at["path too long"] = Path("x/" * 2100 + f"x{suffix}")
    at["name that is no UTF-8"] = Path(os.fsdecode(os.fsencode(folder) + b"/\xff" + suffix.encode()))
    at["no name"] = Path()
    put("empty", b"")
    if kind not in ANY_BYTES:
        random = bytes((i * i * 7 + i * 131) % 251 for i in range(4096 * 16))
        put("binary", random + b"\0\xff\xfe")
        put("zeros", bytes(65537))
        many = LARGE.get(kind, 6 << 20)
        put("one long line", b"7" * many)
        put("brackets", b"[" * many)
        put("quotes", b'"' + b'\\"' * (many // 2))
        put("no UTF-8", b"\xff\xfe 1\n")
        put("gzip of zeros", bomb(bytes(1 << 20)))
        put("gzip of blank lines", bomb(b"\n" * (1 << 20)))
        put("gzip cut", gzip.compress(random)[:-9])
    if kind in ("sg", "wsg"):
        put("cut", struct.pack("<?qq", False, 2, 2) + struct.pack("<3qi", 0, 1, 2, 1))
        put("2^60 edges", struct.pack("<?qq", False, 2**60, 2))
        put("2^62 edges", struct.pack("<?qq", True, 2**62, 2**31))
        put("2^31 nodes", struct.pack("<?qq", False, 0, 2**31))
    if kind == "el":
        put("ids beyond 2^31", b"0 2147483648\n")
        put("a negative id", b"0 1\n0 -1\n")
        put("one id in a line", b"0 1\n2\n")
    if kind in ("gr", "mtx"):
        head = b"p sp %d %d\n" if kind == "gr" else b"%%%%MatrixMarket matrix coordinate real general\n%d 2 %d\n"
        edge = b"a 1 2 7\n" if kind == "gr" else b"1 2 7\n"
        put("cut", head % (2, 2) + edge)
        put("2^50 edges", head % (2, 2**50) + edge)
        put("2^40 nodes", head % (2**40, 1) + edge)
        put("a node too large", head % (2, 1) + edge.replace(b"2", b"3"))
        put("a weight that is no number", head % (2, 1) + edge.replace(b"7", b"seven"))
        put("a weight that is NaN", head % (2, 1) + edge.replace(b"7", b"nan"))
        put("a negative weight", head % (2, 1) + edge.replace(b"7", b"-7"))
    if kind in ("fbin", "u8bin", "ibin"):
        put("cut", struct.pack("<2I7B", 2, 4, *range(7)))
        put("2^31 vectors", struct.pack("<2I", 2**31, 4))
        put("no components", struct.pack("<2I", 2, 0))
    if kind == "fbin":
        put("NaN", struct.pack("<2I8f", 2, 4, *range(7), float("nan")))
        put("no vectors", struct.pack("<2I", 0, 4))
    if kind == "ibin":
        put("ids beyond the vectors", struct.pack("<2I2i", 2, 1, 0, 2))
        put("negative ids", struct.pack("<2I2i", 2, 1, 0, -1))
    if kind == "noun":  # a file of a folder
        for name, path in at.items():
            if len(str(path)) < 4096:
                inside = folder / f"folder of {name}"
                inside.mkdir()
                (inside / "data.noun").symlink_to(path)
                at[name] = inside
    if kind == "diskann":  # one of the files whose names begin with the prefix
        return {name: path for ending in DISKANN_FILES for name, path in bad_diskann(folder, at, ending).items()}
    return at


def bad_diskann(folder, bad, ending):
    """Prefixes of good files but for one."""
    at = {}
    for name, path in bad.items():
        if len(str(path)) >= 4096:
            at[name] = path
            continue
        prefix = folder / f"index {ending} of {name}"
        good_diskann(prefix)
        file = prefix.with_name(prefix.name + ending)
        file.unlink()
        file.symlink_to(path)
        at[f"{name} as {ending}"] = prefix
    return at


def bomb(piece, times=4096):
    """`times` copies of `piece`, gzipped a thousandfold: one member for each 256 of them."""
    member = gzip.compress(piece * 256, 9)
    return member * (times // 256)


def bad_outputs(folder, suffix):
    """Places where nothing can be written, by what is wrong with them."""
    folder.mkdir(parents=True)
    loop = folder / f"loop{suffix}"
    loop.symlink_to(loop.name)
    os.mkfifo(folder / f"fifo{suffix}")
    (folder / f"there{suffix}").mkdir()
    (folder / "file").write_text("")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / f"socket{suffix}"))
    (folder / f"nowhere{suffix}").symlink_to("no/such/place")
    (folder / f"full{suffix}").symlink_to("/dev/full")
    return {
        "symlink loop": loop,
        "fifo without a reader": folder / f"fifo{suffix}",
        "directory": folder / f"there{suffix}",
        "socket": folder / f"socket{suffix}",
        "symlink to nowhere": folder / f"nowhere{suffix}",
        "full device": folder / f"full{suffix}",
        "folder that is a file": folder / "file" / f"x{suffix}",
        "folder that is missing": folder / "missing" / f"x{suffix}",
        "under /proc": Path(f"/proc/x{suffix}"),
        "under /proc/self/fd": Path(f"/proc/self/fd/x{suffix}"),
        "under /sys": Path(f"/sys/kernel/x{suffix}"),
        "a file of /proc": Path("/proc/version"),
        "a directory": Path("/"),
        "name too long": folder / ("x" * 300 + suffix),
        "path too long": Path("x/" * 2100 + f"x{suffix}"),
        "name that is no UTF-8": Path(os.fsdecode(os.fsencode(folder) + b"/\xff" + suffix.encode())),
        "no name": Path(),
    }


# ---- how they are run


class Server:
    """A process that runs command lines."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, arguments, user=0):
        out, err = self.folder / "stdout", self.folder / "stderr"
        out.write_text("")
        err.write_text("")
        request = {
            "arguments": arguments,
            "cwd": str(self.folder),
            "stdin": "/dev/null",
            "stdout": str(out),
            "stderr": str(err),
            "limit_s": LIMIT_S,
            "processor_limit_s": PROCESSOR_LIMIT_S,
            "user": user,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        status = json.loads(self.process.stdout.readline())
        return status, out.read_text(errors="replace"), err.read_text(errors="replace")


class Servers:
    """Runs command lines, several at a time."""

    def __init__(self, folder, count=2):
        self.idle = queue.SimpleQueue()
        self.pool = ThreadPoolExecutor(count)
        self.all = [Server(folder / str(i)) for i in range(count)]
        for one in self.all:
            self.idle.put(one)

    def run(self, arguments, user=0):
        one = self.idle.get()
        try:
            return one.run(arguments, user)
        finally:
            self.idle.put(one)

    def run_each(self, lines):
        """`lines` has the arguments by a name; gives each name and its outcome."""
        return zip(lines, self.pool.map(self.run, lines.values()), strict=True)

    def close(self):
        self.pool.shutdown()
        for one in self.all:
            one.process.stdin.close()
            one.process.wait()
            one.process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    servers = Servers(tmp_path_factory.mktemp("edges"))
    yield servers
    servers.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = bad_files(folder / kind, SUFFIX.get(kind, ""), kind)
        return made[kind]

    return of


def broken(status, out, err, statuses):
    """What of the contract does not hold; empty where all does."""
    if status is None:
        return f"still running after {LIMIT_S} s, or {PROCESSOR_LIMIT_S} s of processor time"
    if status not in statuses:
        return f"status {status}, not one of {statuses}"
    if any(word in err for word in ("Traceback", "defect", "Error:", "Exception")):
        return "no plain line"
    if status and (err.count("\n") != 1 or not err.startswith("forebay: ") or not err.endswith("\n")):
        return "not one line on standard error"
    if status == 2 and out:
        return "refused, and yet something on standard output"
    return ""


class Sandbox:
    """Good files, made anew for each run, and words made of them."""

    def __init__(self, folder):
        self.root, self.runs = folder, 0

    def words(self, line, slot=None, path=None):
        """The words of a line, where the file `slot` is `path` and all others are good."""
        self.runs += 1
        folder = self.root / str(self.runs)
        folder.mkdir()
        words = []
        for word in line.split():
            before, mark, name = word.partition("@")
            name, comma, after = name.partition(",")
            if mark and name == slot:
                word = f"{before}{path}{comma}{after}"
            elif mark:
                file = folder / f"{name}{SUFFIX.get(name, '')}"
                if name in GOOD_FILES:
                    GOOD_FILES[name](file)
                word = f"{before}{file}{comma}{after}"
            words.append(word)
        return words


@pytest.fixture
def sandbox(tmp_path):
    return Sandbox(tmp_path)


# Without --allow-destroy a benchmark leaves alone a drive that has extents, as this image has.
SLOTS = [
    (command, line, word.partition("@")[2].partition(",")[0])
    for command, table in COMMANDS.items()
    for line in table.lines
    for word in line.split()
    if "@" in word
]


def named(slots):
    return [f"{command}: {slot}" for command, _, slot in slots]


GOOD = [
    (command, line)
    for command, table in COMMANDS.items()
    for line in table.lines
    if not table.endless and "@" in table.words
]


@pytest.mark.parametrize(("command", "line"), GOOD, ids=[f"{command} {line}" for command, line in GOOD])
def test_good_files_are_taken(server, sandbox, command, line):
    status, _, err = server.run([*command.split(), *sandbox.words(line)])
    assert status == 0, err


EMPTY = ("empty",)  # an edge list of no edge
INPUTS = [slot for slot in SLOTS if not slot[2].startswith("new")]


@pytest.mark.parametrize(("command", "line", "slot"), INPUTS, ids=named(INPUTS))
def test_every_bad_input_ends_with_one_true_line(server, sandbox, files, command, line, slot):
    lines = {name: [*command.split(), *sandbox.words(line, slot, path)] for name, path in files(slot).items()}
    wrong = []
    for name, (status, out, err) in server.run_each(lines):
        statuses = (0, 2) if slot == "el" and name in EMPTY else (2,)
        if found := broken(status, out, err, statuses):
            wrong.append(f"{name}: {found}: {err[:300]!r}")
    assert not wrong, "\n".join(["", *wrong])


OUTPUTS = [slot for slot in SLOTS if slot[2].startswith("new")]
OUTPUTS += [
    (command, f"{table.words} --json @new.json", "new.json") for command, table in COMMANDS.items() if has_json(command)
]


@pytest.mark.parametrize(("command", "line", "slot"), OUTPUTS, ids=named(OUTPUTS))
def test_every_bad_output_ends_with_one_true_line(server, sandbox, tmp_path, command, line, slot):
    places = bad_outputs(tmp_path / "bad", Path(slot).suffix)
    lines = {
        name: [*command.split(), *sandbox.words(line, slot, path)]
        for name, path in places.items()
        if name not in COMMANDS[command].fine
    }
    wrong = []
    for name, (status, out, err) in server.run_each(lines):
        if found := broken(status, "" if status == 1 else out, err, (1, 2) if name in FULL else (2,)):
            wrong.append(f"{name}: {found}: {err[:300]!r}")
    assert not wrong, "\n".join(["", *wrong])


# ---- what needs a place of its own


NOBODY = 65534


@pytest.mark.parametrize(
    "words",
    [
        "graph info {}/there.sg",
        "graph convert {}/there.sg x.el",
        "replay {}/there.csv --drive emulated:size=1M",
        "doctor --json {}/new.json",
        "doctor --json {}/there.sg",
        "drive create {}/new.img --size 1M",
        "drive info emulated:backing=file,path={}/there.sg",
        "drive info file:{}/there.sg",
        "drive rm file:{}/there.sg data",
        "demo --wordnet {}",
        "demo --json {}/folder/new.json",
    ],
)
def test_what_the_permissions_forbid_is_refused(server, tmp_path, words):
    folder = tmp_path / "closed"
    folder.mkdir()
    for name in ("there.sg", "there.csv", "data.noun"):
        (folder / name).write_bytes(b"")
        (folder / name).chmod(0)
    folder.chmod(0o500)
    # Root may do what permissions forbid, and so the command runs as another user.
    status, out, err = server.run(words.format(folder).split(), user=0 if os.getuid() else NOBODY)
    assert broken(status, out, err, (2,)) == "", err
    assert "ermission denied" in err


def read_only_folder():
    """A folder of a file system that nobody can write to, or None."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, _, options = line.split()[:4]
        folder = Path(place.encode().decode("unicode_escape"))
        if "ro" in options.split(",") and folder.is_dir():
            return folder
    return None


@pytest.mark.parametrize("words", ["doctor --json {}/x.json", "drive create {}/x.img --size 1M"])
def test_a_read_only_file_system_is_refused(server, words):
    folder = read_only_folder()
    if folder is None:
        pytest.skip("no file system here is mounted read-only")
    status, out, err = server.run(words.format(folder).split())
    assert broken(status, out, err, (2,)) == "", err
