# SPDX-License-Identifier: Apache-2.0
import gzip
import json

import numpy as np
import pytest
from forebay import Storage, replay
from forebay.errors import RefusedInput
from forebay.trace import FLUSH, READ, WRITE, load

DRIVE = "emulated:size=4M"

MSR = """\
128166372003061629,usr,0,Read,4096,24576,41286
128166372016382155,usr,0,Write,8192,8192,1963

128166372016382255,usr,0,Read,8192,4096,1835
128166372026382245,usr,0,Read,1048576,512,1835
"""
IOLOG_2 = """\
fio version 2 iolog
/dev/sda add
/dev/sda open
/dev/sda read 0 4096
/dev/sda wait 1500 0
/dev/sda write 4096 1024
/dev/sda sync 0 0
/dev/sda wait 500 0
/dev/sda datasync
/dev/sda trim 0 65536
/dev/sda write 8192 131072
/dev/sda close
"""
IOLOG_3 = """\
fio version 3 iolog
0 d add
1 d open
10 d write 0 2048
12 d read 0 2048
30 d read 4096 512
40 d sync 0 0
50 d trim 0 512
60 d close
"""


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def columns(trace):
    fields = ("kind", "offset_bytes", "bytes", "at_ns", "line")
    return [tuple(int(operation[field]) for field in fields) for operation in trace.operations]


def run(forebay, path, *options):
    outcome = forebay("replay", path, "--drive", DRIVE, *options, "--json", "-")
    assert outcome.status == 0, outcome.err
    return outcome.json()


HEADER = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n"


@pytest.mark.parametrize("prefix", [HEADER, HEADER.upper(), "\ufeff" + HEADER, "\ufeff"])
def test_a_header_and_a_mark_of_byte_order_are_no_operations(tmp_path, prefix):
    trace = load(write(tmp_path / "t.csv", prefix + MSR))
    plain = load(write(tmp_path / "u.csv", MSR))
    assert [operation[:4] for operation in columns(trace)] == [operation[:4] for operation in columns(plain)]
    windows = load(write(tmp_path / "w.csv", (prefix + MSR).replace("\n", "\r\n")))
    assert columns(windows) == columns(trace)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (HEADER.replace("Offset,Size", "Size,Offset") + MSR, (":1: line", "Size,Offset", "in this order")),
        ((HEADER + MSR).encode("utf-16"), (":1: line", "UTF-8")),
        (HEADER + HEADER + MSR, (":2: Type",)),
    ],
)
def test_columns_that_are_not_what_they_should_be_are_refused(tmp_path, text, parts):
    with pytest.raises(RefusedInput) as refused:
        load(write(tmp_path / "t.csv", text))
    for part in parts:
        assert part in str(refused.value)


def test_msr_is_read_as_published(tmp_path):
    trace = load(write(tmp_path / "usr_0.csv", MSR))
    assert trace.format == "msr"
    assert columns(trace) == [
        (READ, 4096, 24576, 0, 1),
        (WRITE, 8192, 8192, 1332052600, 2),
        (READ, 8192, 4096, 1332062600, 4),
        (READ, 1048576, 512, 2332061600, 5),
    ]
    assert (trace.lines, trace.other_lines, trace.left_out, trace.trims) == (5, 1, 0, 0)
    assert trace.timed
    assert trace.duration_ns == 2332061600


def test_iolog_version_2_takes_times_from_waits(tmp_path):
    trace = load(write(tmp_path / "log", IOLOG_2))
    assert trace.format == "iolog v2"
    assert columns(trace) == [
        (READ, 0, 4096, 0, 4),
        (WRITE, 4096, 1024, 1_500_000, 6),
        (FLUSH, 0, 0, 1_500_000, 7),
        (FLUSH, 0, 0, 2_000_000, 9),
        (WRITE, 8192, 131072, 2_000_000, 11),
    ]
    assert (trace.lines, trace.other_lines, trace.trims) == (12, 6, 1)
    assert trace.timed


def test_iolog_version_3_has_times_in_microseconds(tmp_path):
    trace = load(write(tmp_path / "log", IOLOG_3))
    assert trace.format == "iolog v3"
    assert columns(trace) == [
        (WRITE, 0, 2048, 0, 4),
        (READ, 0, 2048, 2_000, 5),
        (READ, 4096, 512, 20_000, 6),
        (FLUSH, 0, 0, 30_000, 7),
    ]
    assert (trace.lines, trace.other_lines, trace.trims) == (9, 4, 1)


@pytest.mark.parametrize("text", [MSR, IOLOG_2, IOLOG_3])
def test_gzip_and_other_line_ends_change_nothing(tmp_path, text):
    plain = load(write(tmp_path / "plain", text))
    packed = load(write(tmp_path / "packed.gz", gzip.compress(text.encode())))
    windows = load(write(tmp_path / "windows", text.replace("\n", "\r\n")))
    cut = load(write(tmp_path / "no-last-newline", text.rstrip("\n")))
    for other in (packed, windows, cut):
        assert columns(other) == columns(plain)
        assert other.lines == plain.lines


def test_a_header_is_no_operation(tmp_path):
    header = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n"
    trace = load(write(tmp_path / "t", header + MSR))
    assert trace.other_lines == 2
    assert columns(trace)[0] == (READ, 4096, 24576, 0, 2)


def test_one_disk_of_several(tmp_path):
    path = write(tmp_path / "t", MSR + "128166372003061629,usr,1,Write,0,512,1\n")
    with pytest.raises(RefusedInput, match="--disk"):
        load(path)
    assert len(load(path, disk=0).operations) == 4
    other = load(path, disk=1)
    assert columns(other) == [(WRITE, 0, 512, 0, 6)]
    assert other.left_out == 4
    with pytest.raises(RefusedInput, match="has no operation of --disk 2"):
        load(path, disk=2)


def test_one_file_of_several(tmp_path):
    path = write(tmp_path / "t", IOLOG_3 + "70 e read 0 512\n80 e trim 0 512\n")
    with pytest.raises(RefusedInput, match="--file"):
        load(path)
    other = load(path, file="e")
    assert columns(other) == [(READ, 0, 512, 0, 10)]
    assert (other.left_out, other.trims) == (5, 1)
    with pytest.raises(RefusedInput, match="has no operation of --file f"):
        load(path, file="f")


LINE = "128166372003061629,usr,0,Read,4096,512,1\n"
V2, V3 = "fio version 2 iolog\n", "fio version 3 iolog\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["is empty"]),
        ("\n", [":1: line", "--format"]),
        ("hello\n", [":1: line", "'hello'", "--format"]),
        ("\0" * 5000, ["is not a trace"]),
        (LINE + "128166372003061630,usr,0,Read,4096,512\n", [":2: line", "Read,4096,512", "7 fields"]),
        (LINE + "128166372003061630,usr,0,Erase,4096,512,1\n", [":2: Type", "'Erase'", "Read or Write"]),
        (LINE * 3 + "12x,usr,0,Read,4096,512,1\n", [":4: Timestamp", "'12x'", "whole number"]),
        (LINE + "1,usr,0,Read,-4096,512,1\n", [":2: Offset", "'-4096'"]),
        (LINE + "1,usr,0,Read,9223372036854775808,512,1\n", [":2: Offset", "2^63"]),
        (LINE + f"1,usr,0,Read,{'9' * 5000},512,1\n", [":2: Offset", "2^63"]),
        (LINE + "1,usr,0,Read,4_096,512,1\n", [":2: Offset", "'4_096'"]),
        (LINE + "1,usr,0,Read,0,0,1\n", [":2: Size", "'0'", "at least 1"]),
        (LINE + "1,usr,0,Read,0,512,\n", [":2: ResponseTime", "''"]),
        (LINE + "1,usr,a,Read,0,512,1\n", [":2: DiskNumber", "'a'"]),
        (LINE + "1,usr,1,Read,0,512,1\n", [":2: DiskNumber", "'1'", "disk 0", "--disk"]),
        (LINE + "1,web,0,Read,0,512,1\n", [":2: Hostname", "'web'", "usr"]),
        (LINE + "9223372036854775807,usr,0,Read,0,512,1\n", [":2: time", "292 years"]),
        (LINE + "\xff\n", [":2: line", "7 fields"]),
        ("fio version 1 iolog\n", [":1: line", "version 1", "version 3"]),
        (V2, ["no read, write or flush in its 1 line"]),
        (V2 + "d trim 0 512\n", ["no read, write or flush in its 2 lines"]),
        (V2 + "d erase 0 512\n", [":2: action", "'erase'", "datasync, wait"]),
        (V2 + "d read 0\n", [":2: line", "'d read 0'", "FILE ACTION OFFSET LENGTH"]),
        (V2 + "d read\n", [":2: action", "'read'"]),
        (V2 + "d read 0 0\n", [":2: length", "'0'", "at least 1"]),
        (V2 + "d read 1.5 512\n", [":2: offset", "'1.5'"]),
        (V2 + "d wait x 0\n", [":2: offset", "'x'"]),
        (V2 + "d read 0 512\ne read 0 512\n", [":3: file", "'e'", "--file"]),
        (V3 + "0 d read 0 512\nd read 0 512\n", [":3: timestamp", "'d'"]),
        (V3 + "0 d read 0\n", [":2: line", "after a time"]),
        (V3 + "0 d wait 5 0\n", [":2: action", "'wait'", "version 3"]),
        (V3 + "0 d sync_file_range 0 512\n", [":2: action", "'sync_file_range'"]),
    ],
)
def test_what_is_no_trace_is_refused_by_line_and_field(forebay, tmp_path, text, parts):
    path = write(tmp_path / "trace", text.encode("latin-1"))
    forebay("replay", path, "--drive", DRIVE).refused(str(path), *parts)


def test_damaged_gzip_is_refused(forebay, tmp_path):
    whole = gzip.compress((LINE * 5000).encode(), compresslevel=0)
    forebay("replay", write(tmp_path / "cut", whole[:-100]), "--drive", DRIVE).refused("trace", "gzip")
    broken = whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]
    forebay("replay", write(tmp_path / "broken", broken), "--drive", DRIVE).refused("trace", "gzip")


def test_what_a_refusal_quotes_of_a_file_is_one_line(tmp_path):
    path = tmp_path / "t.log"
    path.write_text("fio version 2 iolog\n/\0\x1b[2Ja read 0 4096\n/b read 0 4096\n")
    with pytest.raises(RefusedInput) as refused:
        load(path)
    assert str(refused.value).isprintable()
    assert str(refused.value).endswith(r"the file /\x00\x1b[2Ja; choose one with --file")


def test_options_that_cannot_be_meant_are_refused(forebay, tmp_path):
    msr, iolog = write(tmp_path / "a.csv", MSR), write(tmp_path / "b.log", IOLOG_3)

    def refused(*parts, path=msr, options=()):
        forebay("replay", path, "--drive", DRIVE, *options).refused(*parts)

    refused("trace", "nowhere", path=tmp_path / "nowhere")
    refused("trace", path=tmp_path)
    refused("--format", "'blk'", options=["--format", "blk"])
    refused(":1: line", "version", options=["--format", "iolog"])
    refused(":1: line", "7 fields", path=iolog, options=["--format", "msr"])
    refused("--file", options=["--file", "d"])
    refused("--disk", path=iolog, options=["--disk", "0"])
    refused("--mode", "'ajar'", options=["--mode", "ajar"])
    refused("--iodepth", "'0'", options=["--iodepth", "0"])
    refused("--iodepth", "'65537'", options=["--iodepth", "65537"])
    refused("--gpu-threads", "'0'", options=["--gpu-threads", "0"])
    refused("--speed", "--mode open", options=["--speed", "2"])
    for speed in ("0", "-1", "nan", "inf"):
        refused("--speed", speed, options=["--mode", "open", "--speed", speed])
    untimed = write(tmp_path / "c.log", V2 + "d read 0 512\n")
    refused("--mode", "no times", path=untimed, options=["--mode", "open"])


@pytest.mark.parametrize("options", [(), ("--iodepth", "3"), ("--mode", "open", "--speed", "1000", "--iodepth", "4")])
@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (MSR, (3, 1, 0, 24576 + 4096 + 512, 8192)),
        (IOLOG_2, (1, 2, 2, 4096, 1024 + 131072)),
        (IOLOG_3, (2, 1, 1, 2048 + 512, 2048)),
    ],
)
def test_counts_are_exact(forebay, tmp_path, text, counts, options):
    document = run(forebay, write(tmp_path / "trace", text), "--verify", *options)
    ours, job = document["forebay"], document["jobs"][0]
    reads, writes, flushes, bytes_read, bytes_written = counts
    asked = ours["counts"]["asked"]
    expected = {
        "reads": reads,
        "writes": writes,
        "flushes": flushes,
        "bytes_read": bytes_read,
        "bytes_written": bytes_written,
    }
    assert ours["counts"]["completed"] == expected
    assert asked.items() >= expected.items()
    drive = ours["counts"]["drive"]
    assert (drive["bytes_read"], drive["bytes_written"]) == (bytes_read, bytes_written)
    assert asked.items() >= drive.items()
    assert ours["verified"] is True
    assert job["error"] == 0
    assert job["read"]["total_ios"] == job["read"]["clat_ns"]["N"] == reads
    assert job["write"]["total_ios"] == job["write"]["clat_ns"]["N"] == writes
    assert job["sync"]["total_ios"] == job["sync"]["lat_ns"]["N"] == flushes
    assert job["read"]["io_bytes"] == bytes_read
    assert job["write"]["io_bytes"] == bytes_written
    assert ours["trace"]["operations"] == reads + writes + flushes
    assert ours["mode"] == ("open" if "open" in options else "closed")
    if "open" in options:
        assert ours["open_loop"] in ("on time", "late")
        assert ours["lag_ns"]["N"] == reads + writes + flushes
        assert 0 <= ours["lag_above_bound"] <= ours["lag_ns"]["N"]
        assert ours["speed"] == 1000
    else:
        assert ours["open_loop"] is None
        assert ours["lag_ns"] is None


def test_json_has_the_shape_of_fio(forebay, tmp_path):
    path = write(tmp_path / "trace", MSR)
    document = run(forebay, path)
    read = document["jobs"][0]["read"]
    assert read["iops"] > 0
    assert read["bw_bytes"] > 0
    assert read["clat_ns"]["min"] <= read["clat_ns"]["mean"] <= read["clat_ns"]["max"]
    assert read["clat_ns"]["percentile"]["99.000000"] <= read["clat_ns"]["max"]
    ours = document["forebay"]
    assert (ours["device"], ours["placement"], ours["profile"], ours["residency"]) == ("cpu", 1, "ideal", "threads")
    assert ours["fidelity"] in ("ok", "exceeded")
    assert ours["lateness"]["bound_ns"] > 0
    assert ours["trace"]["name"] == str(path)
    assert ours["speed"] is None


def test_long_operations_over_several_drives_are_counted_as_they_are_split(forebay, tmp_path):
    path = write(tmp_path / "trace", V2 + "d write 512 3000320\nd read 65024 1024\nd sync 0 0\nd read 0 4194304\n")
    ours = run(forebay, path, "--drive", "emulated:size=4M,seed=2", "--verify", "--iodepth", "2")["forebay"]
    assert ours["verified"] is True
    assert ours["counts"]["drive"]["flush_commands"] == 2
    assert ours["counts"]["drive"]["read_commands"] == 2 + 64
    assert ours["counts"]["drive"]["write_commands"] == 46
    assert ours["verified_blocks"] > 0


def test_fewer_threads_than_asked_is_said(forebay, tmp_path):
    path = write(tmp_path / "t", MSR)
    outcome = forebay("replay", path, "--drive", DRIVE, "--iodepth", "2", "--gpu-threads", "8", "--json", "-")
    assert "--gpu-threads 8: only 2 threads will run" in outcome.err
    assert outcome.json()["forebay"]["gpu_threads"] == 2


def test_trims_are_skipped_and_said_to_be(forebay, tmp_path):
    outcome = forebay("replay", write(tmp_path / "t", IOLOG_3), "--drive", DRIVE)
    assert outcome.status == 0
    assert "1 trim of the trace not replayed" in outcome.err
    assert "1 trim skipped" in outcome.out
    assert run(forebay, tmp_path / "t")["forebay"]["trace"]["trims_skipped"] == 1


@pytest.mark.parametrize(
    ("operation", "parts"),
    [
        ("read 100 512", [":2: offset", "'100'", "512 bytes", "--wrap"]),
        ("read 512 100", [":2: length", "'100'", "512 bytes", "--wrap"]),
        ("write 4194304 512", [":2: offset", "'4194304'", "beyond", "4194304 bytes", "--wrap"]),
        ("write 4193792 1024", [":2: offset", "beyond"]),
    ],
)
def test_operations_that_do_not_fit_the_drive_are_refused_or_wrapped(forebay, tmp_path, operation, parts):
    path = write(tmp_path / "trace", f"{V2}d {operation}\n")
    forebay("replay", path, "--drive", DRIVE).refused(str(path), *parts)
    assert run(forebay, path, "--wrap")["forebay"]["trace"]["wrapped"] == 1


def test_wrapped_operations_keep_to_the_drive_and_verify(forebay, tmp_path):
    random = np.random.default_rng(1)
    lines = [
        f"{i},h,0,{random.choice(['Read', 'Write'])},{random.integers(1 << 40)},{random.integers(1, 1 << 17)},1"
        for i in range(3000)
    ]
    path = write(tmp_path / "trace.csv", "\n".join(lines))
    forebay("replay", path, "--drive", DRIVE).refused(":1: offset")
    ours = run(forebay, path, "--wrap", "--verify", "--iodepth", "17")["forebay"]
    assert ours["verified"] is True
    assert ours["trace"]["wrapped"] == 3000
    assert ours["verified_blocks"] > 10_000
    assert ours["counts"]["completed"]["reads"] + ours["counts"]["completed"]["writes"] == 3000


def test_open_loop_takes_the_times_in_order(forebay, tmp_path):
    path = write(tmp_path / "t", V3 + "30 d read 0 512\n10 d write 512 512\n20 d sync 0 0\n40 d read 0 512\n")
    ours = run(forebay, path, "--mode", "open")["forebay"]
    assert ours["trace"]["out_of_order"] == 2
    notices = forebay("replay", path, "--drive", DRIVE, "--mode", "open").err
    assert "2 operations of the trace out of order" in notices
    assert ours["verified"] is True
    assert ours["seconds"] >= 30e-6
    assert run(forebay, path)["forebay"]["trace"]["out_of_order"] == 0


def test_open_loop_lasts_as_long_as_the_trace_over_its_speed(forebay, tmp_path):
    path = write(tmp_path / "t", V2 + "d read 0 512\nd wait 400000 0\nd read 0 512\n")
    assert run(forebay, path, "--mode", "open", "--speed", "4")["forebay"]["seconds"] >= 0.1
    assert run(forebay, path)["forebay"]["trace"]["duration_ns"] == 400_000_000


def test_a_drive_that_cannot_keep_up_makes_an_open_loop_late(forebay, tmp_path):
    lines = "".join(f"{i} d read {i % 8 * 512} 512\n" for i in range(300))
    path = write(tmp_path / "t", V3 + lines)
    uri = "emulated:size=4M,iops=1000,latency_us=1000,channels=1"  # 300 operations in 300 us would need 1000 times that
    outcome = forebay("replay", path, "--drive", uri, "--mode", "open", "--iodepth", "2", "--json", "-")
    assert outcome.status == 0
    assert "did not keep up" in outcome.err
    ours = outcome.json()["forebay"]
    assert ours["open_loop"] == "late"
    assert ours["lag_above_bound"] > 150
    assert ours["lag_ns"]["percentile"]["99.000000"] > ours["lag_bound_ns"]
    assert ours["verified"] is True


def test_a_drive_that_loses_writes_does_not_verify(forebay, tmp_path):
    path = write(tmp_path / "t", IOLOG_3)
    outcome = forebay("replay", path, "--drive", f"{DRIVE},data=none", "--verify", "--json", tmp_path / "out.json")
    assert outcome.status == 1
    assert "4 of 4 blocks did not verify: the data is not what the replay wrote; the first is at byte 0" in outcome.err
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["forebay"]["verified"] is False
    assert document["jobs"][0]["error"] != 0


def test_failed_operations_fail_the_command(forebay, tmp_path, monkeypatch):
    """Of a drive with extents, raw writes fail; the command would refuse before, so it is told that there are none."""
    uri = forebay("drive", "create", tmp_path / "image", "--size", "4M", "--json", "-").json()["uri"]
    (tmp_path / "data").write_bytes(b"x" * 1000)
    assert forebay("drive", "import", uri, "data", tmp_path / "data").status == 0
    path = write(tmp_path / "t", V2 + "d read 0 512\nd write 2097152 512\nd read 0 512\n")
    forebay("replay", path, "--drive", uri).refused("--drive", "--allow-destroy")
    assert forebay("replay", path, "--drive", uri, "--allow-destroy").status == 0
    only_reads = write(tmp_path / "r", V2 + "d read 0 512\n")
    assert forebay("replay", only_reads, "--drive", uri, "--verify").status == 0

    monkeypatch.setattr(Storage, "raw_writable", True)
    outcome = forebay("replay", path, "--drive", uri, "--json", tmp_path / "out.json")
    assert outcome.status == 1
    assert "1 operation failed; the first is of line 3" in outcome.err
    ours = json.loads((tmp_path / "out.json").read_text())["forebay"]
    assert ours["verified"] is False
    assert ours["errors"] == 1
    assert ours["counts"]["completed"]["reads"] == 1


def test_counts_that_differ_fail_the_command(forebay, tmp_path, monkeypatch):
    path = write(tmp_path / "t", MSR)
    report = Storage.report

    def with_one_more(self):
        whole = report(self)
        whole["drives"][0]["statistics"]["bytes_read"] += 512
        return whole

    monkeypatch.setattr(Storage, "report", with_one_more)
    outcome = forebay("replay", path, "--drive", DRIVE)
    assert outcome.status == 1
    assert "what the drive counted differ" in outcome.err
    assert "DID NOT VERIFY" in " ".join(outcome.out.split())


def test_seed_and_offset_make_the_data(tmp_path):
    path = write(tmp_path / "t", V2 + "d write 4096 8192\n")
    contents = []
    for seed in (1, 1, 2):
        with Storage(DRIVE, device="cpu") as storage:
            replay.run(storage, load(path), replay.Job(randseed=seed))
            data = bytearray(16384)
            storage.pread(data).result()
            contents.append(bytes(data))
    assert contents[0] == contents[1] != contents[2]
    assert not any(contents[0][:4096])
    assert len({contents[0][at : at + 8] for at in range(4096, 12288, 8)}) == 1024


def test_a_trace_of_more_operations_than_the_memory_holds_is_refused(forebay, tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.trace._OPERATIONS_A_CHECK", 4)
    monkeypatch.setattr("forebay.memory.available_bytes", lambda: 100)
    path = write(tmp_path / "trace", b"1,usr,0,Read,0,512,1\n" * 8)
    forebay("replay", path, "--drive", DRIVE).refused("100 B are available", "split the trace")


def test_a_short_trace_may_be_gzipped_a_thousandfold(tmp_path):
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(b"1,usr,0,Read,0,512,1\n" * 20_000 + b"\n" * (1 << 20)))
    assert len(load(path).operations) == 20_000


def test_a_gzip_file_that_unpacks_for_ever_is_refused(forebay, tmp_path):
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(b"1,usr,0,Read,0,512,1\n" + b"\n" * (16 << 20)))
    forebay("replay", path, "--drive", DRIVE).refused(
        "unpacks to more than 250 times its size", "unpack it with gunzip first"
    )
