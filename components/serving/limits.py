"""What a server takes of its clients before it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from components.core.errors import InputError


@dataclass(frozen=True)
class Limits:
    """The bounds of a request, of a client and of the whole server.

    Attributes:
        text: characters of a text; far more than a text tower reads.
        word: characters without white space between them; CLIP's tokenizer takes time by the square of them.
        texts: texts of a request.
        body: bytes of a request.
        rate: requests per second of a client, over its token or else its address; 0 for no limit.
        burst: requests that a client may send at once after a pause, as seconds of its rate.
        queue: texts that wait; requests beyond are refused, not kept.
        requests: requests that are read or answered at the same time.
        batch: texts that are computed together, more only where one request has more.
        cache: texts whose vectors are kept, by last use; 0 for none.
        headers_s: seconds for a request's head to come, and for an answer to be taken.
        body_s: seconds for a request's body to come.
        stop_s: seconds for accepted requests to be answered after a SIGTERM.
    """

    text: int = 1000
    word: int = 100
    texts: int = 256
    body: int = 256 * 1024
    rate: float = 100.0
    burst: float = 2.0
    queue: int = 1024
    requests: int = 1024
    batch: int = 64
    cache: int = 4096
    headers_s: float = 10.0
    body_s: float = 10.0
    stop_s: float = 30.0

    def __post_init__(self) -> None:
        least = {"texts": 1, "queue": self.texts, "batch": 1, "cache": 0, "rate": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(f"--{name} {getattr(self, name)} is too small: give at least {bound}")
