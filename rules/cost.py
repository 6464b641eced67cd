"""What a time cost: seconds times the on-demand price of the system."""


def training_cost_usd(tta_seconds: float | None, price_usd_per_hour: float | None) -> float | None:
    """US dollars to the target, or None without a time or a price (then not ranked by cost).

    Source: dawn-bench-entries README, "costPerHour".
    """
    if tta_seconds is None or price_usd_per_hour is None:
        return None
    return tta_seconds / 3600.0 * price_usd_per_hour


def system_price_usd_per_hour(usd_per_accelerator_hour: float, accelerators: int) -> float:
    """The price of a whole system, which without accelerators counts as one."""
    return usd_per_accelerator_hour * max(1, accelerators)


def inference_cost_usd_per_10000(cost_usd_per_item: float | None) -> float | None:
    """US dollars for 10,000 items, the unit of the published board; None without a cost."""
    return None if cost_usd_per_item is None else cost_usd_per_item * 10_000
