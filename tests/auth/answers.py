#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Prints the known answers of auth_test.c: the same proofs, from Python's hmac.
import hashlib
import hmac
import struct


def field(b):
    return struct.pack("<I", len(b)) + b


def mac(key, side, rank, name, session):
    text = field(b"gradslot 1 " + side)
    text += field(bytes(range(32))) + field(bytes(range(100, 132)))
    text += field(struct.pack("<I", 2)) + field(struct.pack("<i", rank))
    text += field(name) + field(session) + field(bytes(range(150, 214)))
    return hmac.new(key, text, hashlib.sha256).hexdigest()


short = bytes(range(1, 17))
long = bytes(i * 7 % 256 for i in range(4096))
print(mac(short, b"trainer", 3, b"worker", bytes(range(200, 216))))
print(mac(short, b"server", 3, b"worker", bytes(range(200, 216))))
print(mac(long, b"trainer", -1, b"", b""))
print(mac(long, b"server", -1, b"", b""))
