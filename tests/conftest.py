"""Settings of the whole suite: the same examples in every run, and no deadline on a machine that others share."""

from hypothesis import HealthCheck, settings

settings.register_profile("initio", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("initio")
