"""Checks which hosts a phone trusts, with adb's RSA keys."""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass

# Prefix of a SHA-1 digest in PKCS 1 v1.5 (RFC 8017, 9.2, note 1). adb signs the token as if it were a digest.
_SHA1 = bytes.fromhex("3021300906052b0e03021a05000414")
TOKEN_SIZE = 20


@dataclass(frozen=True)
class PublicKey:
    """An RSA key of a host."""

    modulus: int
    exponent: int
    size: int

    @classmethod
    def parse(cls, line: str | bytes) -> PublicKey | None:
        """Parses a key in the form of `adbkey.pub`; returns None for anything else.

        The base64 text contains: words in the modulus, -1/n mod 2^32, the modulus, R^2 mod n, the exponent, all
        little-endian.
        """
        text = line.encode() if isinstance(line, str) else line
        words = text.strip(b"\0\n ").split()
        try:
            blob = base64.b64decode(words[0], validate=True)
            (count,) = struct.unpack_from("<I", blob)
            (exponent,) = struct.unpack_from("<I", blob, 8 + 8 * count)
        except (IndexError, binascii.Error, struct.error):
            return None
        size = 4 * count
        modulus = int.from_bytes(blob[8 : 8 + size], "little")
        return cls(modulus, exponent, size) if modulus > 1 else None

    def signed(self, token: bytes, signature: bytes) -> bool:
        """Returns whether this key's owner signed the token."""
        padding = b"\xff" * (self.size - 3 - len(_SHA1) - len(token))
        expected = b"\0\1" + padding + b"\0" + _SHA1 + token
        found = pow(int.from_bytes(signature, "big"), self.exponent, self.modulus)
        return found.to_bytes(self.size, "big") == expected
