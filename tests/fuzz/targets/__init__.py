"""The fuzz targets. A target makes an input as bytes (`make`) and runs it in a temporary folder (`check`)."""

from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from fuzz.targets import checkpoints, images, kernel, plans, policies, recipes, tables

TARGETS: Mapping[str, ModuleType] = MappingProxyType(
    {
        "images": images,
        "checkpoints": checkpoints,
        "recipes": recipes,
        "policies": policies,
        "tables": tables,
        "plans": plans,
        "kernel": kernel,  # `make fuzz` runs it with AddressSanitizer
    }
)
