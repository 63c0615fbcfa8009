# SPDX-License-Identifier: Apache-2.0
from forebay.mounts import Mount, mount_of

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:40 / /data rw,relatime shared:1 - xfs /dev/nvme0n1p1 rw
31 30 0:41 / /data/my\\040disk rw,relatime shared:1 master:2 - btrfs /dev/sdb rw
32 27 0:42 / /data rw - tmpfs tmpfs rw
a line that is none
"""


def test_the_longest_mount_point_counts():
    assert mount_of("/etc/passwd", MOUNTS) == Mount("/", "ext4", "/dev/vda")
    assert mount_of("/data/my disk/x", MOUNTS) == Mount("/data/my disk", "btrfs", "/dev/sdb")
    assert mount_of("/database", MOUNTS).point == "/"


def test_a_later_mount_hides_an_earlier_one():
    assert mount_of("/data/file", MOUNTS).type == "tmpfs"


def test_links_are_followed(tmp_path):
    (tmp_path / "link").symlink_to("/proc/self")
    assert mount_of(tmp_path / "link", MOUNTS).type == "proc"


def test_nothing_is_known_without_mounts():
    assert mount_of("/", "") is None
