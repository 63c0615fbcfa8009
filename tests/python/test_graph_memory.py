# SPDX-License-Identifier: Apache-2.0
"""Places of neighbour lists, as text."""

import pytest
from forebay import RefusedInput, build_info
from forebay.graph.memory import KINDS, Memory, parse_memory, require_device, resolve_device

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("hbm", Memory("hbm")),
        ("host", Memory("host")),
        ("host:node=0", Memory("host", node=0)),
        ("host:node=17", Memory("host", node=17)),
        ("uvm", Memory("uvm")),
        ("storage", Memory("storage", page_bytes=4096, cache_bytes=64 * MIB)),
        ("storage:cache_bytes=2M", Memory("storage", page_bytes=4096, cache_bytes=2 * MIB)),
        ("storage:page_bytes=512,cache_bytes=1G", Memory("storage", page_bytes=512, cache_bytes=1024 * MIB)),
        ("storage_direct", Memory("storage_direct")),
        ("external", Memory("external")),
        ("external:latency_us=2,alignment=32", Memory("external", external="latency_us=2,alignment=32")),
    ],
)
def test_a_place_is_read(text, memory):
    assert parse_memory(text) == memory


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "must be one of"),
        ("hots", "did you mean host?"),
        ("storage-direct", "did you mean storage_direct?"),
        ("HBM", "did you mean hbm?"),
        ("hbm:node=0", "hbm has no keys"),
        ("uvm:", "uvm has no keys"),
        ("storage_direct:cache_bytes=1M", "storage_direct has no keys"),
        ("host:", "must follow the colon"),
        ("host:nod=1", "did you mean node?"),
        ("host:node", "node needs a value"),
        ("host:node=", "node needs a value"),
        ("host:node=-1", "number of a NUMA node"),
        ("host:node=1024", "number of a NUMA node"),
        ("host:node=9999999999999999999", "number of a NUMA node"),
        ("host:node=1,node=1", "given twice"),
        ("storage:cache=1M", "did you mean cache_bytes?"),
        ("storage:cache_bytes=much", "is not a size"),
        ("storage:page_bytes=1000", "power of two"),
        ("storage:page_bytes=256", "512 to 65536"),
        ("storage:cache_bytes=2K", "at least a page"),
        ("storage:page_bytes=4K,", "has no key ''"),
        ("host\0", "NUL"),
    ],
)
def test_what_is_no_place_is_refused(text, remedy):
    with pytest.raises(RefusedInput) as refused:
        parse_memory(text, "--memory")
    assert refused.value.field == "--memory"
    assert remedy in refused.value.remedy


def test_only_a_gpu_has_some_kinds():
    for kind in KINDS:
        require_device(Memory(kind), "cuda:0")
        if kind in ("hbm", "uvm"):
            with pytest.raises(RefusedInput, match="use host, or a GPU"):
                require_device(Memory(kind), "cpu")
        else:
            require_device(Memory(kind), "cpu")


def test_a_device_is_one_that_is_here():
    gpus = build_info()["gpus"]
    assert resolve_device("auto") == (gpus[0] if gpus else "cpu")
    assert resolve_device("cpu") == "cpu"
    for wrong in ("gpu", "cuda:99", "cuda", ""):
        with pytest.raises(RefusedInput, match="forebay doctor"):
            resolve_device(wrong)
