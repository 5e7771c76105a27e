"""Published peaks of the devices that the estimator knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeplan.core.errors import PipeplanError

__all__ = ["DEVICES", "Device", "device_named"]


@dataclass(frozen=True, slots=True)
class Device:
    """Dense peaks in FLOP/s by dtype, memory bandwidth in bytes/s, memory in bytes.

    `conv_float32` is the peak of float32 convolutions, which torch runs in TF32 where there is
    TF32; float32 matrix products it does not.
    """

    name: str
    peak_flops: Mapping[str, float]
    conv_float32: float
    bandwidth_bytes_per_s: float
    memory_bytes: int

    @property
    def has_tf32(self) -> bool:
        """Whether convolutions in float32 have units of their own."""
        return self.conv_float32 > self.peak_flops["float32"]

    def peak(self, dtype: str, *, convolution: bool) -> float:
        """FLOP/s of matrix products in this type; types without an entry run as float32."""
        if dtype == "float32" and convolution:
            return self.conv_float32
        return self.peak_flops.get(dtype, self.peak_flops["float32"])


def _device(
    name: str,
    *,
    float64: float,
    float32: float,
    tf32: float,
    half: float,
    bfloat16: float,
    bandwidth: float,
    memory: float,
) -> Device:
    peaks = {"float64": float64, "float32": float32, "float16": half, "bfloat16": bfloat16}
    return Device(
        name,
        {dtype: tera * 1e12 for dtype, tera in peaks.items()},
        tf32 * 1e12,
        bandwidth * 1e9,
        int(memory * 1e9),
    )


DEVICES: Final[Mapping[str, Device]] = {
    device.name: device
    for device in (
        # NVIDIA Tesla V100 data sheet (2018), SXM2 with 16 GB; no TF32, no bfloat16 units.
        _device(
            "v100",
            float64=7.8,
            float32=15.7,
            tf32=15.7,
            half=125.0,
            bfloat16=15.7,
            bandwidth=900,
            memory=16,
        ),
        # NVIDIA A100 data sheet (2021), SXM4 with 80 GB.
        _device(
            "a100",
            float64=19.5,
            float32=19.5,
            tf32=156.0,
            half=312.0,
            bfloat16=312.0,
            bandwidth=2039,
            memory=80,
        ),
        # NVIDIA H100 data sheet (2023), SXM5 with 80 GB; figures without sparsity.
        _device(
            "h100",
            float64=67.0,
            float32=67.0,
            tf32=494.7,
            half=989.4,
            bfloat16=989.4,
            bandwidth=3350,
            memory=80,
        ),
        # NVIDIA H200 data sheet (2024), SXM with 141 GB; the compute of an H100.
        _device(
            "h200",
            float64=67.0,
            float32=67.0,
            tf32=494.7,
            half=989.4,
            bfloat16=989.4,
            bandwidth=4800,
            memory=141,
        ),
    )
}


def device_named(name: str) -> Device:
    """The device of this name, whatever its case; raises PipeplanError naming the known ones."""
    device = DEVICES.get(name.lower())
    if device is None:
        raise PipeplanError(f"no device {name[:60]!a} is known; known: {', '.join(DEVICES)}")
    return device
