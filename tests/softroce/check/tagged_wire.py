"""tagged_wire PEER: a wire between the two hosts' tap0, over UDP to this address; until tap0 is deleted.

For frames with VLAN tags: the bench's own wire loses the tags (User Mode Linux reads it from a packet socket, which strips
them and tells of them in a message that its driver does not read). Returns at once; the work goes on behind.
"""
import fcntl
import os
import select
import socket
import struct
import sys

PORT = 7401
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SO_RCVBUFFORCE = 33


def carry(tap, wire, peer):
    while True:
        for ready in select.select([tap, wire], [], [])[0]:
            if ready == tap:
                try:
                    frame = os.read(tap, 65536)
                except OSError:
                    return  # tap0 was deleted
                try:
                    wire.sendto(frame, (peer, PORT))
                except OSError:
                    pass  # no way to the peer yet: a frame lost
            else:
                try:
                    os.write(tap, wire.recv(65536))
                except OSError:
                    pass  # tap0 is down


def main(peer):
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"tap0", IFF_TAP | IFF_NO_PI))
    wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    wire.bind(("", PORT))
    if os.fork() == 0:
        os.setsid()
        carry(tap, wire, peer)


main(*sys.argv[1:])
