# SPDX-License-Identifier: Apache-2.0
import tracemalloc

import pytest
from forebay import RefusedInput, documents


def read(tmp_path, data):
    (tmp_path / "a.json").write_bytes(data)
    return documents.read_json("fio", tmp_path / "a.json", "write it again")


def test_a_document_is_read(tmp_path):
    assert read(tmp_path, b'fio: a warning\n{"a": ["[[[[", "\\"{{", 1]}') == {"a": ["[[[[", '"{{', 1]}


@pytest.mark.parametrize("depth", [documents.DEPTH_MAX, documents.DEPTH_MAX + 1])
@pytest.mark.parametrize("text", ["[]", '["[",{"a\\\\":1}]'])
def test_a_document_nested_too_deep_is_refused(tmp_path, depth, text):
    extra = text.count("{")
    data = ("[" * (depth - 1 - extra) + text + "]" * (depth - 1 - extra)).encode()
    if depth == documents.DEPTH_MAX:
        assert isinstance(read(tmp_path, data), list)
    else:
        with pytest.raises(RefusedInput, match="nested more than 64 deep; write it again"):
            read(tmp_path, data)


@pytest.mark.parametrize("data", [b"[" * (16 << 20), b'{"a":' * (4 << 20), b'"' + b'\\"[' * (4 << 20)])
def test_a_document_of_brackets_takes_little_memory(tmp_path, data):
    tracemalloc.start()
    try:
        with pytest.raises(RefusedInput):
            read(tmp_path, data)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(data)
    finally:
        tracemalloc.stop()


def test_a_document_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "SIZE_MAX", 1 << 20)
    with pytest.raises(RefusedInput, match=r"larger than 1[.]0 MiB, the limit; write it again"):
        read(tmp_path, b" " * ((1 << 20) + 1))
