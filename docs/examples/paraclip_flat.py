"""ParaCLIP in one file: fine-tune the text tower of an open_clip model on captions and their two-step paraphrases.

    python docs/examples/paraclip_flat.py ViT-B-32 tuned.safetensors --pretrained openai
    python docs/examples/paraclip_flat.py local-dir:exported tuned.safetensors --lr 1e-5 --batch-size 256 --epochs 4

Kim et al., Fine-tuning CLIP Text Encoders with Two-step Paraphrasing, EACL Findings 2024. Section 2.2 has the losses,
appendix A the defaults; betas, eps and the parameters that decay are CLIP's. A test compares the losses and weights
with those of stage `train`. The stage adds warm-up, micro-batches, several GPUs, mixed precision, checkpoints, early
metrics, SigLIP's loss, and pairs that are weighted or not negatives of each other.
"""

import argparse
from collections.abc import Callable, Iterator
from io import BytesIO

import numpy as np
import open_clip
import pandas as pd
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

TEXTS = ["caption", "paraphrase_1", "paraphrase_2"]
"""x, its plain paraphrase x', and the paraphrase x'' of x'."""


def read_rows(pairs: str, paraphrases: str) -> pd.DataFrame:
    """Pairs of an image and a caption with its paraphrases; `image` is the encoded picture, or else `file` its path."""
    pictures = pd.read_parquet(pairs, columns=["id", "image_id", "image", "file"])
    return pd.read_parquet(paraphrases, columns=["id", *TEXTS]).merge(pictures, on="id")


@torch.no_grad()
def embed_images(model: torch.nn.Module, preprocess: Callable, images: pd.DataFrame, device: str) -> Tensor:
    """Unit features `[images, dim]`, computed once: the image tower is frozen."""
    parts = []
    for start in range(0, len(images), 256):
        block = images[start : start + 256]
        files = [file if raw is None else BytesIO(raw) for raw, file in zip(block.image, block.file, strict=True)]
        pixels = torch.stack([preprocess(Image.open(file)) for file in files])  # noqa: TID251
        parts.append(model.encode_image(pixels.to(device), normalize=True))
    return torch.cat(parts)


def info_nce(first: Tensor, second: Tensor, scale: Tensor) -> Tensor:
    """The mean cross-entropy of both directions between unit rows `[batch, dim]` that match one to one."""
    logits, own = scale * first @ second.T, torch.arange(len(first), device=first.device)
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


def losses(model: torch.nn.Module, images: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """L1(image, x''), L2(x, x') and L3(x', x'').

    Args:
        images: unit features `[batch, dim]`.
        tokens: token ids of x, x' and x'', `[3, batch, context]`.
    """
    features = model.encode_text(tokens.flatten(0, 1), normalize=True)
    x, x1, x2 = features.unflatten(0, tokens.shape[:2])
    scale = model.logit_scale.exp()
    return {"l1_second": info_nce(images, x2, scale), "l2": info_nce(x, x1, scale), "l3": info_nce(x1, x2, scale)}


def batches(image_of: np.ndarray, size: int, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """Row numbers. An epoch visits every image once, by one of its rows drawn at random, so no two captions match."""
    rng = np.random.default_rng([seed, epoch])
    rows = rng.permutation(len(image_of))
    rows = rows[np.unique(image_of[rows], return_index=True)[1]]
    rng.shuffle(rows)
    for start in range(0, len(rows) - size + 1, size):
        yield rows[start : start + size]


def optimiser_of(model: torch.nn.Module, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over everything except the image tower; norms, biases and the logit scale do not decay."""
    model.visual.requires_grad_(False)
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    decays = [weights for weights in trained if weights.ndim > 1]
    others = [weights for weights in trained if weights.ndim <= 1]
    groups = [{"params": decays, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), eps=1e-6)


def main(given: list[str] | None = None) -> list[dict[str, float]]:
    """Train and save; returns the losses of each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name of an open_clip model, or local-dir:<folder>")
    parser.add_argument("output", help="file of the trained weights")
    parser.add_argument("--pretrained", help="name of open_clip's weights, or their file")
    parser.add_argument("--pairs", default="data/pairs/train.parquet")
    parser.add_argument("--paraphrases", default="data/validated/paraclip/paraphrases.parquet")
    for name, value in {"lr": 5e-7, "batch-size": 3072, "epochs": 1, "weight-decay": 0.001, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    args = parser.parse_args(given)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, _, preprocess = open_clip.create_model_and_transforms(args.model, args.pretrained, device=device)
    model.eval()  # no dropout

    rows, tokenizer = read_rows(args.pairs, args.paraphrases), open_clip.get_tokenizer(args.model)
    tokens = torch.stack([tokenizer(rows[column].tolist()) for column in TEXTS])
    image_of, _ = pd.factorize(rows.image_id)
    images = embed_images(model, preprocess, rows.drop_duplicates("image_id"), device)

    optimiser = optimiser_of(model, args.lr, args.weight_decay)
    steps = len(images) // args.batch_size * args.epochs
    if not steps:
        parser.error(f"{len(images)} images are fewer than --batch-size {args.batch_size}: lower it")
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
    history = []
    for epoch in range(args.epochs):
        for batch in batches(image_of, args.batch_size, args.seed, epoch):
            terms = losses(model, images[image_of[batch]], tokens[:, batch].to(device))
            optimiser.zero_grad()
            sum(terms.values()).backward()
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0, np.log(100))
            history.append({name: loss.item() for name, loss in terms.items()})
            print(f"step {len(history)} of {steps}: {history[-1]}")

    save_file({name: weights.contiguous() for name, weights in model.state_dict().items()}, args.output)
    print(f"open_clip.create_model_and_transforms({args.model!r}, {args.output!r}) loads it")
    return history


if __name__ == "__main__":
    main()
