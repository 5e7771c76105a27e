"""Profiles a module: what each layer computes, yields and keeps, measured or estimated."""

from pipeplan.models.profiler.api import profile_model
from pipeplan.models.profiler.devices import DEVICES, Device, device_named

__all__ = ["DEVICES", "Device", "device_named", "profile_model"]
