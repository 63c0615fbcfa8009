# SPDX-License-Identifier: Apache-2.0
"""The device that an option or argument names."""

from forebay.errors import RefusedInput
from forebay.storage import build_info

CPU = "cpu"


def chosen_device(device: str) -> tuple[str, int]:
    """The device for `auto`, `cpu` or `cuda:N`: its name, `cpu` or `cuda:N`, and N, which is -1 for the CPU.

    Raises:
        RefusedInput: There is no such device.
    """
    gpus = build_info()["gpus"]
    name = (gpus or [CPU])[0] if device == "auto" else device
    if name == CPU:
        return name, -1
    if name not in gpus:
        found = f"the GPUs here are {', '.join(gpus)}" if gpus else "no GPU was found, or CUDA is not built in"
        raise RefusedInput("device", device, f"give cpu, auto or cuda:N; {found}, see `forebay doctor`")
    return name, gpus.index(name)
