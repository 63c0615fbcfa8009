# SPDX-License-Identifier: Apache-2.0
"""NVMe controllers that this project did not write, driven through the PCI bus, in a guest."""

import os
import random
import re
from pathlib import Path
from typing import Any

import guest
import pytest
import real_drive
from real_drive import DRIVE_BYTES, SERIAL, SETUP


def boot(script: str, programs: list[str | Path], folder: Path, **options: Any) -> str:
    """Runs a script in a guest with QEMU's controller, and returns what it wrote to /results/output."""
    need_a_guest()
    return (real_drive.boot(script, programs, folder, **options) / "output").read_text()


def need_a_guest(*programs: str) -> None:
    if reason := guest.missing(*programs):
        if os.environ.get("FOREBAY_REQUIRE_QEMU") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


# The last one has the memory and doorbells of threads of a GPU. NVIDIA's driver is not there, so doorbells are relayed.
@pytest.mark.parametrize(
    ("access", "as_for_a_gpu"),
    [("sysfs", False), ("vfio", False), ("vfio", True)],
    ids=["sysfs", "vfio", "as-for-a-gpu"],
)
def test_the_conformance_list_passes(tmp_path, access, as_for_a_gpu):
    need_a_guest()
    left = real_drive.conformance(access, tmp_path, as_for_a_gpu=as_for_a_gpu)
    said = (left / "output").read_text()
    assert said.endswith("status 0\n"), said
    assert re.search(r"\[  PASSED  \] [1-9]\d{2} tests", said), said
    assert "SKIPPED" not in said
    assert (left / "before").read_text() == "nvme\n"
    assert (left / "after").read_text() == "nvme\n", "the system's driver does not have it back"


# Kills a client some time after its start. Meanwhile another program takes all huge pages that become free: if a
# command that was under way then still wrote into one, the program would see that.
KILL = """
kill_after() {
  : > /load.txt
  real_drive_client load $FOREBAY_PCI_DRIVE,access=$access > /load.txt 2>&1 &
  client=$!
  # Every other one is killed only once it has the drive.
  [ $2 = 0 ] || while ! grep -q ready /load.txt && kill -0 $client; do usleep 10000; done
  usleep $1
  $before
  kill -9 $client
  grep -q ready /load.txt && ready=$((ready + 1))
  real_drive_client watch $watch > /watch.txt 2>&1 || echo "after $1 us: canaries: $(cat /watch.txt)" >> /results/output
  for i in $(seq 100); do [ $(driver) = nvme ] && break; usleep 100000; done
  [ $(driver) = nvme ] || echo "after $1 us: the driver is $(driver)" >> /results/output
  wait $client
}
"""


@pytest.mark.parametrize("access", ["sysfs", "vfio"])
def test_a_client_may_be_killed_at_any_time(tmp_path, access):
    seed = int(os.environ.get("FOREBAY_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"replay with FOREBAY_SEED={seed}")
    kills = int(os.environ.get("FOREBAY_KILLS") or 20)
    delays_us = [random.Random(seed + i).randrange(600_000) for i in range(kills)]
    script = f"""
echo 24 > /proc/sys/vm/nr_hugepages
{SETUP[access]}
access={access} watch=200 before=:
{KILL}
ready=0
for delay in {" ".join(map(str, delays_us))}; do kill_after $delay $((delay % 2)); done
echo "$ready were killed while they read" >> /results/output
real_drive_client verify $FOREBAY_PCI_DRIVE,access={access} >> /results/output 2>&1
"""
    said = boot(script, ["real_drive_client"], tmp_path, iommu=access == "vfio", iops=400)
    found = re.fullmatch(r"(\d+) were killed while they read\nverified\n", said)
    assert found, said
    assert int(found[1]) >= sum(delay % 2 for delay in delays_us)


def test_without_its_guard_a_killed_client_leaves_a_drive_that_writes_into_the_memory_of_others(tmp_path):
    script = f"""
{SETUP["sysfs"]}
access=sysfs watch=15000 before="killall -9 forebay-guard"
{KILL}
kill_after 500000 1
"""
    # So slow that its reads outlast the start of the program that watches, also on a busy machine.
    said = boot(script, ["real_drive_client"], tmp_path, iops=10)
    assert "canaries: 24 huge pages" in said
    assert "the driver is none" in said


# Each line of what it says: what was tried, and then what the client said or what was found.
REFUSED = r"""
echo 24 > /proc/sys/vm/nr_hugepages
try() {
  what=$1
  shift
  said=$(real_drive_client "$@" 2>&1)
  echo "$what: $said; status $?; $(driver)" >> /results/output
}
node() { ls /sys/bus/pci/devices/$address/nvme/nvme*/ | grep -m 1 '^nvme.*n1$'; }
uri=$FOREBAY_PCI_DRIVE
try fresh open $uri
try "at once" open $uri
try twice open-twice $uri
try "wrong serial" open $uri,allow_destroy=other
try "no namespace" open $uri,nsid=7
until mkswap /dev/$(node) > /dev/null; do usleep 10000; done
try data open $uri
for i in 1 2 3 4 5; do
  echo $address > /sys/bus/pci/drivers/nvme/unbind
  echo $address > /sys/bus/pci/drivers/nvme/bind
  try "data, right after bind" open $uri
done
try "data, to read" open-to-read $uri
while [ -z "$(node)" ]; do usleep 10000; done
real_drive_client hold /dev/$(node) > /held.txt &
while ! grep -q held /held.txt; do usleep 10000; done
try held open-to-read $uri,allow_destroy=forebay-qemu
kill $!
until swapon /dev/$(node); do usleep 10000; done  # its driver may not have it ready yet
try swap open-to-read $uri,allow_destroy=forebay-qemu
swapoff /dev/$(node)
mkdir -p /mnt
until mke2fs -F /dev/$(node) > /dev/null 2>&1 && mount -t ext4 /dev/$(node) /mnt; do usleep 10000; done
try mounted open $uri,allow_destroy=forebay-qemu
umount /mnt
try allowed open $uri,allow_destroy=forebay-qemu
echo $address > /sys/bus/pci/drivers/nvme/unbind
try unbound open $uri
try "unbound, wrong serial" open $uri,allow_destroy=other
try "unbound, allowed" open $uri,allow_destroy=forebay-qemu
echo $address > /sys/bus/pci/drivers/nvme/bind
echo 0 > /proc/sys/vm/nr_hugepages
try "no memory" open-to-read $uri
try vfio open-to-read $uri,access=vfio
try "no device" open pci:0000:00:1e.7
try "no drive" open pci:0000:00:00.0
"""


def test_what_would_do_harm_is_refused_and_changes_nothing(tmp_path):
    said = boot(REFUSED, ["real_drive_client"], tmp_path).splitlines()
    results: dict[str, list[str]] = {}
    for line in said:
        what, _, rest = line.partition(": ")
        results.setdefault(what, []).append(rest)
    opened = f"opened: {DRIVE_BYTES} bytes; status 0; nvme"
    assert results["fresh"] == results["at once"] == results["allowed"] == results["data, to read"] == [opened], said
    refused = {
        "wrong serial": "allow_destroy: 'other': the serial number of pci:.* is forebay-qemu",
        "twice": "it is taken already",
        "no namespace": "its driver finds no namespace 7",
        "data": "/dev/nvme.* has a swap.*add allow_destroy=forebay-qemu",
        "data, right after bind": "/dev/nvme.* has a swap.*add allow_destroy=forebay-qemu",
        "held": "/dev/nvme.* is in use",
        "swap": "the system uses /dev/nvme.*: it is swap",
        "mounted": "the system uses /dev/nvme.*: .* mounted at /mnt",
        "no memory": "access: 'sysfs': the system has no 1 huge pages",
        "vfio": "access: 'vfio': there is no IOMMU",
    }
    for what, pattern in refused.items():
        for line in results[what]:
            assert re.search(f"{pattern}.*; status 2; nvme$", line), (what, line)
    assert len(results["data, right after bind"]) == 5
    assert re.search("nobody knows what lies on it.*; status 2; none", results["unbound"][0])
    assert re.search("the serial number .* is forebay-qemu.*; status 2; none", results["unbound, wrong serial"][0])
    assert results["unbound, allowed"] == [f"opened: {DRIVE_BYTES} bytes; status 0; none"]
    assert "there is no PCI device" in results["no device"][0]
    assert "it is not an NVMe controller" in results["no drive"][0]


def test_a_drive_that_vfio_pci_has_stays_with_it(tmp_path):
    script = f"""
{SETUP["vfio"]}
echo vfio-pci > /sys/bus/pci/devices/$address/driver_override
echo $address > /sys/bus/pci/devices/$address/driver/unbind
echo $address > /sys/bus/pci/drivers_probe
for uri in $FOREBAY_PCI_DRIVE $FOREBAY_PCI_DRIVE,allow_destroy={SERIAL} $FOREBAY_PCI_DRIVE,access=sysfs; do
  real_drive_client open $uri >> /results/output 2>&1
  echo "$(driver) $(cat /sys/bus/pci/devices/$address/driver_override)" >> /results/output
done
"""
    said = boot(script, ["real_drive_client"], tmp_path, iommu=True).splitlines()
    assert said[1::2] == ["vfio-pci vfio-pci"] * 3, said
    assert "nobody knows what lies on it" in said[0]
    assert said[2] == f"opened: {DRIVE_BYTES} bytes"
    assert "an IOMMU translates the drive's addresses" in said[4]


@pytest.mark.parametrize("access", ["sysfs", "vfio"])
def test_one_storage_has_two_drives(tmp_path, access):
    script = f"""
{SETUP[access]}
real_drive_client verify $FOREBAY_PCI_DRIVE,access={access} pci:$second,access={access} >> /results/output 2>&1
driver >> /results/output
"""
    assert boot(script, ["real_drive_client"], tmp_path, iommu=access == "vfio") == "verified\nnvme\n"


@pytest.mark.parametrize("access", ["sysfs", "vfio"])
def test_doorbells_are_written_or_relayed_as_the_uri_says(tmp_path, access):
    script = f"""
{SETUP[access]}
for how in auto direct relay other; do
  real_drive_client doorbells $FOREBAY_PCI_DRIVE,access={access},doorbells=$how >> /results/output 2>&1
  [ $how = other ] || real_drive_client verify $FOREBAY_PCI_DRIVE,access={access},doorbells=$how >> /results/output 2>&1
done
real_drive_client doorbells pci:$second,access={access} >> /results/output 2>&1
driver >> /results/output
"""
    said = boot(script, ["real_drive_client"], tmp_path, iommu=access == "vfio").splitlines()
    assert said == [
        *("direct", "verified", "direct", "verified", "relay", "verified"),
        "doorbells: 'other': give auto, direct or relay",
        *("direct", "Write Zeroes is not used"),
        "nvme",
    ]


# A daemon that has the drive. `serving` waits until it has.
SERVE = """
serve() { real_drive_client serve $FOREBAY_PCI_DRIVE,access=$access,residency=served > /serve.txt 2>&1 & }
serving() { while ! grep -q serving /serve.txt && kill -0 $!; do usleep 10000; done; }
served=$FOREBAY_PCI_DRIVE,residency=served
"""


@pytest.mark.parametrize("access", ["sysfs", "vfio"])
def test_a_daemon_shares_a_drive_out(tmp_path, access):
    script = f"""
{SETUP[access]}
access={access}
{SERVE}
real_drive_client open $served >> /results/output 2>&1
serve
serving
real_drive_client open pci:$second,residency=served >> /results/output 2>&1
for i in 1 2 3; do real_drive_client verify $served >> /results/output 2>&1; done
real_drive_client load $served > /load.txt 2>&1 &
while ! grep -q ready /load.txt && kill -0 $!; do usleep 10000; done
kill -9 $!
real_drive_client verify $served >> /results/output 2>&1
killall real_drive_client
for i in $(seq 100); do [ $(driver) = nvme ] && break; usleep 100000; done
driver >> /results/output
cat /serve.txt >> /results/output
"""
    said = boot(script, ["real_drive_client"], tmp_path, iommu=access == "vfio").splitlines()
    assert "no drive daemon" in said[0]
    assert "the drive daemon does not have it" in said[1]
    assert said[2:] == ["verified"] * 4 + ["nvme", "serving", "ended"]


# What is killed, of a daemon (a supervisor and its engine) and two clients that read.
VICTIMS = {
    "engine": "$(pgrep -P $daemon)",
    "daemon": "$daemon $(pgrep -P $daemon)",
    "client": "$one",
    "all": "$daemon $(pgrep -P $daemon) $one $two",
}

KILL_ONE_OF_MANY = """
running() {
  for i in $(seq 1000); do
    grep -q ready /one.txt && grep -q ready /two.txt && return 0
    kill -0 $daemon $one $two 2> /dev/null || return 1
    usleep 10000
  done
}
kill_of_many() {  # after how many us, whether they must be running first, whom
  : > /one.txt; : > /two.txt; : > /serve.txt
  serve; daemon=$!
  serving || echo "it does not serve: $(cat /serve.txt)" >> /results/output
  real_drive_client load $served,queues=4 > /one.txt 2>&1 & one=$!
  real_drive_client load $served,queues=4 > /two.txt 2>&1 & two=$!
  [ $2 = 0 ] || running || echo "they do not run: $(cat /one.txt /two.txt)" >> /results/output
  usleep $1
  grep -q ready /one.txt && grep -q ready /two.txt && ready=$((ready + 1))
  eval kill -9 $3 2> /dev/null
  real_drive_client watch 200 > /watch.txt 2>&1 || echo "$3 after $1 us: canaries: $(cat /watch.txt)" >> /results/output
  kill -9 $daemon $(pgrep -P $daemon) $one $two 2> /dev/null
  real_drive_client watch 200 > /watch.txt 2>&1 || echo "all after $3: canaries: $(cat /watch.txt)" >> /results/output
  for i in $(seq 100); do [ $(driver) = nvme ] && break; usleep 100000; done
  [ $(driver) = nvme ] || echo "$3 after $1 us: the driver is $(driver)" >> /results/output
  wait
}
"""


def test_a_daemon_and_its_clients_may_be_killed_at_any_time(tmp_path):
    seed = int(os.environ.get("FOREBAY_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"replay with FOREBAY_SEED={seed}")
    kills = int(os.environ.get("FOREBAY_KILLS") or 8)
    chosen = random.Random(seed)
    calls = [
        f"kill_of_many {chosen.randrange(300_000)} {i % 2} '{chosen.choice([*VICTIMS.values()])}'" for i in range(kills)
    ]
    script = "\n".join(
        [
            "echo 48 > /proc/sys/vm/nr_hugepages",
            "access=sysfs ready=0",
            SERVE,
            KILL_ONE_OF_MANY,
            *calls,
            'echo "$ready were killed while they read" >> /results/output',
            "real_drive_client verify $FOREBAY_PCI_DRIVE >> /results/output 2>&1",
        ]
    )
    said = boot(script, ["real_drive_client"], tmp_path, iops=400)
    found = re.fullmatch(r"(\d+) were killed while they read\nverified\n", said)
    assert found, said
    assert int(found[1]) >= kills // 2


# A file system on a drive that a daemon has, mounted at /mnt from a network block device.
NBDKIT = Path("/usr/lib/x86_64-linux-gnu/nbdkit/filters/nbdkit-blocksize-filter.so")
PLUGIN = guest.ROOT / "python" / "forebay" / "nbdkit-forebay-plugin.so"
MOUNT = f"""
insmod /drivers/nbd.ko
mkdir -p /mnt
serve
serving
nbdkit --foreground --filter=blocksize --unix /nbd {PLUGIN} uri=$served > /nbdkit.txt 2>&1 &
while [ ! -S /nbd ] && kill -0 $!; do usleep 10000; done
nbd-client -unix /nbd /dev/nbd0 > /nbd-client.txt 2>&1 || cat /nbdkit.txt /nbd-client.txt >> /results/output
mkfs.ext4 -q -O ^has_journal /dev/nbd0 || echo "no file system" >> /results/output
mount -t ext4 /dev/nbd0 /mnt || echo "not mounted" >> /results/output
file() {{ echo "file-extents:/mnt/$1,on=$FOREBAY_PCI_DRIVE"; }}
"""


def boot_with_a_file_system(script: str, folder: Path, **options: Any) -> str:
    need_a_guest("nbdkit", "nbd-client", "mkfs.ext4")
    programs = [Path(guest.program(name)) for name in ("nbdkit", "nbd-client", "mkfs.ext4")]
    script = "\n".join(["echo 48 > /proc/sys/vm/nr_hugepages", "access=sysfs", SERVE, MOUNT, script])
    return boot(script, ["real_drive_client", *programs], folder, plugins=[NBDKIT, PLUGIN], **options)


def test_device_code_reads_files_of_a_mounted_file_system(tmp_path):
    seconds = int(os.environ.get("FOREBAY_SECONDS") or 5)
    script = f"""
for i in 0 1; do real_drive_client write-file /mnt/r$i >> /results/output 2>&1; done
: > /reads.txt
reads() {{
  while [ -e /going ]; do
    for i in 0 1; do real_drive_client read-file $(file r$i) >> /reads.txt 2>&1; done
  done
}}
: > /going
reads & reader=$!
end=$(($(date +%s) + {seconds})) written=0
while [ $(date +%s) -lt $end ]; do
  real_drive_client write-file /mnt/w$((written % 2)) >> /results/output 2>&1 && written=$((written + 1))
done
rm /going
wait $reader
sort /reads.txt | uniq -c >> /results/output
echo "$written files were written meanwhile" >> /results/output
real_drive_client read-file $(file w0) >> /results/output 2>&1
echo 3 > /proc/sys/vm/drop_caches
umount /mnt && mount -t ext4 /dev/nbd0 /mnt
real_drive_client read-file $(file r1) >> /results/output 2>&1
"""
    said = boot_with_a_file_system(script, tmp_path, limit_s=guest.LIMIT_S + seconds)
    found = re.fullmatch(r" *(\d+) verified\n(\d+) files were written meanwhile\nverified\nverified\n", said)
    assert found, said
    assert int(found[1]) > 0
    assert int(found[2]) > 0
    print(f"{found[1]} files were read and {found[2]} written in {seconds} s")


def test_a_file_that_somebody_wants_to_write_counts_as_removed_first(tmp_path):
    script = """
real_drive_client write-file /mnt/a
real_drive_client follow-file $(file a) > /follow.txt 2>&1 & follower=$!
while ! grep -q following /follow.txt && kill -0 $follower; do usleep 10000; done
echo more >> /mnt/a
echo "appended: $(tail -c 5 /mnt/a)" >> /results/output
wait $follower
echo "status $?" >> /results/output
cat /follow.txt >> /results/output
real_drive_client open-to-read $(file a) >> /results/output 2>&1
exec 3>> /mnt/a
try() { real_drive_client open-to-read $(file $1) >> /results/output 2>&1; echo "status $?" >> /results/output; }
try a
exec 3>&-
truncate -s 100000 /mnt/hole
try hole
fallocate -l 65536 /mnt/unwritten
try unwritten
: > /mnt/empty
try empty
try none
try ../follow.txt
real_drive_client open $(file a) >> /results/output 2>&1
"""
    said = boot_with_a_file_system(script, tmp_path).splitlines()
    assert said[:3] == ["appended: more", "status 1", "following"], said
    assert "has gone; its commands are cancelled" in said[3], said
    assert said[4] == "cancelled by recovery", said
    assert re.fullmatch(r"opened: \d+ bytes", said[5]), said
    refusals = [
        "a program has it open for writing",
        "it has a hole at 0",
        "parts that were allocated and never written",
        "it is empty",
        "it cannot be opened: No such file",
        "its file system is neither ext4 nor XFS",
    ]
    for line, status, refusal in zip(said[6::2], said[7::2], refusals, strict=False):
        assert refusal in line
        assert status == "status 2"
    assert "open the storage to read only" in said[6 + 2 * len(refusals)], said


# Beside what was tried: what the drive tells that it would be refused for, to read and to write.
ATTACHED = r"""
try() {
  what=$1
  shift
  "$@" > /said 2>&1
  status=$?
  sed "s|^|$what: |" /said >> /results/output
  echo "$what: status $status; $(driver); $(cat /sys/bus/pci/devices/$address/driver_override)" >> /results/output
}
compare() {
  mount -o remount,ro /sys  # it needs to change nothing there
  (: >> /sys/bus/pci/drivers_probe) 2> /dev/null && echo "differs $1: /sys may be written" >> /results/output
  binding_client refusals $uri > /told
  mount -o remount,rw /sys
  { real_drive_client open-to-read $uri; real_drive_client open $uri; } 2>&1 | sed 's/^opened: .*/not refused/' > /done
  cmp /told /done > /dev/null && echo "told $1: $(wc -l < /told)" >> /results/output
  cmp /told /done > /dev/null || sed "s|^|differs $1: |" /told /done >> /results/output
}
node() { ls /sys/bus/pci/devices/$address/nvme/nvme*/ | grep -m 1 '^nvme.*n1$'; }
uri=$FOREBAY_PCI_DRIVE
compare "without vfio"
try "no vfio" binding_client attach $uri
INSERT
compare fresh
until mkswap /dev/$(node) > /dev/null; do usleep 10000; done
compare data
try dry binding_client attach-dry $uri
until swapon /dev/$(node); do usleep 10000; done
compare swap
try swap binding_client attach $uri
swapoff /dev/$(node)
real_drive_client hold /dev/$(node) > /held.txt &
while ! grep -q held /held.txt; do usleep 10000; done
try held binding_client attach $uri
kill $!
wait $!
mount --bind /dev/null /sys/bus/pci/drivers_probe
try "failed step" binding_client attach $uri
umount /sys/bus/pci/drivers_probe
try attach binding_client attach $uri
compare attached
try again binding_client attach $uri
try nobody binding_client nobody $uri
chown 65534 /dev/vfio/[0-9]*
try permitted binding_client nobody $uri
: > /load.txt
real_drive_client load $uri > /load.txt 2>&1 &
while ! grep -q ready /load.txt && kill -0 $!; do usleep 10000; done
compare taken
try "taken" binding_client detach $uri
kill $!
wait $!
mount --bind /dev/null /sys/bus/pci/drivers_probe
try "failed detach" binding_client detach $uri
umount /sys/bus/pci/drivers_probe
try detach binding_client detach $uri
ls /dev/$(node) > /dev/null && echo "node is back" >> /results/output
try "detached" binding_client detach $uri
# As an attach that was killed leaves it.
echo vfio-pci > /sys/bus/pci/devices/$address/driver_override
echo $address > /sys/bus/pci/drivers/nvme/unbind
try "half attached" binding_client detach $uri
"""


def test_an_attached_drive_stays_with_vfio_pci_until_it_is_detached(tmp_path):
    script = ATTACHED.replace("INSERT", SETUP["vfio"])
    lines = boot(script, ["real_drive_client", "binding_client"], tmp_path, iommu=True).splitlines()
    said: dict[str, list[str]] = {}
    for line in lines:
        what, _, rest = line.partition(": ")
        said.setdefault(what, []).append(rest)
    told = ["without vfio", "fresh", "data", "swap", "attached", "taken"]
    assert [line for line in lines if line.startswith(("told", "differs"))] == [f"told {what}: 2" for what in told]
    folder = "/sys/bus/pci/devices/"
    steps = [
        f"reserve it for vfio-pci: echo vfio-pci > {folder}ADDRESS/driver_override",
        f"take it from the driver nvme: echo ADDRESS > {folder}ADDRESS/driver/unbind",
        "give it to vfio-pci: echo ADDRESS > /sys/bus/pci/drivers_probe",
    ]

    def named(what: str) -> list[str]:
        return [re.sub(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", "ADDRESS", line) for line in said[what]]

    assert said["dry"][-1] == "status 0; nvme; (null)"
    assert named("dry")[:3] == steps
    assert re.fullmatch("/dev/nvme.* has a swap.*", said["dry"][3])
    assert "cannot open /dev/vfio/vfio" in said["no vfio"][0]
    assert "it is swap" in said["swap"][0]
    assert "is in use" in said["held"][0]
    for refused in ("no vfio", "swap", "held"):
        assert said[refused][1:] == ["status 2; nvme; (null)"], said[refused]
    assert named("failed step")[:3] == steps
    assert "vfio-pci does not take it" in said["failed step"][3]
    assert said["failed step"][4:] == ["status 1; nvme; (null)"]
    assert named("attach")[:3] == steps
    assert said["attach"][-1] == "status 0; vfio-pci; vfio-pci"
    assert said["again"] == ["status 0; vfio-pci; vfio-pci"]
    assert "Permission denied" in said["nobody"][0]
    assert said["permitted"] == [f"opened: {DRIVE_BYTES} bytes", "status 0; vfio-pci; vfio-pci"]
    assert "it is taken already" in said["taken"][0]
    assert said["taken"][1:] == ["status 2; vfio-pci; vfio-pci"]
    assert named("detach")[:3] == [
        f"let the system choose its driver: echo > {folder}ADDRESS/driver_override",
        f"take it from the driver vfio-pci: echo ADDRESS > {folder}ADDRESS/driver/unbind",
        "give it to the driver that the system has for it: echo ADDRESS > /sys/bus/pci/drivers_probe",
    ]
    assert said["detach"][-1] == said["half attached"][-1] == "status 0; nvme; (null)"
    assert "no driver takes it" in said["failed detach"][-2]
    assert said["failed detach"][-1] == "status 1; vfio-pci; vfio-pci"
    assert "node is back" in lines
    assert said["detached"] == ["status 0; nvme; (null)"]


def test_without_an_iommu_nothing_is_attached(tmp_path):
    script = f"""
{SETUP["vfio"]}
binding_client attach $FOREBAY_PCI_DRIVE > /results/output 2>&1
echo "status $?; $(driver)" >> /results/output
"""
    said = boot(script, ["binding_client"], tmp_path).splitlines()
    assert "there is no IOMMU" in said[0]
    assert said[1] == "status 2; nvme"


def test_the_page_on_real_drives_does_what_it_says(tmp_path):
    need_a_guest("lspci")
    ran = real_drive.follow(guest.ROOT / "docs/how-to/real-drive.md", tmp_path)
    everything = "\n".join(f"$ {run.command}\n{run.output}[status {run.status}, driver {run.driver}]" for run in ran)
    print(everything)
    assert [run.status for run in ran] == [0] * len(ran), everything
    outputs = {" ".join(run.command.split()[:3]): run.output for run in ran}
    assert outputs["lspci -D -d"].startswith("0000:01:00.0 ")
    assert "nothing was found that would be refused" in outputs["forebay drive info"]
    assert [run.driver for run in ran if run.command.startswith("forebay drive attach")] == ["nvme", "vfio-pci"]
    assert [run.output.count("data verified") for run in ran if " bench " in run.command] == [1, 1, 1]
    assert [run.driver for run in ran[-2:]] == ["nvme", "nvme"]
