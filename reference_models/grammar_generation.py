"""The grammar reference's model as transformers calls one, with a cache of keys and values."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reference_models.grammar import HEADS, Block, ByteGPT

Cache = tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True)
class Generated:
    """Logits (B, T, 256), and keys and values of each layer so far, (B, H, T', D) each."""

    logits: Tensor
    past_key_values: Cache | None


class CachedByteGPT(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Bytes after those that the cache has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ByteGPT()

    def forward(
        self, input_ids: Tensor, past_key_values: Cache | None = None, use_cache: bool = True
    ) -> Generated:
        """Map bytes (B, T) to the logits of the byte after each."""
        seen = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        places = torch.arange(seen, seen + input_ids.shape[1], device=input_ids.device)
        x = self.model.bytes(input_ids) + self.model.places(places)  # (B, T, W)
        layers = []
        for index, block in enumerate(self.model.blocks):
            past = None if past_key_values is None else past_key_values[index]
            x, layer = run_block(block, x, past)
            layers.append(layer)
        logits = nn.functional.linear(self.model.norm(x), self.model.bytes.weight)
        return Generated(logits, tuple(layers) if use_cache else None)


def run_block(
    block: Block, x: Tensor, past: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """(B, T, W) to (B, T, W), with the keys and values of all places up to the last one."""
    heads = block.query_key_value(block.norm_1(x)).unflatten(2, (3 * HEADS, -1))
    query, key, value = heads.transpose(1, 2).chunk(3, dim=1)  # (B, H, T, D)
    if past is not None:
        key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
    new, places = query.shape[2], key.shape[2]
    sees = torch.ones(new, places, dtype=torch.bool, device=x.device).tril(places - new)
    seen = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=sees)
    x = x + block.projection(seen.transpose(1, 2).flatten(2))
    return x + block.narrow(nn.functional.gelu(block.widen(block.norm_2(x)))), (key, value)
