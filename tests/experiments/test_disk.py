from pathlib import Path

import pytest

from isotropy.experiments._disk import network_kind

LINUX = """\
/dev/vda / ext4 rw 0 0
server:/export /home nfs4 rw 0 0
/dev/vdb /home/me/local xfs rw 0 0
//server/share /mnt/with\\040space cifs rw 0 0
scratch@tcp:/fs /scratch lustre rw 0 0
/dev/vdc /over ext4 rw 0 0
me@there: /over fuse.sshfs rw 0 0
tmpfs /homework tmpfs rw 0 0
"""
MAC = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
//me@server/share on /Volumes/share (smbfs, nodev, nosuid)
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/runs.db", None),
        ("/home/me/runs.db", "nfs4"),
        ("/home/me/local/runs.db", None),
        ("/homework/runs.db", None),
        ("/mnt/with space/deep/runs.db", "cifs"),
        ("/scratch/runs.db", "lustre"),
        ("/over/runs.db", "fuse.sshfs"),
    ],
)
def test_the_nearest_mount_decides(path, kind):
    assert network_kind(Path(path), LINUX) == kind


def test_mounts_of_a_mac():
    assert network_kind(Path("/Volumes/share/runs.db"), MAC) == "smbfs"
    assert network_kind(Path("/Users/me/runs.db"), MAC) is None


def test_this_disk_is_no_network_disk(tmp_path):
    assert network_kind(tmp_path / "runs.db") is None


def test_a_link_is_followed(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "link").symlink_to(there)
    mounts = f"/dev/vda / ext4 rw 0 0\nserver:/ {there} nfs rw 0 0"
    assert network_kind(tmp_path / "link" / "runs.db", mounts) == "nfs"
