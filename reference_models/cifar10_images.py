"""CIFAR-10 images on the device: working precision, padding, and an epoch's augmentation.

All of it is queued on the device: an epoch of shuffled, shifted and mirrored images is one gather.
"""

import torch
from torch import Tensor
from torch.nn import functional

CHANNEL_MEAN = (0.4914, 0.4822, 0.4465)  # of the training images, as published with most recipes
CHANNEL_STD = (0.2470, 0.2435, 0.2616)
PIXELS = 32


def normalised(images: Tensor, device: str) -> Tensor:
    """Centre and scale bytes (N, 3, 32, 32) in the device's working precision."""
    precision = torch.float16 if device.startswith("cuda") else torch.float32
    mean = torch.tensor(CHANNEL_MEAN, device=device).view(3, 1, 1)
    std = torch.tensor(CHANNEL_STD, device=device).view(3, 1, 1)
    parts = [(part.to(device) / 255 - mean) / std for part in images.split(5000)]
    return torch.cat([part.to(precision) for part in parts]).contiguous(
        memory_format=torch.channels_last
    )


def pad(images: Tensor, pixels: int) -> Tensor:
    """Images (N, 3, 32, 32) with mirrored borders, channels last: (N, 32 + 2p, 32 + 2p, 3)."""
    padded = functional.pad(images, (pixels,) * 4, mode="reflect") if pixels else images
    return padded.permute(0, 2, 3, 1).contiguous()


def augmented(padded: Tensor, chosen: Tensor, *, shifts: Tensor, mirrored: Tensor) -> Tensor:
    """Shift and mirror the chosen images by one gather: (M, 3, 32, 32).

    `shifts` (2, N) are the top left corners in the padded image. `mirrored` (N,) marks images to
    turn left to right.
    """
    places = torch.arange(PIXELS, device=padded.device)
    top, left = shifts[:, chosen].unsqueeze(2)  # (M, 1) each
    rows = top + places  # (M, 32)
    columns = left + torch.where(mirrored[chosen].unsqueeze(1), PIXELS - 1 - places, places)
    images = padded[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
    return images.permute(0, 3, 1, 2)  # a view: channels last


def cut_out(images: Tensor, centres: Tensor, *, size: int) -> None:
    """Set a square around each centre (2, M) to the mean colour. It may hang over the border."""
    if size == 0:
        return
    places = torch.arange(PIXELS, device=images.device)
    begin = centres.unsqueeze(2) - size // 2  # (2, M, 1)
    inside = (places >= begin) & (places < begin + size)  # (2, M, 32)
    square = inside[0].unsqueeze(2) & inside[1].unsqueeze(1)  # (M, 32, 32)
    images.masked_fill_(square.unsqueeze(1), 0.0)
