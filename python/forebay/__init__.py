# SPDX-License-Identifier: Apache-2.0
"""Forebay: storage on NVMe drives, real or emulated, for GPU threads and for Python.

``forebay.Storage`` opens drives. ``forebay.graph`` runs algorithms over graphs that lie on a drive or in memory,
``forebay.trace`` reads block traces, and ``forebay.replay`` repeats them on a drive.
"""

from forebay.errors import OperationFailed, RefusedInput
from forebay.storage import Storage, build_info, create_drive

__all__ = ["OperationFailed", "RefusedInput", "Storage", "build_info", "create_drive"]
__version__ = "0.1.0"
