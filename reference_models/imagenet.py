"""The ImageNet reference: torchvision's ResNet-50 for 93 % top-5.

Not measured yet: neither on a GPU nor on the real images, so no time and no number of epochs to
93 % is claimed here. This file was run only on small made-up pictures on a CPU (tests).

Pictures are in `imagenet/train/CLASS/` and `imagenet/val/CLASS/` of the data folder, as
torchvision's ImageFolder wants them. They are decoded on the host, cropped at random to a size that
grows from epoch to epoch, and scaled on the device. SGD with Nesterov momentum, label smoothing,
learning rate up linearly and down linearly to zero. Bfloat16 and channels-last on a GPU. Gradients
averaged among processes while they are computed. Evaluated after each epoch on the whole validation
set, each process on its part. The size schedule and the small learning rate per image follow common
practice in published fast ResNet-50 trainings of 16 to 18 epochs.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from finishline.rules.run import Phase
from reference_models import HyperparameterError, Measurement, Synthetic
from reference_models.distributed import EXCHANGE, World, alone, join, synchronise
from reference_models.hyperparameters import Hyperparameters, within
from reference_models.imagenet_files import (
    CLASSES,
    TRAINING_PICTURES,
    Pictures,
    no_torchvision,
    open_pictures,
    without_traceback,
)
from reference_models.memory import naming_batch_size
from reference_models.training import check_loss, linear_rate, set_rate

DATA_SET_SHA256 = None  # The pictures are counted: the unpacked set lacks a checksum.
CHANNEL_MEAN = (0.485, 0.456, 0.406)  # as torchvision's own training uses
CHANNEL_STD = (0.229, 0.224, 0.225)
BASE_BATCH_SIZE = 256  # the learning rate is stated at this batch size and scales with it
PIXELS_STEP = 32
GROWTH_SHARE = 0.8  # of the epochs: from then on pictures have their full size


@dataclass(frozen=True)
class ImagenetConfig(Hyperparameters):
    """Hyperparameters of a run. The learning rate follows the batch size.

    `peak_share` is where in the run the learning rate peaks. `loader_processes` decode pictures for
    each training process, with equal results.
    """

    reference = "imagenet"
    batch_size: int = within(1024, 2, 65536)
    epochs: int = within(18, 1, 200)
    base_learning_rate: float = within(0.5, 1e-4, 5.0)
    momentum: float = within(0.9, 0.0, 0.999)
    weight_decay: float = within(5e-5, 0.0, 0.01)
    label_smoothing: float = within(0.1, 0.0, 0.5)
    peak_share: float = within(0.1, 0.0, 0.9)
    smallest_pixels: int = within(128, 32, 512)
    largest_pixels: int = within(224, 32, 512)
    evaluation_pixels: int = within(224, 32, 512)
    loader_processes: int = within(8, 0, 64)
    compile: int = within(0, 0, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smallest_pixels > self.largest_pixels:
            raise HyperparameterError(
                f"got {self.smallest_pixels}",
                field="hyperparameters.smallest_pixels",
                expected=f"at most largest_pixels, {self.largest_pixels}",
            )

    @property
    def learning_rate(self) -> float:
        """The peak learning rate at this batch size (linear scaling)."""
        return self.base_learning_rate * self.batch_size / BASE_BATCH_SIZE

    def pixels_at(self, epoch: int) -> int:
        """Return the side of an epoch's pictures, in steps of 32. Epochs count from 1."""
        progress = min(1.0, (epoch - 1) / max(1.0, GROWTH_SHARE * self.epochs - 1))
        grown = self.smallest_pixels + progress * (self.largest_pixels - self.smallest_pixels)
        rounded = PIXELS_STEP * round(grown / PIXELS_STEP)
        return min(self.largest_pixels, max(self.smallest_pixels, rounded))


configure = ImagenetConfig.configure


def train(
    config: ImagenetConfig, *, seed: int, device: str, data_dir: Path
) -> Iterator[Phase | Measurement]:
    """Train for `config.epochs` epochs, one measurement after each.

    Raises DataSetError for missing or unreadable pictures or a missing torchvision, DeviceError for
    a missing GPU, TrainingMemoryError, and TrainingDivergedError for an infinite or NaN loss at the
    end of an epoch.
    """
    world = join(device)
    with naming_batch_size(config.batch_size, device=world.device):
        yield from _train(config, seed=seed, world=world, data_dir=data_dir)


def _train(
    config: ImagenetConfig, *, seed: int, world: World, data_dir: Path
) -> Iterator[Phase | Measurement]:
    part = world.part_of_batch(config.batch_size)
    torch.manual_seed(seed)
    model = build_model().to(world.device, memory_format=torch.channels_last)
    stepping = shared(model, config, world)
    yield Phase.COMPILE if config.compile else Phase.WARMUP
    warm_up(model, stepping, config, world)
    synchronise(world.device)
    yield Phase.DATA
    training, validation = open_pictures(data_dir)
    steps_per_epoch = len(training) // config.batch_size
    if steps_per_epoch == 0:
        raise HyperparameterError(
            f"got {config.batch_size}",
            field="hyperparameters.batch_size",
            expected=f"at most the {len(training)} training pictures",
        )
    torch.manual_seed(seed * world.size + world.rank)  # Each process crops in its own way.
    rate_at = partial(linear_rate, peak_share=config.peak_share, peak=config.learning_rate)
    order = torch.Generator().manual_seed(seed)
    optimiser = make_optimiser(model, config)
    yield Phase.TRAIN
    step = 0
    for epoch in range(1, config.epochs + 1):
        shuffled = torch.randperm(len(training), generator=order)
        batches = shuffled[: steps_per_epoch * config.batch_size].view(steps_per_epoch, -1)
        mine = batches[:, world.rank * part : (world.rank + 1) * part].reshape(-1)
        stepping.train()
        pixels = config.pixels_at(epoch)
        for x, y in loaded(training, mine, config, world, batch_size=part, crop_pixels=pixels):
            rate = rate_at(step, steps_per_epoch * config.epochs)
            loss = train_step(stepping, optimiser, x, y, config, rate=rate)
            step += 1
        synchronise(world.device)
        yield Phase.EVAL
        check_loss(world.mean(loss).item(), epoch=epoch)
        quality = top5_percent(model, validation, config, world)
        yield Measurement(epoch=epoch, samples=step * config.batch_size, quality=quality)
        if epoch < config.epochs:
            yield Phase.TRAIN


def build_model() -> nn.Module:
    """Build torchvision's untrained ResNet-50 with blocks as shortcuts. Raises DataSetError."""
    try:
        from torchvision.models import resnet50
    except (ImportError, RuntimeError) as error:  # A mismatched pair fails with a RuntimeError.
        raise no_torchvision(error) from error
    return resnet50(weights=None, num_classes=CLASSES, zero_init_residual=True)


def shared(model: nn.Module, config: ImagenetConfig, world: World) -> nn.Module:
    """Prepare the model for steps: average gradients among processes, compile if asked for."""
    if world.device.startswith("cuda"):
        torch.backends.cudnn.benchmark = True
    if world.size > 1:
        devices = [torch.device(world.device)] if world.device.startswith("cuda") else None
        model = nn.parallel.DistributedDataParallel(
            model, device_ids=devices, broadcast_buffers=False
        )
        EXCHANGE.follow(model)
    return torch.compile(model) if config.compile else model


def make_optimiser(model: nn.Module, config: ImagenetConfig) -> torch.optim.SGD:
    """Make SGD with Nesterov momentum, without decay of norms and biases."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.SGD(
        [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain}],
        lr=config.learning_rate,
        momentum=config.momentum,
        nesterov=config.momentum > 0,
        fused=True,
    )


def train_step(
    stepping: nn.Module,
    optimiser: torch.optim.SGD,
    x: Tensor,
    y: Tensor,
    config: ImagenetConfig,
    *,
    rate: float,
) -> Tensor:
    """Take one step at the given learning rate. The loss stays on the device."""
    set_rate(optimiser, rate)
    with lower_precision(x.device):
        outputs = stepping(scaled(x))
        loss = nn.functional.cross_entropy(outputs, y, label_smoothing=config.label_smoothing)
    loss.backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return loss.detach()


def lower_precision(device: torch.device) -> torch.autocast:
    """bfloat16 for operations safe in it on a GPU. Single precision on a CPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


def scaled(x: Tensor) -> Tensor:
    """Return bytes (B, 3, H, W) as centred and scaled numbers, channels last."""
    mean = torch.tensor(CHANNEL_MEAN, device=x.device).view(3, 1, 1)
    std = torch.tensor(CHANNEL_STD, device=x.device).view(3, 1, 1)
    return ((x.float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


def loaded(
    pictures: Pictures,
    order: Tensor,
    config: ImagenetConfig,
    world: World,
    *,
    batch_size: int,
    crop_pixels: int | None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches (B, 3, H, W) of bytes and labels (B,) on the device, in the given order.

    They are cropped at random to `crop_pixels`. With None they are whole and centred, for an
    evaluation.
    """
    on_gpu = world.device.startswith("cuda")
    loader = torch.utils.data.DataLoader(
        pictures.seen(crop_pixels=crop_pixels, whole_pixels=config.evaluation_pixels),
        batch_size=batch_size,
        sampler=order.tolist(),
        num_workers=config.loader_processes,
        pin_memory=on_gpu,
    )
    for x, y in without_traceback(loader):
        yield x.to(world.device, non_blocking=True), y.to(world.device, non_blocking=True)


def top5_percent(
    model: nn.Module, validation: Pictures, config: ImagenetConfig, world: World
) -> float:
    """Return the percent of validation pictures with their label among the five largest outputs.

    Every process counts its part with the first process's batch statistics, and learns the sum.
    """
    world.agree_on(model)
    model.eval()
    correct = torch.zeros((), dtype=torch.long, device=world.device)
    mine = torch.arange(world.rank, len(validation), world.size)
    part = max(1, config.batch_size // world.size)
    with torch.no_grad(), lower_precision(torch.device(world.device)):
        for x, y in loaded(validation, mine, config, world, batch_size=part, crop_pixels=None):
            correct += top5_count(model(scaled(x)), y)
    return float(100 * world.total(correct).item() / len(validation))


def top5_count(outputs: Tensor, labels: Tensor) -> Tensor:
    """Count labels (B,) among the five largest of their outputs (B, classes)."""
    best = outputs.topk(min(5, outputs.size(1)), dim=1).indices
    return (best == labels.unsqueeze(1)).sum()


def synthetic(config: ImagenetConfig, device: str) -> Synthetic:
    """Return one step at the full picture size and one inference of as many pictures, on noise.

    Pictures are on the device already: `loader_processes` decode them in a training. Raises
    DataSetError without torchvision.
    """
    model, world = build_model().to(device, memory_format=torch.channels_last), alone(device)
    stepping, optimiser = shared(model, config, world), make_optimiser(model, config)
    evaluated = deepcopy(model).eval()
    noise = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (config.batch_size,), generator=noise).to(device)
    x, tests = (
        torch.randint(256, (len(y), 3, side, side), dtype=torch.uint8, generator=noise).to(device)
        for side in (config.largest_pixels, config.evaluation_pixels)
    )
    stepping.train()

    def infer() -> Tensor:
        with torch.no_grad(), lower_precision(torch.device(device)):
            logits: Tensor = evaluated(scaled(tests))
            return logits

    return Synthetic(
        batch_size=config.batch_size,
        steps_per_epoch=max(1, TRAINING_PICTURES // config.batch_size),
        train_step=lambda: train_step(stepping, optimiser, x, y, config, rate=config.learning_rate),
        inference_items=config.batch_size,
        infer=infer,
    )


def warm_up(model: nn.Module, stepping: nn.Module, config: ImagenetConfig, world: World) -> None:
    """Run a step at each picture size and an evaluation, on meaningless pictures."""
    before = deepcopy(model.state_dict())
    noise = torch.Generator().manual_seed(0)
    part = world.part_of_batch(config.batch_size)
    y = torch.randint(CLASSES, (part,), generator=noise).to(world.device)
    optimiser = make_optimiser(model, config)
    sizes = {config.pixels_at(epoch) for epoch in range(1, config.epochs + 1)}
    for pixels in sorted(sizes):
        x = torch.randint(256, (part, 3, pixels, pixels), dtype=torch.uint8, generator=noise)
        stepping.train()
        train_step(stepping, optimiser, x.to(world.device), y, config, rate=0.0)
    model.eval()
    with torch.no_grad(), lower_precision(torch.device(world.device)):
        top5_count(model(scaled(x.to(world.device))), y)
    model.load_state_dict(before)
