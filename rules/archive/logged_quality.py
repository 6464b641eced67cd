"""What is known of a benchmark's logs in rounds of which there is no definition."""

from rules.archive.definitions import common_name
from rules.benchmark import Benchmark
from rules.quality import LoggedQuality, QualityTarget

# mlperf-logging, compliance_checker: training_0.7.0/closed_maskrcnn, training_0.6.0/minigo and
# training_3.1.0/closed_stable_diffusion. MLPerf training_rules.adoc, "Quality measure": where
# checkpoints have a time, they may be evaluated once the clock is stopped, and it stops at the
# first that passed. Stable Diffusion of v3.1 numbers them by steps.
KNOWN = {
    "maskrcnn": LoggedQuality(logged_names=("BBOX", "SEGM")),
    "minigo": LoggedQuality(offline=True, timed_by_result=True),
    "stable_diffusion": LoggedQuality(logged_names=("FID", "CLIP"), offline=True, steps=True),
}


def quality_in_logs(
    name: str | None, benchmark: Benchmark | None
) -> QualityTarget | LoggedQuality | None:
    """How the logs of a benchmark tell quality: by its definition, else what is known of its name.

    None where nothing is known.
    """
    if benchmark is not None:
        return benchmark.target
    return KNOWN.get(common_name(name)) if name else None
