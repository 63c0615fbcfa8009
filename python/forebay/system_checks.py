# SPDX-License-Identifier: Apache-2.0
"""What the operating system allows: checks of `forebay doctor`."""

import errno
import os
import re

from forebay.findings import MISSING, OK, WARNING, Check, Machine
from forebay.mounts import mount_of

_IN_MEMORY = ("tmpfs", "ramfs")
_CUFILE = ("libcufile.so.0", "/usr/local/cuda/lib64/libcufile.so.0")
_MEMLOCK_ENOUGH = 1 << 30


def container(machine: Machine) -> Check:
    """Whether this is a container, which hides a part of the machine."""
    seen = _container(machine)
    if not seen:
        return Check("container", OK, "none seen")
    return Check(
        "container",
        WARNING,
        seen,
        "what it does not pass on counts as missing here: devices, limits, system calls",
        "start it with what the checks below lack, such as --gpus all, --device /dev/vfio, --ulimit memlock=-1, "
        "--security-opt seccomp=FILE",
    )


def _container(machine: Machine) -> str:
    """What kind of container this is and what tells so; empty where nothing does."""
    for name, mark in (("docker", ".dockerenv"), ("podman", "run/.containerenv")):
        if (machine.root / mark).exists():
            return f"{name}, by /{mark}"
    if kind := re.search(r"(?:^|\0)container=([^\0]+)", machine.read("proc/1/environ") or ""):
        return f"{kind[1]}, by `container` in the environment of process 1"
    if kind := (machine.read("run/systemd/container") or "").strip():
        return f"{kind}, by /run/systemd/container"
    for groups in ("proc/1/cgroup", "proc/self/cgroup"):
        if kind := re.search(r"docker|kubepods|containerd|libpod|lxc", machine.read(groups) or ""):
            return f"{kind[0]}, by /{groups}"
    return ""


def lockdown(machine: Machine) -> Check:
    """Whether the kernel is locked down against root."""
    mode = re.search(r"\[(\w+)\]", machine.read("sys/kernel/security/lockdown") or "")
    if not mode:
        return Check("lockdown", OK, "none: no /sys/kernel/security/lockdown")
    if mode[1] == "none":
        return Check("lockdown", OK, "none")
    return Check(
        "lockdown",
        WARNING,
        mode[1],
        "no program may map the registers of a PCI device (resource0), root's neither; kernel modules must be signed",
        "bind drives to vfio-pci, or boot without lockdown: Secure Boot off, and no lockdown= on the kernel's command "
        "line",
    )


def memlock(machine: Machine) -> Check:
    """How much memory this process may lock."""
    limit = machine.memlock_bytes()
    if limit is None:
        return Check("memlock", OK, "unlimited")
    found = f"{limit // 1024} KiB"
    if limit >= _MEMLOCK_ENOUGH:
        return Check("memlock", OK, found)
    return Check(
        "memlock",
        WARNING,
        found,
        "VFIO locks the memory of queues and buffers of real drives, and io_uring that of registered buffers; only "
        "root may lock more",
        "ulimit -l unlimited, LimitMEMLOCK=infinity in a service, or --ulimit memlock=-1 of a container",
    )


def io_uring(machine: Machine) -> Check:
    """Whether io_uring can be set up."""
    error = machine.io_uring_errno()
    disabled = (machine.read("proc/sys/kernel/io_uring_disabled") or "0").strip()
    if error == 0:
        limited = "; only privileged processes may (kernel.io_uring_disabled is 1)" if disabled == "1" else ""
        return Check("io_uring", OK, f"can be set up{limited}")
    found = f"cannot be set up: {os.strerror(error)}"
    if disabled in ("1", "2") and error in (errno.EPERM, errno.EACCES):
        group = ", or join the group kernel.io_uring_group" if disabled == "1" else ""
        return Check(
            "io_uring",
            MISSING,
            found,
            f"the sysctl kernel.io_uring_disabled is {disabled}",
            f"sysctl kernel.io_uring_disabled=0{group}",
        )
    filtered = re.search(r"^Seccomp:\s*2$", machine.read("proc/self/status") or "", re.MULTILINE)
    if filtered and error in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        return Check(
            "io_uring",
            MISSING,
            found,
            "a seccomp filter of this process forbids the system call, as that of a container does by default",
            "start the container with --security-opt seccomp=FILE, whose FILE allows io_uring_setup, io_uring_enter "
            "and io_uring_register",
        )
    if error == errno.ENOSYS:
        return Check("io_uring", MISSING, found, "the kernel has none", "use Linux 5.1 or newer, with CONFIG_IO_URING")
    return Check(
        "io_uring",
        MISSING,
        found,
        "the system refuses it: a security module or a limit",
        "raise `ulimit -n` and `ulimit -l`; see what the kernel's log says (dmesg)",
    )


def o_direct(machine: Machine) -> Check:
    """Whether the file system of the machine's path passes by the page cache when it is asked to."""
    path = machine.path
    try:
        mount = mount_of(path, machine.read("proc/self/mountinfo") or "")
        path = path.resolve()
    except OSError:  # the working directory is gone
        mount = None
    kind = mount.type if mount else "a file system that is not known"
    where = f"{kind} at {path}"
    error = machine.direct_errno(path)
    if error in (errno.EINVAL, errno.EOPNOTSUPP):
        return Check(
            "o_direct",
            MISSING,
            f"not on {where}",
            "this file system has no O_DIRECT, so benchmarks of its files measure the page cache too",
            "put the files on ext4 or XFS, and ask for their folder with --path",
        )
    if error:
        return Check(
            "o_direct",
            WARNING,
            f"not tried on {where}",
            f"no file can be opened there: {os.strerror(error)}",
            "name a folder that you may write, or a file that you may read, with --path",
        )
    if kind in _IN_MEMORY:
        return Check(
            "o_direct",
            WARNING,
            f"on {where}",
            "its files lie in memory, and no drive is used",
            "put the files on a drive, and ask for their folder with --path",
        )
    return Check("o_direct", OK, f"on {where}")


def cufile(machine: Machine) -> Check:
    """Whether cuFile (GPUDirect Storage) can be used, and whether it can go past host memory."""
    library = next((name for name in _CUFILE if machine.loads(name)), None)
    driver = re.search(r"[\d.]+", machine.read("proc/driver/nvidia-fs/version") or "")
    if library is None:
        return Check(
            "cufile",
            MISSING,
            "no libcufile.so.0",
            "needed only for `forebay bench --ioengine cufile`",
            "install CUDA's package libcufile, or `pip install nvidia-cufile` and name its folder in LD_LIBRARY_PATH",
        )
    if driver:
        return Check("cufile", OK, f"{library}, driver nvidia-fs {driver[0]}")
    return Check(
        "cufile",
        WARNING,
        f"{library}, without the driver nvidia-fs",
        "data goes through host memory (compatibility mode), unless kernel and drive can do PCI P2PDMA",
        "install the package nvidia-gds and `modprobe nvidia-fs`; `bench --ioengine cufile` says which mode it got",
    )
