"""SEAL's operations on CKKS ciphertexts, through TenSEAL's own binding, each of them counted.

TenSEAL's tensors rescale after every product. Here products are added first and rescaled once,
and weights are encoded with the modulus that the rescale divides by as their scale, so that the
scale of a ciphertext does not change in a map.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tenseal import sealapi

from onnxfde.machines.engines.ckks_parameters import CkksParameters
from onnxfde.numbers import Array

Ciphertext = Any
Plaintext = Any
GENERATOR = 3
"""A rotation by k slots is the automorphism with 3^k (SEAL)."""


class Seal:
    """Keys for one set of parameters, and the operations that were issued."""

    def __init__(self, parameters: CkksParameters, rotations: Iterable[int] = ()) -> None:
        """Make keys, those for rotations by so many slots included."""
        self.parameters = parameters
        self.counts: Counter[str] = Counter()
        found = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.CKKS)
        found.set_poly_modulus_degree(parameters.degree)
        found.set_coeff_modulus(sealapi.CoeffModulus.Create(parameters.degree, parameters.moduli))
        self.context = sealapi.SEALContext(found, True, sealapi.SEC_LEVEL_TYPE.TC128)
        generator = sealapi.KeyGenerator(self.context)
        self.public, self.relinearization = sealapi.PublicKey(), sealapi.RelinKeys()
        generator.create_public_key(self.public)
        generator.create_relin_keys(self.relinearization)
        steps = sorted({step for step in rotations if step})
        self.rotation_keys = sealapi.GaloisKeys()
        self.has_rotations = bool(steps)
        if steps:
            elements = [pow(GENERATOR, step, 2 * parameters.degree) for step in steps]
            generator.create_galois_keys(elements, self.rotation_keys)
        self.encoder = sealapi.CKKSEncoder(self.context)
        self.encryptor = sealapi.Encryptor(self.context, self.public)
        self.evaluator = sealapi.Evaluator(self.context)
        self.decryptor = sealapi.Decryptor(self.context, generator.secret_key())
        self.scale = 2.0**parameters.scale_bits
        self.places, self.primes = [], []
        data = self.context.first_context_data()
        for _ in range(parameters.levels + 1):
            self.places.append(data.parms_id())
            self.primes.append(float(data.parms().coeff_modulus()[-1].value()))
            data = data.next_context_data()

    def encrypted(self, values: Array) -> Ciphertext:
        """Numbers in the first slots of a ciphertext."""
        plain, found = sealapi.Plaintext(), sealapi.Ciphertext(self.context)
        self.encoder.encode(values.tolist(), self.scale, plain)
        self.encryptor.encrypt(plain, found)
        return found

    def decrypted(self, ciphertext: Ciphertext) -> Array:
        """The numbers in the slots of a ciphertext."""
        plain = sealapi.Plaintext()
        self.decryptor.decrypt(ciphertext, plain)
        return np.array(self.encoder.decode_double(plain))

    def encoded(self, values: float | list[float], level: int, scale: float) -> Plaintext | None:
        """A number in all slots, or a number for each; None if all of them are as good as 0."""
        plain = sealapi.Plaintext()
        self.encoder.encode(values, self.places[level], scale, plain)
        return None if plain.is_zero() else plain

    def summed_products(
        self, factors: Iterable[tuple[Ciphertext, Plaintext | None]]
    ) -> Ciphertext | None:
        """Σ ciphertext · plaintext, without those that are 0; None if all are."""
        total, product = None, sealapi.Ciphertext(self.context)
        for ciphertext, plain in factors:
            if plain is None:
                continue
            self.counts["plain_multiplications"] += 1
            if total is None:
                total = sealapi.Ciphertext(self.context)
                self.evaluator.multiply_plain(ciphertext, plain, total)
            else:
                self.evaluator.multiply_plain(ciphertext, plain, product)
                self.evaluator.add_inplace(total, product)
        return total

    def added(self, parts: Sequence[Ciphertext | None]) -> Ciphertext | None:
        """The sum of those that are there; changes the first of them."""
        there = [part for part in parts if part is not None]
        for part in there[1:]:
            self.evaluator.add_inplace(there[0], part)
        return there[0] if there else None

    def rescaled(self, ciphertext: Ciphertext | None, level: int, scale: float) -> Ciphertext:
        """A sum one level further down; an encrypted 0 of this scale if there is no sum."""
        if ciphertext is None:
            found = sealapi.Ciphertext(self.context)
            self.encryptor.encrypt_zero(self.places[level], found)
            found.scale = scale
            return found
        self.counts["rescales"] += 1
        self.evaluator.rescale_to_next_inplace(ciphertext)
        return ciphertext

    def add_numbers(
        self, ciphertext: Ciphertext, values: float | list[float], level: int
    ) -> Ciphertext:
        """Add a number to all slots, or a number to each."""
        plain = self.encoded(values, level, ciphertext.scale)
        if plain is not None:
            self.evaluator.add_plain_inplace(ciphertext, plain)
        return ciphertext

    def product(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """The product of two ciphertexts of one level, rescaled."""
        found = sealapi.Ciphertext(self.context)
        self.counts["ciphertext_multiplications"] += 1
        if first is second:
            self.evaluator.square(first, found)
        else:
            self.evaluator.multiply(first, second, found)
        self.evaluator.relinearize_inplace(found, self.relinearization)
        return self.rescaled(found, 0, 0.0)

    def lowered(self, ciphertext: Ciphertext, level: int) -> Ciphertext:
        """The same numbers at a lower level."""
        found = sealapi.Ciphertext(self.context)
        self.evaluator.mod_switch_to(ciphertext, self.places[level], found)
        return found

    def rotated(self, ciphertext: Ciphertext, step: int) -> Ciphertext:
        """The slots moved to the front by a step."""
        if step == 0:
            return ciphertext
        found = sealapi.Ciphertext(self.context)
        self.counts["rotations"] += 1
        self.evaluator.rotate_vector(ciphertext, step, self.rotation_keys, found)
        return found

    def key_bytes(self) -> dict[str, int]:
        """What a server has to store of each kind of key."""
        found = {"public key": self.public, "relinearization keys": self.relinearization}
        if self.has_rotations:
            found["rotation keys"] = self.rotation_keys
        return {name: saved_bytes(key) for name, key in found.items()}


def saved_bytes(value: Any) -> int:
    """The size of something as SEAL writes it."""
    with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder:
        file = Path(folder) / "value"
        value.save(str(file))
        return file.stat().st_size
