"""Host b of the matrix: runs shell commands that host a sends, until a has ended.

One JSON object a line: {"run": "ip link ..."} gives {"status": 0, "output": "..."}; {"later": "..."} gives the same
at once and runs the command after that, for those that interrupt the connection. Segments are small, so that the
faults under test (lost long packets) do not take the tests' own connection.
"""
import json
import os
import select
import socket
import subprocess

PORT = 7400


def listen():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    listener.bind(("", PORT))
    listener.listen()
    return listener


def run(command):
    return subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)


def answer(stream, status, output):
    print(json.dumps({"status": status, "output": output}), file=stream, flush=True)


def main():
    listener = listen()
    while not os.path.exists(os.environ["RVGET_PEER_DONE"]):
        if not select.select([listener], [], [], 0.5)[0]:
            continue
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            for line in stream:
                asked = json.loads(line)
                if "later" in asked:
                    answer(stream, 0, "")
                    run(asked["later"])
                else:
                    ran = run(asked["run"])
                    answer(stream, ran.returncode, ran.stdout)


main()
