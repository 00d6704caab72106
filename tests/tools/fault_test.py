"""Peers that do not speak the protocol, on either side."""

import os
import random
import socket
import struct
import threading
import time

from support import CONNECTION, LIMIT, MIB, OK, Case, main, pattern, run, split


class Garbage(Case):
    """Strangers at the port of `serve`. None of them disturbs a get, none gets a byte of the data."""

    def setUp(self):
        super().setUp()
        self.data = pattern(2 * MIB + 3)
        self.server, self.url = self.serve_url(self.file("in", self.data))
        self.at = ("127.0.0.1", split(self.url)[1])

    def connect(self):
        s = socket.create_connection(self.at, LIMIT)
        self.addCleanup(s.close)
        return s

    def refused(self, *pieces):
        """Says the pieces; the server hangs up, having said next to nothing."""
        s = self.connect()
        heard = b""
        try:
            for piece in pieces:
                s.sendall(piece)
            while part := s.recv(1 << 16):
                heard += part
        except ConnectionError:
            pass
        self.assertLess(len(heard), 1024)
        self.assertNotIn(self.data[:64], heard)

    def still_serves(self):
        finished = run("get", self.url)
        self.assertStatus(finished, OK)
        self.assertEqual(finished.stdout, self.data)
        self.assertIsNone(self.server.poll())

    def test_random_bytes_disturb_nobody(self):
        chance = random.Random(1)
        for size in (8, 9, 100, 5000, 200_000):
            # A first length that is beyond every limit: otherwise it would wait for more, as it should.
            self.refused(b"\xff\xff\xff\xff" + chance.randbytes(size))
        self.still_serves()

    def test_oversized_frame_disturbs_nobody(self):
        for head, payload in ((0xFFFFFFFF, 0), (64 * 1024 + 1, 0), (0, 0), (16, 0xFFFFFFFF)):
            self.refused(struct.pack("<II", head, payload))
        self.still_serves()

    def test_frame_of_noise_disturbs_nobody(self):
        chance = random.Random(2)
        for size in (1, 2, 10, 64, 4000):
            self.refused(struct.pack("<II", size, 0) + chance.randbytes(size))
        self.still_serves()

    def test_request_of_another_protocol_disturbs_nobody(self):
        self.refused(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
        self.still_serves()

    def test_half_open_connections_disturb_nobody_and_are_closed(self):
        silent = [self.connect() for _ in range(20)]
        for s in silent[:10]:
            s.sendall(b"\x20\x00\x00")
        self.still_serves()
        # The handshake has five seconds.
        began = time.monotonic()
        for s in silent:
            self.assertEqual(s.recv(1), b"")
        self.assertLess(time.monotonic() - began, LIMIT)
        self.still_serves()

    def test_connections_that_are_reset_disturb_nobody(self):
        for _ in range(50):
            s = self.connect()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.sendall(b"\x20\x00\x00\x00")
            s.close()
        self.still_serves()

    def test_noise_during_a_get_does_not_change_its_bytes(self):
        over = threading.Event()

        def make_noise():
            chance = random.Random(3)
            while not over.is_set():
                try:
                    with socket.create_connection(self.at, LIMIT) as s:
                        s.sendall(b"\xff\xff\xff\xff" + chance.randbytes(1000))
                        s.recv(1)
                except OSError:
                    pass

        noise = threading.Thread(target=make_noise)
        noise.start()
        try:
            for _ in range(5):
                self.still_serves()
        finally:
            over.set()
            noise.join(LIMIT)


class Impostor(Case):
    """Somebody at the address who is no owner."""

    def answered_with(self, behave):
        """What a get says of a server that does `behave(connection)` with its one connection."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        held = []

        def serve_once():
            connection, _ = listener.accept()
            held.append(connection)
            behave(connection)

        thread = threading.Thread(target=serve_once)
        thread.start()
        port = listener.getsockname()[1]
        finished = run("get", f"rvget://127.0.0.1:{port}/{'1' * 32}", "-o", self.path("out"))
        thread.join(LIMIT)
        for connection in held:
            connection.close()
        self.assertOneError(finished, CONNECTION, f"127.0.0.1:{port}")
        self.assertEqual(self.names(), [])

    def test_noise_is_a_connection_error(self):
        self.answered_with(lambda c: c.sendall(b"\xff\xff\xff\xff" + os.urandom(4096)))

    def test_another_protocol_is_a_connection_error(self):
        self.answered_with(lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))

    def test_hanging_up_is_a_connection_error(self):
        self.answered_with(lambda c: c.shutdown(socket.SHUT_RDWR))

    def test_silence_is_a_connection_error(self):
        self.answered_with(lambda c: None)


if __name__ == "__main__":
    main()
