"""Quotas that a test reaches."""

import pytest


@pytest.fixture
def settings(settings):
    """Three submissions a day and 900 accelerator seconds a month."""
    return settings.model_copy(
        update={"quota_submissions_per_day": 3, "quota_gpu_seconds_per_month": 900}
    )
