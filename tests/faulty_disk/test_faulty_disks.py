# SPDX-License-Identifier: Apache-2.0
"""Drives on disks that fail, in one guest: bad sectors, a disk that fails for a while or hangs, a full file system.

And drives on disks that do not fail, which the kernel polls: few machines have one.

The device mapper makes the faults. A client (client.cpp) takes steps: requests, and commands that change the disk
between them. It writes down how each request ended.
"""

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import guest
import pytest

IOS = ("uring", "mmap")
PAGE = 4096
SECTOR = 512
SECTORS = 16384  # of a drive
PAGES = range(24)  # of a drive, good ones
FILE_PAGES = range(64)  # of a drive in a file
FOREVER_S = 3600  # longer than any guest lives

# ---- what a client does


@dataclass
class Scenario:
    """A drive, what the guest does before its client starts, and what the client does."""

    name: str
    drive: str
    unit_bytes: int
    steps: list[dict]
    setup: list[str] = field(default_factory=list)
    timeout_ms: int | None = None  # after which recovery may abort a command
    rescue: dict | None = None  # the step that ends the hanging of a disk

    def script(self) -> str:
        here = f"/results/{self.name}"
        plan = {"drive": self.drive, "unit_bytes": self.unit_bytes, "steps": self.steps}
        if self.timeout_ms:
            plan["timeout_ms"] = self.timeout_ms
        if self.rescue:
            plan["rescue"] = self.rescue["run"]
        return "\n".join(
            [
                f"mkdir -p {here}",
                f"cat > {here}/plan <<'END'\n{json.dumps(plan)}\nEND",
                f"exec 3>&1 >{here}/output 2>&1",
                *self.setup,
                f"faulty_disk_client --plan {here}/plan --json {here}/outcome",
                f"echo $? >{here}/status",
                "exec >&3 2>&3",
            ]
        )


def drive_on(path: str, io: str, *options: str) -> str:
    return ",".join([f"emulated:backing=file,path={path},io={io}", *options])


def write(name, units):
    return {"write": name, "units": list(units)}


def read(name, units, holds):
    return {"read": name, "units": list(units), "holds": holds}


def wait(*names):
    return [{"wait": name} for name in names]


def give_up(*names, after_ms=1):
    """Waits for each request with a deadline that passes if it hangs."""
    return [{"wait": name, "ms": after_ms} for name in names]


# ---- disks with faults

# Devices of the device mapper by name, and their tables. Those of the second kind lie on those of the first.
GATES: dict[str, list[str]] = {}
DEVICES: dict[str, list[str]] = {}


def create(devices: dict[str, list[str]]) -> str:
    """Makes all of them, since a program takes long to start on an emulated processor."""
    return f"dmsetup create --concise '{';'.join(f'{name},,,,' + ','.join(table) for name, table in devices.items())}'"


def table_with_errors(*bad: tuple[int, int]) -> list[str]:
    """A part of a disk in which some (first sector, sectors) are bad."""
    table, at = [], 0
    for first, count in bad:
        table += [f"{at} {first - at} linear /disks/bad {at}"] if at < first else []
        table.append(f"{first} {count} error")
        at = first + count
    return [*table, f"{at} {SECTORS - at} linear /disks/bad {at}"]


class Disk:
    """A device over a part of the guest's disk. 1 MiB in its middle is another device: its gate.

    What the gate does is changed while a drive is open.
    """

    GATE = range(256, 512)  # its pages

    def __init__(self, name: str, gate: str) -> None:
        self.name, self.gate = name, f"{name}-gate"
        self.path = f"/dev/mapper/{name}"
        self._first = len(GATES) * SECTORS
        begin, end = self.GATE.start * 8, self.GATE.stop * 8
        GATES[self.gate] = [self._gate_table(gate)]
        DEVICES[self.name] = [
            f"0 {begin} linear /disks/faulty {self._first}",
            f"{begin} {end - begin} linear /dev/mapper/{self.gate} 0",
            f"{end} {SECTORS - end} linear /disks/faulty {self._first + end}",
        ]

    def _gate_table(self, what: str) -> str:
        kind, _, options = what.partition(" ")
        return f"0 {len(self.GATE) * 8} {kind} /disks/faulty {self._first + self.GATE.start * 8} {options}"

    def becomes(self, gate: str) -> dict:
        """A step."""
        return {"run": f"dmsetup load {self.gate} --table '{self._gate_table(gate)}' && dmsetup resume {self.gate}"}

    def suspend(self) -> dict:
        return {"run": f"dmsetup suspend {self.gate}"}

    def resume(self) -> dict:
        return {"run": f"dmsetup resume {self.gate}"}


# dm-flakey fails all I/O in each interval of the second length.
WELL, FAILING = f"flakey {FOREVER_S} 0", f"flakey 0 {FOREVER_S}"
PROMPT, HANGING = "delay 0", f"delay {FOREVER_S * 1000}"

BAD_SECTORS = [1000, *range(4096, 4112)]
ALL_SECTORS = [*range(960, 1040), *range(4080, 4128)]


def bad_sectors(io: str) -> Scenario:
    name = f"bad-sectors-{io}"
    DEVICES[name] = table_with_errors((1000, 1), (4096, 16))
    steps = [
        write("writes", ALL_SECTORS),
        *wait("writes"),
        read("reads", ALL_SECTORS, "writes"),
        *wait("reads"),
        {"flush": "flush"},
        *wait("flush"),
    ]
    path = f"/dev/mapper/{name}"
    return Scenario(name, drive_on(path, io, f"allow_destroy={path}"), SECTOR, steps)


def bad_first_sectors() -> list[Scenario]:
    """Without leave to destroy what may be there, and with it."""
    name = "bad-first-sectors"
    DEVICES[name] = table_with_errors((0, 2048))
    path = f"/dev/mapper/{name}"
    return [
        Scenario(name, drive_on(path, "uring"), SECTOR, []),
        *(Scenario(f"{name}-{io}", drive_on(path, io, f"allow_destroy={path}"), SECTOR, []) for io in IOS),
    ]


# libblkid looks at some of the first ones, and leaves them in the page cache.
GATED = Disk.GATE[100:][: len(PAGES)]
BOTH = [page for pair in zip(PAGES, GATED, strict=True) for page in pair]


def failing_for_a_while(io: str) -> Scenario:
    disk = Disk(f"flakey-{io}", WELL)
    steps = [
        write("before", BOTH),
        *wait("before"),
        {"flush": "flush before"},
        *wait("flush before"),
        disk.becomes(FAILING),
        write("meanwhile", BOTH),
        *wait("meanwhile"),
        read("reads meanwhile", BOTH, "meanwhile"),
        *wait("reads meanwhile"),
        {"flush": "flush meanwhile"},
        *wait("flush meanwhile"),
        disk.becomes(WELL),
        write("after", BOTH),
        *wait("after"),
        read("reads after", BOTH, "after"),
        *wait("reads after"),
        {"flush": "flush after"},
        *wait("flush after"),
    ]
    return Scenario(disk.name, drive_on(disk.path, io), PAGE, steps)


def hanging(kind: str) -> Scenario:
    disk = Disk(f"hanging-{kind}-uring", PROMPT if kind == "delay" else "linear")
    hang, go_on = (disk.becomes(HANGING), disk.becomes(PROMPT)) if kind == "delay" else (disk.suspend(), disk.resume())
    written, read_only = GATED[:16], GATED[16:]
    rounds = []
    for number in range(3):
        rounds += [
            write(f"writes {number}", PAGES),
            *wait(f"writes {number}"),
            read(f"reads {number}", PAGES, f"writes {number}"),
            *wait(f"reads {number}"),
        ]
    steps = [
        write("before", GATED),
        *wait("before"),
        hang,
        write("stuck writes", written),
        read("stuck reads", read_only, "before"),
        {"flush": "stuck flush"},
        *rounds,
        *give_up("stuck writes", "stuck reads", "stuck flush"),
        go_on,
        *wait("stuck writes", "stuck reads", "stuck flush"),
        read("reads after", written, "stuck writes"),
        *wait("reads after"),
        {"flush": "flush after"},
        *wait("flush after"),
    ]
    return Scenario(disk.name, drive_on(disk.path, "uring"), PAGE, steps, rescue=go_on)


def hanging_mapped() -> Scenario:
    disk = Disk("hanging-suspend-mmap", "linear")
    steps = [
        write("before", PAGES),
        *wait("before"),
        disk.suspend(),
        read("stuck reads", GATED, ""),
        read("reads behind them", PAGES, "before"),
        *give_up("stuck reads", "reads behind them"),
        disk.resume(),
        *wait("stuck reads", "reads behind them"),
        write("after", BOTH),
        *wait("after"),
        {"flush": "flush after"},
        *wait("flush after"),
    ]
    return Scenario(disk.name, drive_on(disk.path, "mmap"), PAGE, steps, rescue=disk.resume())


def hanging_too_long() -> Scenario:
    disk = Disk("hanging-too-long-uring", PROMPT)
    stuck = GATED[:1]
    steps = [
        write("before", BOTH),
        *wait("before"),
        disk.becomes(HANGING),
        write("stuck writes", stuck),
        *give_up("stuck writes", after_ms=600),
        {"aborts": len(stuck)},
        read("reads meanwhile", PAGES, "before"),
        *wait("reads meanwhile"),
        disk.becomes(PROMPT),
        *wait("stuck writes"),
        write("after", BOTH),
        *wait("after"),
        read("reads after", BOTH, "after"),
        *wait("reads after"),
        {"flush": "flush after"},
        *wait("flush after"),
    ]
    return Scenario(disk.name, drive_on(disk.path, "uring"), PAGE, steps, timeout_ms=500, rescue=disk.becomes(PROMPT))


def full(io: str) -> Scenario:
    """A sparse file on a file system with room for a part of it; then there is more room."""
    name = f"full-{io}"
    folder = f"/mnt/{name}"
    setup = [
        f"mkdir -p {folder}",
        f"mount /disks/{name} {folder}",
        f"truncate -s {len(FILE_PAGES) * PAGE} {folder}/drive",
        *(f"dd if=/dev/zero of={folder}/{ballast} bs=4k count=12" for ballast in ("first", "second")),
        f"dd if=/dev/zero of={folder}/third bs=64k",
        f"rm {folder}/first",
    ]
    steps = [
        write("writes", FILE_PAGES),
        *wait("writes"),
        read("reads", FILE_PAGES, "writes"),
        *wait("reads"),
        {"flush": "flush"},
        *wait("flush"),
        {"run": f"rm {folder}/second"},
        write("writes after", FILE_PAGES),
        *wait("writes after"),
        read("reads after", FILE_PAGES, "writes after"),
        *wait("reads after"),
        {"flush": "flush after"},
        *wait("flush after"),
    ]
    return Scenario(name, drive_on(f"{folder}/drive", io), PAGE, steps, setup=setup)


POLLED = ("polled-disk", "polled-file")
POLLED_PAGES = range(512)


def polled(name: str) -> Scenario:
    path, setup = f"/disks/{name}", []
    if name == "polled-file":
        folder = f"/mnt/{name}"
        setup = [f"mkdir -p {folder}", f"mount {path} {folder}", f"truncate -s {SECTORS * SECTOR} {folder}/drive"]
        path = f"{folder}/drive"
    steps = [
        write("writes", POLLED_PAGES),
        *wait("writes"),
        read("reads", POLLED_PAGES, "writes"),
        *wait("reads"),
        {"flush": "flush"},
        *wait("flush"),
    ]
    return Scenario(name, drive_on(path, "uring"), PAGE, steps, setup=setup)


SCENARIOS = [
    *(bad_sectors(io) for io in IOS),
    *bad_first_sectors(),
    *(failing_for_a_while(io) for io in IOS),
    *(hanging(kind) for kind in ("delay", "suspend")),
    hanging_mapped(),
    hanging_too_long(),
    *(full(io) for io in IOS),
    *(polled(name) for name in POLLED),
]

# ---- what came of it


@dataclass
class Outcome:
    """How a client ended, and in the order of its waits: with which statuses the requests of each group did."""

    status: int
    output: str
    console: str
    waits: list[tuple[str, dict[str, set[int]], list[int]]] = field(default_factory=list)
    report: dict = field(default_factory=dict)

    def statuses(self, group: str, nth: int = 0, unwritten: set[int] = frozenset()) -> dict[str, set[int]]:
        """Units by status. The units that were read hold what they should, but for those that were not written."""
        assert self.status == 0, f"{self.output}\n{self.console}"
        found, wrong = [(statuses, wrong) for name, statuses, wrong in self.waits if name == group][nth]
        assert set(wrong) <= unwritten, f"{group}: units of wrong content"
        return found


def short(status: str) -> str:
    return re.sub(r"^NVMe status: (.*) \(status code type.*$", r"\1", status)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, Outcome]:
    if reason := guest.missing("dmsetup", "mkfs.ext4"):
        pytest.skip(reason)
    client = guest.built("faulty_disk_client")
    if not client.is_file():
        pytest.skip(f"there is no {client} here: make test builds it")
    folder, images = tmp_path_factory.mktemp("results"), tmp_path_factory.mktemp("disks")
    disks = [guest.Disk(name, images / name) for name in ("faulty", "bad", *(f"full-{io}" for io in IOS))]
    disks += [guest.Disk(name, images / name, kind="nvme") for name in POLLED]
    sizes = {"faulty": len(GATES) * SECTORS * SECTOR, "bad": len(GATES) * SECTORS * SECTOR, "polled-file": 24 << 20}
    for disk in disks:
        with disk.path.open("wb") as file:
            file.truncate(sizes.get(disk.name, SECTORS * SECTOR if disk.name in POLLED else 4 << 20))
        if disk.name.startswith("full") or disk.name == "polled-file":
            make = [guest.program("mkfs.ext4"), "-q", "-F", "-b", str(PAGE), disk.path]
            subprocess.run(make, check=True, capture_output=True)
    # Without udev, dmsetup makes the nodes.
    script = [
        "export DM_DISABLE_UDEV=1",
        "dmesg -n 1",
        *(f"insmod /drivers/{driver}.ko" for driver in guest.DEVICE_MAPPER),
    ]
    script += [create(GATES), create(DEVICES)]
    script += [scenario.script() for scenario in SCENARIOS]
    programs = [client, Path(guest.program("dmsetup"))]
    console = guest.boot("\n".join(script) + "\n", programs, disks, folder)
    found = {}
    for scenario in SCENARIOS:
        there = folder / scenario.name
        outcome = Outcome(int((there / "status").read_text()), (there / "output").read_text(), console)
        if outcome.status == 0:
            document = json.loads((there / "outcome").read_text())
            outcome.report = document["report"]
            for seen in document["outcomes"]:
                statuses = {short(status): set(units) for status, units in seen["statuses"].items()}
                outcome.waits.append((seen["group"], statuses, seen["wrong"]))
        found[scenario.name] = outcome
    return found


FLUSHED, FLUSH_FAILED = {"success": {0}}, {"write fault": {0}}


def all_end(units, status: str = "success") -> dict[str, set[int]]:
    return {status: set(units)}


@pytest.mark.parametrize("io", IOS)
def test_bad_sectors_fail_their_commands_and_no_others(outcomes, io):
    found = outcomes[f"bad-sectors-{io}"]
    bad = set(BAD_SECTORS)
    if io == "mmap":  # a page is read whole
        bad = {sector for sector in ALL_SECTORS if sector // 8 in {one // 8 for one in BAD_SECTORS}}
    good = set(ALL_SECTORS) - bad
    assert found.statuses("writes") == {"success": good, "write fault": bad}
    assert found.statuses("reads") == {"success": good, "unrecovered read error": bad}
    # Nobody knows what was lost with a page that was not there.
    assert found.statuses("flush") == (FLUSHED if io == "uring" else FLUSH_FAILED)
    assert ("the disk is full or has bad sectors" in found.output) == (io == "mmap")


def test_a_disk_that_may_hold_data_where_it_cannot_be_read_is_refused(outcomes):
    found = outcomes["bad-first-sectors"]
    assert found.status == 2, found.output
    path = "/dev/mapper/bad-first-sectors"
    for part in (f"path: '{path}': nobody knows", "cannot be read", f"add allow_destroy={path}"):
        assert part in found.output


@pytest.mark.parametrize("io", IOS)
def test_a_disk_whose_first_sectors_are_bad_does_not_open(outcomes, io):
    found = outcomes[f"bad-first-sectors-{io}"]
    assert found.status == 1, found.output
    assert "unrecovered read error" in found.output


def test_a_disk_that_fails_for_a_while_fails_commands_for_a_while(outcomes):
    found = outcomes["flakey-uring"]
    assert found.statuses("before") == all_end(BOTH)
    assert found.statuses("flush before") == FLUSHED
    assert found.statuses("meanwhile") == {"success": set(PAGES), "write fault": set(GATED)}
    assert found.statuses("reads meanwhile") == {"success": set(PAGES), "unrecovered read error": set(GATED)}
    assert found.statuses("flush meanwhile") == FLUSH_FAILED
    assert found.statuses("after") == all_end(BOTH)
    assert found.statuses("reads after") == all_end(BOTH)
    # The system reports only once what it could not write.
    assert found.statuses("flush after") == FLUSH_FAILED


def test_a_mapped_disk_that_fails_for_a_while_fails_every_flush_from_then_on(outcomes):
    found = outcomes["flakey-mmap"]
    assert found.statuses("before") == all_end(BOTH)
    assert found.statuses("flush before") == FLUSHED
    # The page cache takes them.
    for group in ("meanwhile", "reads meanwhile", "after", "reads after"):
        assert found.statuses(group) == all_end(BOTH)
    assert found.statuses("flush meanwhile") == FLUSH_FAILED
    assert found.statuses("flush after") == FLUSH_FAILED


@pytest.mark.parametrize("kind", ["delay", "suspend"])
def test_commands_that_hang_hold_up_no_others(outcomes, kind):
    found = outcomes[f"hanging-{kind}-uring"]
    for number in range(3):
        assert found.statuses(f"writes {number}") == all_end(PAGES)
        assert found.statuses(f"reads {number}") == all_end(PAGES)
    for group, units in (("stuck writes", GATED[:16]), ("stuck reads", GATED[16:]), ("stuck flush", [0])):
        assert found.statuses(group) == all_end(units, "timed out")
        assert found.statuses(group, 1) == all_end(units)
    assert found.statuses("reads after") == all_end(GATED[:16])
    assert found.statuses("flush after") == FLUSHED


def test_a_page_that_hangs_holds_up_its_thread_until_it_comes(outcomes):
    found = outcomes["hanging-suspend-mmap"]
    for group, units in (("stuck reads", GATED), ("reads behind them", PAGES)):
        assert found.statuses(group) == all_end(units, "timed out")
        assert found.statuses(group, 1) == all_end(units)
    assert found.statuses("after") == all_end(BOTH)
    assert found.statuses("flush after") == FLUSHED


def test_commands_that_hang_for_too_long_are_aborted(outcomes):
    found = outcomes["hanging-too-long-uring"]
    stuck = GATED[:1]
    assert found.statuses("stuck writes") == all_end(stuck, "timed out")
    assert found.statuses("reads meanwhile") == all_end(PAGES)
    assert found.statuses("stuck writes", 1) == all_end(stuck, "cancelled by recovery")
    assert found.statuses("after") == all_end(BOTH)
    assert found.statuses("reads after") == all_end(BOTH)
    assert found.statuses("flush after") == FLUSHED


@pytest.mark.parametrize("io", IOS)
def test_a_full_file_system_fails_writes_that_need_room(outcomes, io):
    found = outcomes[f"full-{io}"]
    no_room = "capacity exceeded" if io == "uring" else "write fault"
    writes, later = found.statuses("writes"), found.statuses("writes after")
    assert set(writes) == {"success", no_room}
    assert writes["success"] | writes[no_room] == set(FILE_PAGES)
    assert found.statuses("reads", unwritten=writes[no_room])["success"] >= writes["success"]
    if io == "uring":
        assert found.statuses("flush") == found.statuses("flush after") == FLUSHED
        assert later["success"] > writes["success"]
        assert found.statuses("reads after", unwritten=later.get(no_room, frozenset())) == all_end(FILE_PAGES)
    else:
        # A page that was not there stays lost until the drive is opened again.
        assert found.statuses("flush") == found.statuses("flush after") == FLUSH_FAILED
        assert later == writes


@pytest.mark.parametrize("name", POLLED)
def test_a_disk_that_the_kernel_polls_works_as_any_other(outcomes, name):
    found = outcomes[name]
    assert found.statuses("writes") == found.statuses("reads") == all_end(POLLED_PAGES)
    assert found.statuses("flush") == FLUSHED
    file = found.report["drives"][0]["file"]
    assert all(file[what] for what in ("polled", "direct", "fixed_buffers")), json.dumps(file)
