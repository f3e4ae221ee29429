"""The generator of Go's math/rand v1, by which the published experiment shuffled and sampled its pods.

An additive lagged Fibonacci generator: o(k) = o(k - 607) + o(k - 273) modulo 2**64. Go's table `rngCooked` (rng.go)
is the state after 7.8e12 steps from seed 1 (gen_cooked.go). Those steps are one multiplication by x**7.8e12 modulo
x**607 - x**334 - 1, which is computed by squaring.
"""

from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

_Value = TypeVar("_Value")

_LENGTH: Final = 607
_LAG: Final = 273
_STEPS: Final = 7_800_000_000_000
_WORD: Final = (1 << 64) - 1
_INT63: Final = (1 << 63) - 1
_UINT32: Final = (1 << 32) - 1
_LIMB: Final = 144
"""Bits that a sum of 607 products of two words needs, 138, in whole bytes."""
_MODULUS: Final = (1 << 31) - 1


class GoRandom:
    """`rand.New(rand.NewSource(seed))`."""

    def __init__(self, seed: int) -> None:
        words = _seed_words(seed, shifts=(40, 20), count=_LENGTH)
        self._state = [word ^ cooked for word, cooked in zip(words, _cooked(), strict=True)]
        self._tap = 0
        self._feed = _LENGTH - _LAG

    def int63(self) -> int:
        """Return the next non-negative 63-bit integer (Int63, and Int on 64-bit machines)."""
        self._tap = (self._tap or _LENGTH) - 1
        self._feed = (self._feed or _LENGTH) - 1
        value = (self._state[self._feed] + self._state[self._tap]) & _WORD
        self._state[self._feed] = value
        return value & _INT63

    def below(self, limit: int) -> int:
        """Return a number below a limit of at most 31 bits (Intn)."""
        if limit & (limit - 1) == 0:
            return (self.int63() >> 32) & (limit - 1)
        largest = (1 << 31) - 1 - (1 << 31) % limit
        value = self.int63() >> 32
        while value > largest:
            value = self.int63() >> 32
        return value % limit

    def shuffle(self, values: list[_Value]) -> None:
        """Shuffle in place (Shuffle)."""
        for i in range(len(values) - 1, 0, -1):
            j = self._below_by_product(i + 1)
            values[i], values[j] = values[j], values[i]

    def permutation(self, count: int) -> list[int]:
        """Return 0 … count - 1 in random order (Perm)."""
        order = [0] * count
        for i in range(count):
            j = self.below(i + 1)
            order[i] = order[j]
            order[j] = i
        return order

    def _below_by_product(self, limit: int) -> int:
        """Return a number below a limit by Lemire's method (int31n)."""
        product = (self.int63() >> 31) * limit
        if product & _UINT32 < limit:
            threshold = ((1 << 32) - limit) % limit
            while product & _UINT32 < threshold:
                product = (self.int63() >> 31) * limit
        return product >> 32


def _seed_words(seed: int, *, shifts: tuple[int, int], count: int) -> list[int]:
    """Return words of three numbers each of the minimal standard generator, of which the first 20 are dropped."""
    x = seed % _MODULUS or 89482311
    for _ in range(20):
        x = x * 48271 % _MODULUS
    words = []
    for _ in range(count):
        high = x = x * 48271 % _MODULUS
        middle = x = x * 48271 % _MODULUS
        x = x * 48271 % _MODULUS
        words.append((high << shifts[0] ^ middle << shifts[1] ^ x) & _WORD)
    return words


@cache
def _cooked() -> "Sequence[int]":
    """Return Go's table `rngCooked`, by position."""
    first = _LENGTH - _LAG
    initial = _seed_words(1, shifts=(20, 10), count=_LENGTH)
    # Output k overwrites position (first - k) mod 607: the initial words are outputs -606 to 0.
    outputs = [initial[(first - k) % _LENGTH] for k in range(1 - _LENGTH, 1)]
    for _ in range(_LENGTH - 1):
        outputs.append((outputs[-_LENGTH] + outputs[-_LAG]) & _WORD)
    power = _power_of_x(_STEPS)
    # Output n + t is the sum over i of power[i] * output[i + t]: a product of polynomials, one of them reversed.
    product = _product(power[::-1], outputs)
    last = product[_LENGTH - 1 : 2 * _LENGTH - 1]
    table = [0] * _LENGTH
    for offset, value in enumerate(last):
        table[(first - (_STEPS - _LENGTH + 1 + offset)) % _LENGTH] = value
    return table


def _power_of_x(exponent: int) -> list[int]:
    """Return x**exponent modulo x**607 - x**334 - 1, coefficients from the lowest."""
    power = [1] + [0] * (_LENGTH - 1)
    for bit in f"{exponent:b}":
        power = _reduced(_product(power, power))
        if bit == "1":
            power = _reduced([0, *power])
    return power


def _reduced(coefficients: list[int]) -> list[int]:
    for degree in range(len(coefficients) - 1, _LENGTH - 1, -1):
        value = coefficients.pop()
        for target in (degree - _LENGTH, degree - _LAG):
            coefficients[target] = (coefficients[target] + value) & _WORD
    return coefficients


def _product(left: "Sequence[int]", right: "Sequence[int]") -> list[int]:
    """Multiply polynomials over words: one multiplication of integers that hold a coefficient a limb."""
    size = _LIMB // 8
    count = len(left) + len(right) - 1
    packed = [
        int.from_bytes(b"".join(word.to_bytes(size, "little") for word in words), "little")
        for words in (left, right)
    ]
    limbs = (packed[0] * packed[1]).to_bytes(count * size, "little")
    return [int.from_bytes(limbs[i * size : i * size + 8], "little") for i in range(count)]
