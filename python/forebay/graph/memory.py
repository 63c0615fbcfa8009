# SPDX-License-Identifier: Apache-2.0
"""Where the neighbour lists of a graph lie while an algorithm reads them, as text: `storage:cache_bytes=64M`."""

import difflib
from dataclasses import dataclass

from forebay._buffers import text
from forebay.errors import RefusedInput
from forebay.storage import build_info
from forebay.units import parse_size

CACHE_BYTES_DEFAULT = 64 << 20
PAGE_BYTES_DEFAULT = 4096
_NODE_MAX = 1023
_PAGE_MIN, _PAGE_MAX = 512, 1 << 16

# The keys of each kind. Those of external memory are known to the library alone.
_KEYS: dict[str, tuple[str, ...] | None] = {
    "hbm": (),
    "host": ("node",),
    "uvm": (),
    "storage": ("page_bytes", "cache_bytes"),
    "storage_direct": (),
    "external": None,
}
KINDS = tuple(_KEYS)
ON_DRIVES = ("storage", "storage_direct")
_NEED_A_GPU = {"hbm": "the GPU's own memory", "uvm": "managed memory, whose pages move to the GPU"}


@dataclass(frozen=True)
class Memory:
    """Where lists lie.

    Attributes:
        kind: One of ``KINDS``.
        node: Of ``host``: the NUMA node, or -1 for any.
        page_bytes: Of ``storage``: the size of a page of the cache in bytes, else 0.
        cache_bytes: Of ``storage``: the size of the cache in bytes, else 0.
        external: Of ``external``: its keys and values as they were given.
    """

    kind: str
    node: int = -1
    page_bytes: int = 0
    cache_bytes: int = 0
    external: str = ""

    @property
    def on_drives(self) -> bool:
        """Whether the lists lie on drives, and not in memory."""
        return self.kind in ON_DRIVES


def parse_memory(given: str, field: str = "memory") -> Memory:
    """Reads ``KIND`` or ``KIND:KEY=VALUE,...``.

    Args:
        given: The text: ``hbm``, ``host[:node=N]``, ``uvm``, ``storage[:page_bytes=SIZE,cache_bytes=SIZE]``,
            ``storage_direct`` or ``external[:KEY=VALUE,...]``. The library reads the keys of the last one later.
        field: What a refusal calls the text.

    Returns:
        What it says.

    Raises:
        RefusedInput: A kind or a key is unknown, which names the nearest; or a value is out of range.
    """
    kind, colon, rest = text(field, given).partition(":")
    if kind not in _KEYS:
        near = difflib.get_close_matches(kind.lower(), KINDS, 1, 0.0)[0]
        raise RefusedInput(field, given, f"must be one of {', '.join(KINDS)}; did you mean {near}?")
    known = _KEYS[kind]
    if known is None:
        return Memory(kind, external=rest)
    if colon and not known:
        raise RefusedInput(field, given, f"{kind} has no keys; leave '{colon}{rest}' out")
    if colon and not rest:
        raise RefusedInput(field, given, f"a key and a value must follow the colon, such as {kind}:{known[0]}=...")
    pairs = _pairs(given, rest, kind, known, field)
    if kind == "host":
        return Memory(kind, node=_node(given, pairs["node"], field) if "node" in pairs else -1)
    if kind == "storage":
        page = _page(given, pairs["page_bytes"], field) if "page_bytes" in pairs else PAGE_BYTES_DEFAULT
        cache = _size(given, pairs["cache_bytes"], field) if "cache_bytes" in pairs else CACHE_BYTES_DEFAULT
        if cache < page:
            raise RefusedInput(field, given, f"cache_bytes, {cache}, must be at least a page, {page} bytes")
        return Memory(kind, page_bytes=page, cache_bytes=cache)
    return Memory(kind)


def resolve_device(device: str, field: str = "device") -> str:
    """Returns the device that ``auto`` stands for, and any other one as it is.

    Args:
        device: ``auto``, ``cpu`` or ``cuda:N``.
        field: What a refusal calls it.

    Raises:
        RefusedInput: It is something else, or a GPU that this process cannot use.
        OperationFailed: The extension module does not load.
    """
    gpus = build_info()["gpus"]
    if text(field, device) == "auto":
        return gpus[0] if gpus else "cpu"
    if device != "cpu" and device not in gpus:
        there = f"the GPUs here are {', '.join(gpus)}" if gpus else "there is no GPU here"
        raise RefusedInput(field, device, f"must be auto, cpu or cuda:N, and {there}; see `forebay doctor`")
    return device


def require_device(memory: Memory, device: str, field: str = "memory") -> None:
    """Refuses a kind of memory that a device does not have.

    Args:
        memory: Where lists are to lie.
        device: ``cpu`` or ``cuda:N``.
        field: What the refusal calls the memory.

    Raises:
        RefusedInput: The memory is a GPU's, and the device is the CPU.
    """
    if device == "cpu" and memory.kind in _NEED_A_GPU:
        what = f"is {_NEED_A_GPU[memory.kind]}, and the threads run on the CPU"
        raise RefusedInput(field, memory.kind, f"{what}; use host, or a GPU with --device cuda:N")


def _pairs(given: str, rest: str, kind: str, known: tuple[str, ...], field: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in rest.split(",") if rest else ():
        key, equals, value = item.partition("=")
        if key not in known:
            near = difflib.get_close_matches(key.lower(), known, 1, 0.0)[0]
            raise RefusedInput(field, given, f"{kind} has no key '{key}'; did you mean {near}?")
        if not equals or not value:
            raise RefusedInput(field, given, f"{key} needs a value: write {key}=...")
        if key in found:
            raise RefusedInput(field, given, f"{key} is given twice; give it once")
        found[key] = value
    return found


def _node(given: str, value: str, field: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value[:9]) > _NODE_MAX or len(value) > 9:
        raise RefusedInput(field, given, f"node must be the number of a NUMA node, 0 to {_NODE_MAX}")
    return int(value)


def _size(given: str, value: str, field: str) -> int:
    try:
        return parse_size(field, value)
    except RefusedInput as refused:
        raise RefusedInput(field, given, f"'{value}' {refused.remedy}") from None


def _page(given: str, value: str, field: str) -> int:
    page = _size(given, value, field)
    if page & (page - 1) or not _PAGE_MIN <= page <= _PAGE_MAX:
        raise RefusedInput(field, given, f"page_bytes must be a power of two, {_PAGE_MIN} to {_PAGE_MAX}")
    return page
