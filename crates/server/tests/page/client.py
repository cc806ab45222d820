"""A client of `plinth server`, written from docs/format/protocol.md alone: the page is whole if this works.

    python3 client.py HOST PORT

One conversation, each step checked; the last line says how many there were.
"""

import os
import socket
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def text(data):
    return struct.pack("<I", len(data)) + data


def optional(data):
    return b"\xff\xff\xff\xff" if data is None else text(data)


class Failure(Exception):
    pass


class Client:
    MAGIC = b"\x89PLNTH\r\n"

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port))
        content = struct.pack("<HHQ", 1, 2, 0) + text(b"") + text(b"page")
        self.socket.sendall(self.MAGIC + struct.pack("<II", len(content), crc32c(content)) + content)
        head = self.exactly(16)
        length, checksum = struct.unpack("<II", head[8:])
        welcome = self.exactly(length)
        assert head[:8] == self.MAGIC and crc32c(welcome) == checksum
        self.version, _, _, _, size = struct.unpack_from("<HHHQI", welcome)
        self.identity = welcome[18 : 18 + size]
        error, size = struct.unpack_from("<HI", welcome, 18 + size)
        if error:
            raise Failure(error, welcome[-size:])
        self.last_id = 0

    def exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "the server closed the connection"
            data += piece
        return data

    def ask(self, kind, body=b""):
        self.last_id += 1
        rest = struct.pack("<IIB3x", len(body), self.last_id, kind) + body
        self.socket.sendall(struct.pack("<I", crc32c(rest)) + rest)
        head = self.exactly(16)
        checksum, length, answers, reply = struct.unpack("<IIIB3x", head)
        body = self.exactly(length)
        assert crc32c(head[4:] + body) == checksum and answers == self.last_id
        if reply == 255:
            raise Failure(struct.unpack_from("<H", body)[0], body[2:])
        assert reply == kind + 128
        return body

    def read_version(self):
        return struct.unpack_from("<q", self.ask(2, struct.pack("<BBII", 1, 0, 1, 0)))[0]

    def commit(self, version, mutations, reads=(), identity=None):
        """Each mutation is a type and two parameters; the key of each is a write conflict range."""
        alone = lambda key: struct.pack("<II", len(key), 0xFFFFFFFF) + key
        lists = [
            b"".join(alone(key) for key in reads),
            b"".join(alone(key) for kind, key, _ in mutations if kind != 14),
            b"".join(struct.pack("<BII", kind, len(a), len(b)) + a + b for kind, a, b in mutations),
        ]
        body = struct.pack("<qB", version, 0) + optional(identity) + b"".join(map(text, lists))
        reply = self.ask(6, body)
        return struct.unpack("<qH", reply[1:]) if reply[0] == 0 else None

    def get(self, version, key, space=0):
        reply = self.ask(3, struct.pack("<qBI", version, space, 1) + text(key))
        size = struct.unpack_from("<I", reply, 4)[0]
        return None if size == 0xFFFFFFFF else reply[8 : 8 + size]

    def range(self, version, begin, end, space=0):
        """All rows from begin up to end, however many replies they take."""
        rows, more = [], True
        while more:
            selectors = b"".join(struct.pack("<Bi", 0, 1) + text(key) for key in (begin, end))
            head = struct.pack("<qBBII", version, space, 0, 0xFFFFFFFF, 0xFFFFFFFF)
            reply = self.ask(5, head + selectors)
            flags, count = struct.unpack_from("<BI", reply)
            ends = (0,) + struct.unpack_from("<%dI" % (2 * count), reply, 5)
            data = reply[5 + 8 * count :]
            parts = [data[a:b] for a, b in zip(ends, ends[1:])]
            rows += zip(parts[::2], parts[1::2])
            more = flags & 1
            if more:
                begin = rows[-1][0] + b"\0"
        return rows


def main():
    client = Client(sys.argv[1], int(sys.argv[2]))
    assert client.version == 2 and client.identity
    start = client.read_version()
    assert client.get(start, b"page/hello") is None
    version, _ = client.commit(start, [(0, b"page/hello", b"world"), (2, b"page/sum", b"\x05\0")])
    assert client.get(version, b"page/hello") == b"world"
    # A transaction that read before another wrote conflicts.
    assert client.commit(start, [(0, b"page/late", b"x")], reads=[b"page/hello"]) is None
    # More rows than one reply takes, and a sum.
    rows = [(0, b"page/row/%04d" % number, b"v" * 90) for number in range(2000)]
    version, _ = client.commit(client.read_version(), rows + [(2, b"page/sum", b"\xff\0")])
    assert client.range(version, b"page/row/", b"page/row0") == [(key, value) for _, key, value in rows]
    assert client.get(version, b"page/sum") == b"\x04\x01"
    # A versionstamp, and the record of the commit's idempotency id.
    identity = os.urandom(16)
    stamped = (14, b"page/at/" + bytes(10) + struct.pack("<I", 8), b"stamped")
    before = client.read_version()
    version, position = client.commit(before, [stamped], identity=identity)
    stamp = struct.pack(">qH", version, position)
    now = client.read_version()
    assert client.range(now, b"page/at/", b"page/at0") == [(b"page/at/" + stamp, b"stamped")]
    place = lambda version: b"\xff\x02/idmp/" + struct.pack(">q", version)
    record = client.range(now, place(before), place(before + 5_000_001), space=1)
    assert len(record) == 1 and record[0][0] == place(version) + stamp[8:9]
    assert record[0][1][:8] == bytes.fromhex("00000073b000db0f")
    assert record[0][1][16:] == bytes([16]) + identity + stamp[9:]
    try:
        client.get(-1, b"page/hello")
        raise AssertionError("a version before the first was readable")
    except Failure as failure:
        assert failure.args[0] == 1007
    client.ask(1)
    print("spoke", client.last_id, "times")


main()
