"""A shard of the work of a stage or a prompt task, such as `1/4`, for workers that do not communicate."""

from __future__ import annotations

from dataclasses import dataclass

from components.core.system.errors import InputError


@dataclass(frozen=True)
class Shard:
    """Every `of`-th row or part from `number` on: the unit of work of a worker."""

    number: int = 0
    of: int = 1

    @staticmethod
    def parse(text: str) -> Shard:
        """Read `1/4`, the second of four shards; raises `InputError` if the text is not a shard."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and int(number) < int(of)):
            raise InputError(f"--shard {text} is not a shard: give for example 0/4, the first of four")
        return Shard(int(number), int(of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"
