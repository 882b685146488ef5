"""The control groups of this process under Linux: a limit of any of them bounds it.

A service of systemd, for example, has its limits in its own group, and not in the root of the tree.
"""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_UNIFIED = "0::/"


def own_groups(own: Path = _OWN, root: Path = _ROOT) -> tuple[Path, ...]:
    """Return the folders of the process's group and of those around it, the root of all last."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return (root,)
    paths = [line.removeprefix(_UNIFIED) for line in lines if line.startswith(_UNIFIED)]
    folder = root / paths[0] if paths and ".." not in paths[0] else root
    around = [folder, *folder.parents]
    return tuple(around[: around.index(root) + 1])


def number(file: Path) -> int | None:
    """Return the number in a file of a group; ``None`` where there is none, or no limit."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
