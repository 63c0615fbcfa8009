# SPDX-License-Identifier: Apache-2.0
"""Forebay: GPU threads that drive NVMe drives, real or emulated."""

from forebay.errors import OperationFailed, RefusedInput
from forebay.storage import Storage, build_info

__all__ = ["OperationFailed", "RefusedInput", "Storage", "build_info"]
__version__ = "0.1.0"
