"""What all tests share: property tests that search the same examples everywhere, however slow the machine."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "laps-sd", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("laps-sd")
