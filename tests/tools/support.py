"""What the tests of the rvget command share: running it, and a proxy that stalls at will."""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

COMMAND = os.environ["RVGET_COMMAND"]
LIMIT = 60  # seconds for what takes one or two; a sanitizer build on a busy machine takes longer

OK, OTHER, USAGE, NOT_FOUND, REFUSED, PATH, IO, CONNECTION, DEADLINE, RANGE, AUTHENTICATION = range(11)
MIB = 1 << 20

_PERIOD = bytes((i * 31 + (i >> 8)) & 0xFF for i in range(1 << 16))


def pattern(size):
    """Byte i is (i * 31 + (i >> 8)) & 0xff, which repeats every 65536 bytes."""
    return _PERIOD * (size >> 16) + _PERIOD[: size & 0xFFFF]


def run(*arguments, **options):
    """Runs the command to its end; output as bytes."""
    options.setdefault("stdin", subprocess.DEVNULL)
    if "stdout" not in options:
        options["stdout"] = subprocess.PIPE
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([COMMAND, *map(str, arguments)], timeout=LIMIT, check=False, **options)


def start(*arguments, **options):
    """Starts the command; the caller ends it."""
    for stream in ("stdout", "stderr"):
        options.setdefault(stream, subprocess.PIPE)
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("bufsize", 0)  # so that select() sees what readline() has not taken
    return subprocess.Popen([COMMAND, *map(str, arguments)], **options)


def values(line):
    """The pairs of a result line."""
    return dict(pair.split("=", 1) for pair in line.decode().split())


def read_line(stream):
    """One line of an unbuffered stream, within LIMIT."""
    ready, _, _ = select.select([stream], [], [], LIMIT)
    if not ready:
        raise TimeoutError("no line")
    return stream.readline()


class Case(unittest.TestCase):
    """A test with a directory of its own; what it starts is killed at its end."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="rvget-tools.")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def file(self, name, content):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def content(self, path):
        with open(path, "rb") as file:
            return file.read()

    def names(self, directory=None):
        return sorted(os.listdir(directory or self.directory))

    def serve(self, *arguments, lines=1, **options):
        """Starts to serve and returns the process and the lines that it printed."""
        options.setdefault("stderr", subprocess.DEVNULL)
        process = start("serve", *arguments, **options)
        self.addCleanup(self.end, process)
        printed = []
        for _ in range(lines):
            line = read_line(process.stdout).decode()
            self.assertTrue(line.endswith("\n"), f"serve ended after {printed}")
            printed.append(line[:-1])
        return process, printed

    def serve_url(self, *arguments, **options):
        process, printed = self.serve(*arguments, **options)
        return process, printed[0].split("  ")[0]

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def status_of(self, process):
        return process.wait(LIMIT)

    def assertStatus(self, finished, status):
        self.assertEqual(finished.returncode, status, (finished.stdout or b"")[:200] + (finished.stderr or b""))

    def assertOneError(self, finished, status, *words):
        """The status, and exactly one line "rvget: ..." that has the words."""
        self.assertStatus(finished, status)
        self.assertRegex(finished.stderr, rb"\Arvget: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, finished.stderr.decode())


def split(url):
    """(host, port, owner half, slot half)"""
    host, port, handle = re.fullmatch(r"rvget://(.+):(\d+)/([0-9a-f]{32})", url).groups()
    return host, int(port), handle[:16], handle[16:]


def with_port(url, port):
    host, _, owner, slot = split(url)
    return f"rvget://{host}:{port}/{owner}{slot}"


def other_half(half):
    """Another number of 16 digits."""
    return f"{int(half, 16) ^ 1:016x}"


class Proxy:
    """Passes on what one server says until it has passed `limit` bytes to the client, then nothing more; goes
    on to listen to the server, and closes the client's connection when the server closes its own."""

    def __init__(self, url, limit):
        host, port, _, _ = split(url)
        self._server = (host, port)
        self._limit = limit
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LIMIT)
        self.url = with_port(url, self._listener.getsockname()[1])
        self.stalled = threading.Event()
        self._released = threading.Event()
        self._sockets = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def release(self):
        """Passes on everything that was held back, and all that follows."""
        self._released.set()

    def close(self):
        hang_up(self._listener)
        for s in self._sockets:
            hang_up(s)
        for thread in self._threads:
            thread.join(LIMIT)
        for s in [self._listener, *self._sockets]:
            s.close()

    def _accept(self):
        try:
            self._sockets.append(self._listener.accept()[0])
            self._sockets.append(socket.create_connection(self._server))
        except OSError:
            return
        client, server = self._sockets
        self._threads.append(threading.Thread(target=self._pass_requests, args=(client, server)))
        self._threads[-1].start()
        self._pass_replies(server, client)

    def _pass_requests(self, client, server):
        try:
            while data := client.recv(1 << 16):
                server.sendall(data)
        except OSError:
            pass
        hang_up(server)

    def _pass_replies(self, server, client):
        passed = 0
        held = []
        try:
            while True:
                while held and (self._released.is_set() or passed < self._limit):
                    data = held.pop(0)
                    passed += len(data)
                    client.sendall(data)
                if passed >= self._limit:
                    self.stalled.set()
                # Looks up now and then for the release; what the test waits for is the event.
                if select.select([server], [], [], 0.05)[0]:
                    data = server.recv(1 << 16)
                    if not data:
                        break
                    held.append(data)
        except OSError:
            pass
        hang_up(client)


def hang_up(s):
    """Ends the connection although another thread waits in it; close() would wait for that thread."""
    try:
        s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    unittest.main()
