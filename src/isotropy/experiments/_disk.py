"""On which kind of disk a file lies."""

import re
import subprocess
import sys
from pathlib import Path

NETWORK = frozenset(
    (
        *("afp", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fhgfs", "gfs", "gfs2", "gpfs"),
        *("glusterfs", "lustre", "macfuse_sshfs", "moosefs", "ncpfs", "nfs", "nfs4", "ocfs2"),
        *("orangefs", "osxfuse_sshfs", "panfs", "prl_fs", "pvfs2", "smb3", "smbfs", "sshfs"),
        *("vboxsf", "webdav", "wekafs", "fuse.ceph", "fuse.davfs", "fuse.gcsfuse"),
        *("fuse.glusterfs", "fuse.juicefs", "fuse.mfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
        "fuse.vmhgfs-fuse",
    )
)
"""Kinds of file systems on which a lock of one machine may be unknown to another."""


def network_kind(path: Path, mounts: str | None = None) -> str | None:
    """The kind of the network disk that a path lies on; None for a disk of this machine.

    Args:
        path: a file, which need not exist, or a folder.
        mounts: the machine's mounts, as `/proc/self/mounts` or `mount` prints them.

    Example:
        >>> network_kind(Path("/data/runs.db"), "server:/export /data nfs4 rw 0 0")
        'nfs4'
    """
    if mounts is None:
        mounts = _mounts()
    place, best, kind = path.resolve(), -1, ""
    for line in mounts.splitlines():
        point, found = _mount(line)
        # Of two mounts at one point the later one lies over the earlier.
        if place.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found
    return kind if kind in NETWORK else None


def _mounts() -> str:
    listed = Path("/proc/self/mounts")
    if listed.exists():
        return listed.read_text(errors="surrogateescape")
    if sys.platform == "win32":
        return ""
    return subprocess.run(["mount"], capture_output=True, text=True, check=False).stdout


def _mount(line: str) -> tuple[Path, str]:
    """The point and the kind of one mount."""
    if found := re.match(r".* on (/.*) \(([^,)]+)", line):  # as macOS prints it
        return Path(found[1]), found[2]
    _, point, kind, *_ = *line.split(" "), "", "", ""
    # Spaces and the like in a name are written in octal.
    plain = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), point)
    return Path(plain), kind
