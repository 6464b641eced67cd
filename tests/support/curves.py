"""What a training measured."""

from reference_models import Measurement


def curve(training):
    return [item.quality for item in training if isinstance(item, Measurement)]
