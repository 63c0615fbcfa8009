# SPDX-License-Identifier: Apache-2.0
"""A client of the NBD protocol that sends exactly what a test wants, as many requests at once as it wants.

The numbers are those of https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md.
"""

import contextlib
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

READ, WRITE, DISCONNECT, FLUSH, TRIM, WRITE_ZEROES = 0, 1, 2, 3, 4, 6
FUA = 1

_OPTION_GO = 7
_REPLY_ACK, _REPLY_INFO = 1, 3


class Client:
    """One connection to a server at a Unix socket."""

    def __init__(self, path: Path | str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(str(path))
        self._reads: dict[int, int] = {}
        self._next = 1
        assert self._take(16) == b"NBDMAGICIHAVEOPT"
        self._take(2)
        self._socket.sendall(struct.pack(">I", 3))
        self._socket.sendall(struct.pack(">8sIIIH", b"IHAVEOPT", _OPTION_GO, 6, 0, 0))
        while True:
            _, _, kind, length = struct.unpack(">QIII", self._take(20))
            data = self._take(length)
            if kind == _REPLY_ACK:
                break
            assert kind == _REPLY_INFO, hex(kind)
            if data[:2] == b"\0\0":
                self.size_bytes = struct.unpack(">Q", data[2:10])[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with self._socket, contextlib.suppress(OSError):  # the server may have gone
            self.send(DISCONNECT)

    def send(self, command: int, offset: int = 0, length: int = 0, data: bytes = b"", flags: int = 0) -> int:
        """Starts a request; returns the cookie that its reply has."""
        cookie, self._next = self._next, self._next + 1
        if command == READ:
            self._reads[cookie] = length
        header = struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length or len(data))
        self._socket.sendall(header + data)
        return cookie

    def receive(self) -> tuple[int, int, bytes]:
        """The next reply: its cookie, the error (0: none) and what was read."""
        magic, error, cookie = struct.unpack(">IIQ", self._take(16))
        assert magic == 0x67446698
        length = self._reads.pop(cookie, 0)
        return cookie, error, b"" if error else self._take(length)

    def call(self, command: int, offset: int = 0, length: int = 0, data: bytes = b"", flags: int = 0) -> int:
        """One request, waited for; returns the error."""
        cookie = self.send(command, offset, length, data, flags)
        answered, error, _ = self.receive()
        assert answered == cookie
        return error

    def read(self, offset: int, length: int) -> bytes:
        """What is there; the read must not fail."""
        self.send(READ, offset, length)
        _, error, data = self.receive()
        assert error == 0
        return data

    def _take(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count:
            more = self._socket.recv(count - len(taken))
            assert more, "the server closed the connection"
            taken += more
        return taken
