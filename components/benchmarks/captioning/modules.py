"""The two modules of CLIP4IDC on frozen features: what sees a pair, and what writes about it (Guo et al. 2022).

In the paper the last layers of CLIP's own image tower see both images at once and are fine-tuned; here a small
transformer above the frozen tower does.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from components.benchmarks.captioning.pairs import EDGE, MAX_WORDS

LAYERS = 2
DROPOUT = 0.1
_SMALL = 0.02
"""Deviation of what starts at random, as in BERT."""
_LOG_SCALE = math.log(1 / 0.07)
"""Of similarities before InfoNCE, as CLIP starts."""


class PairSeer(nn.Module):
    """Both pictures of a pair as one embedding in the space of texts, and as tokens for a writer.

    At the start the embedding is the feature of the second picture less that of the first, which is what PC-CLIP aligns
    differences of texts with; what attention finds in both pictures is learned on top of it. Texts have a matrix of
    their own, the identity at the start, where the paper fine-tunes the text tower.

    Args:
        tokens: of one picture.
        dim: of a token.
    """

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(tokens, dim) * _SMALL)
        self.which = nn.Parameter(torch.randn(2, 1, dim) * _SMALL)
        self.enter = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim))
        layer = nn.TransformerEncoderLayer(
            dim, _heads(dim), 4 * dim, DROPOUT, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.attended = nn.Linear(dim, dim)
        nn.init.zeros_(self.attended.weight)
        nn.init.zeros_(self.attended.bias)
        self.difference = nn.Linear(2 * dim, dim, bias=False)
        with torch.no_grad():
            self.difference.weight.copy_(torch.cat([-torch.eye(dim), torch.eye(dim)], dim=1))
        self.text = nn.Linear(dim, dim, bias=False)
        nn.init.eye_(self.text.weight)
        self.log_scale = nn.Parameter(torch.tensor(_LOG_SCALE))

    def texts(self, features: Tensor) -> Tensor:
        """Unit embeddings `[texts, dim]` of the text tower's features `[texts, dim]`."""
        return nn.functional.normalize(self.text(features), dim=-1)

    def forward(self, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """Visual tokens `[pairs, 2 * tokens, dim]` and unit embeddings `[pairs, dim]`.

        Args:
            before, after: tokens of the pictures `[pairs, tokens, dim]`, that of the whole picture first.
        """
        first, second = (self.enter(one) + self.places + self.which[row] for row, one in enumerate((before, after)))
        seen: Tensor = self.layers(torch.cat([first, second], dim=1))
        wholes = torch.stack([before[:, 0], after[:, 0]], dim=1)
        wholes = wholes + self.attended(seen[:, [0, before.shape[1]]])
        embedding = self.difference(wholes.flatten(1))
        return seen, nn.functional.normalize(embedding, dim=-1)


class Writer(nn.Module):
    """Sentences word by word, each from the words before it and the visual tokens of a pair.

    Args:
        words: vectors `[numbers, dim]` that the words start with; they also tell which word comes next.
    """

    def __init__(self, words: Tensor) -> None:
        super().__init__()
        dim = words.shape[1]
        self.words = nn.Embedding(words.shape[0], dim, _weight=words)
        self.places = nn.Parameter(torch.randn(MAX_WORDS + 1, dim) * _SMALL)
        layer = nn.TransformerDecoderLayer(
            dim, _heads(dim), 4 * dim, DROPOUT, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, LAYERS, nn.LayerNorm(dim))
        self.frequent = nn.Parameter(torch.zeros(len(words)))

    def forward(self, seen: Tensor, written: Tensor) -> Tensor:
        """Scores of the next word behind each place `[pairs, places, numbers]`.

        Args:
            seen: visual tokens `[pairs, 2 * tokens, dim]`.
            written: numbers of the words so far, the first being `EDGE`, `[pairs, places]`.
        """
        length = written.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=written.device).triu(1)
        states = self.layers(self.words(written) + self.places[:length], seen, tgt_mask=later, tgt_is_causal=True)
        scores: Tensor = states @ self.words.weight.T + self.frequent
        return scores

    @torch.inference_mode()
    def greedy(self, seen: Tensor) -> Tensor:
        """Numbers of the likeliest next words, one after the other, `[pairs, MAX_WORDS or fewer]`."""
        written = torch.full((len(seen), 1), EDGE, device=seen.device)
        ended = torch.zeros(len(seen), dtype=torch.bool, device=seen.device)
        while written.shape[1] <= MAX_WORDS and not ended.all():
            # PAD is no word: it was never an answer, so its score means nothing.
            following = self(seen, written)[:, -1, EDGE:].argmax(dim=-1) + EDGE
            written = torch.cat([written, following[:, None]], dim=1)
            ended |= following == EDGE
        return written[:, 1:]


def _heads(dim: int) -> int:
    """CLIP's 64 numbers for each head, but at least four heads; one where they do not go up."""
    return next(heads for heads in (max(dim // 64, 4), 4, 2, 1) if dim % heads == 0)
